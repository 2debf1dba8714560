"""The daemon's side of its conversations: requests in, replies out, and who is no longer there.

It must not know what the requests mean.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import zmq

from modeld.daemon.contract import wire

OUTPUT_LIMIT = 8 * 1024 * 1024
"""Characters that may wait for a reader that does not read (L4)."""

RECEIVE_BATCH = 64
"""Frames taken at once, before the worker and the timers get their turn again."""


@dataclass(slots=True)
class Conversation:
    """One request of one client.

    It is open until its terminal reply, or until the client is gone.
    """

    route: bytes
    id: str
    client_pid: int
    is_open: bool = True
    seq: int = 0
    unsent: deque[wire.Reply] = field(default_factory=deque)
    unsent_chars: int = 0


class Clients:
    """All open conversations on the ROUTER socket."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        *,
        on_gone: Callable[[Conversation], None],
        on_slow: Callable[[Conversation], None],
    ) -> None:
        self._socket = socket
        self._on_gone = on_gone
        self._on_slow = on_slow
        self._open: dict[tuple[bytes, str], Conversation] = {}
        self._behind: dict[tuple[bytes, str], Conversation] = {}

    def receive(self) -> list[tuple[bytes, bytes]]:
        """The frames that have come, each with its sender's route; never blocks."""
        frames = []
        for _ in range(RECEIVE_BATCH):
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            if len(parts) == 2:  # noqa: PLR2004  (a route and one frame)
                frames.append((parts[0], parts[1]))
        return frames

    def open(self, route: bytes, id_: str, client_pid: int) -> Conversation | None:
        """A new conversation; ``None`` if the client has one of that id already."""
        key = (route, id_)
        if key in self._open:
            return None
        self._open[key] = Conversation(route, id_, client_pid)
        return self._open[key]

    def find(self, route: bytes, id_: str) -> Conversation | None:
        """The client's open conversation of that id."""
        return self._open.get((route, id_))

    def answer(self, route: bytes, reply: wire.Reply) -> None:
        """Reply outside of any conversation; a client that is gone or full misses it."""
        self._try_send(route, reply)

    def end(self, conversation: Conversation, reply: wire.Reply) -> None:
        """Send the terminal reply; the conversation is closed, though it may have to be flushed."""
        if conversation.is_open:
            conversation.is_open = False
            self.send(conversation, reply)
            if not conversation.unsent:
                self._forget(conversation)

    def send(self, conversation: Conversation, reply: wire.Reply) -> None:
        """Send a reply now if the client takes it, else when it does. Order is kept."""
        if self._open.get((conversation.route, conversation.id)) is not conversation:
            return
        if not conversation.unsent and self._deliver(conversation, reply):
            return
        self._keep(conversation, reply)

    def flush(self) -> None:
        """Try again what clients did not take before."""
        for key, conversation in tuple(self._behind.items()):
            while conversation.unsent:
                reply = conversation.unsent[0]
                if not self._deliver(conversation, reply):
                    break
                if conversation.unsent:
                    conversation.unsent.popleft()
                    if isinstance(reply, wire.Token):
                        conversation.unsent_chars -= len(reply.text)
            if not conversation.unsent:
                self._behind.pop(key, None)
                if not conversation.is_open:
                    self._forget(conversation)

    @property
    def has_unsent(self) -> bool:
        """Whether anything waits for a client to read."""
        return bool(self._behind)

    def _deliver(self, conversation: Conversation, reply: wire.Reply) -> bool:
        """Whether the reply is off our hands: sent, or its client is gone."""
        if isinstance(reply, wire.Token):
            reply = wire.Token(id=reply.id, seq=conversation.seq, text=reply.text)
        sent = self._try_send(conversation.route, reply)
        if sent is None:
            conversation.unsent.clear()
            self._forget(conversation)
            if conversation.is_open:
                conversation.is_open = False
                self._on_gone(conversation)
            return True
        if sent and isinstance(reply, wire.Token):
            conversation.seq += 1
        return sent

    def _keep(self, conversation: Conversation, reply: wire.Reply) -> None:
        """Hold a reply back; texts that follow each other become one."""
        if isinstance(reply, wire.Progress):
            return
        if isinstance(reply, wire.Token):
            conversation.unsent_chars += len(reply.text)
            last = conversation.unsent[-1] if conversation.unsent else None
            if isinstance(last, wire.Token):
                reply = wire.Token(id=reply.id, seq=0, text=last.text + reply.text)
                conversation.unsent.pop()
        conversation.unsent.append(reply)
        self._behind[conversation.route, conversation.id] = conversation
        if conversation.unsent_chars > OUTPUT_LIMIT and conversation.is_open:
            self._on_slow(conversation)

    def _try_send(self, route: bytes, reply: wire.Reply) -> bool | None:
        """Whether the client took it; ``None`` if there is no such client any more (L3)."""
        try:
            self._socket.send_multipart([route, wire.encode(reply)], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as exc:
            if exc.errno == zmq.EHOSTUNREACH:
                return None
            raise
        return True

    def _forget(self, conversation: Conversation) -> None:
        self._open.pop((conversation.route, conversation.id), None)
