"""The daemon's one loop: waits for sockets, the worker, signals and time, and hands on what comes.

It decides nothing about models.
"""

import contextlib
import os
import signal
import socket
import traceback
from collections.abc import Callable, Iterable
from types import FrameType

import zmq

from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.exit import Cause
from modeld.daemon.contract.lock import FileLock
from modeld.daemon.contract.paths import Root
from modeld.daemon.contract.version import PROTOCOL, VERSION
from modeld.daemon.core import events as saw
from modeld.daemon.runtime.clients import Clients, Conversation
from modeld.daemon.runtime.refusals import refusal_of
from modeld.daemon.runtime.requests import Requests
from modeld.daemon.runtime.status import StatusView
from modeld.daemon.runtime.supervisor import Supervisor
from modeld.daemon.runtime.timers import Timers

HEARTBEAT_S = 1.0
RETRY_S = 0.05
OWNERSHIP_CHECK_S = 1.0
GOODBYE_S = 1.0


class Server:
    """Runs until the slot is empty for good. One thread, one poller."""

    def __init__(
        self,
        *,
        owner: str,
        root: Root,
        owner_lock: FileLock,
        router: zmq.Socket[bytes],
        clients: Clients,
        supervisor: Supervisor,
        requests: Requests,
        status: StatusView,
        timers: Timers,
        daemon_idle_s: float,
    ) -> None:
        self._owner = owner
        self._root = root
        self._owner_lock = owner_lock
        self._router = router
        self._clients = clients
        self._supervisor = supervisor
        self._requests = requests
        self._status = status
        self._timers = timers
        self._daemon_idle_s = daemon_idle_s
        self._is_over = False
        self._watched: dict[int, int] = {}

    def quit(self) -> None:
        """Leave the loop when this round is done."""
        self._is_over = True

    @property
    def has_lost_ownership(self) -> bool:
        """Whether somebody took the root away from under this daemon (H4)."""
        return self._status.lost_owner

    @property
    def has_worker(self) -> bool:
        """Whether there is a worker that is not proven gone."""
        return self._supervisor.worker is not None

    def run(self) -> None:
        """Serve. Returns when the slot is empty for good and nothing was left to do but reply."""
        wakeup_reader, wakeup_writer = socket.socketpair()
        wakeup_reader.setblocking(False)
        wakeup_writer.setblocking(False)
        signal.set_wakeup_fd(wakeup_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _leave_it_to_the_loop)
        self._beat()
        self._check_ownership()
        self._note_use()
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(wakeup_reader, zmq.POLLIN)
        try:
            while not self._is_over:
                self._round(poller, wakeup_reader)
        finally:
            signal.set_wakeup_fd(-1)
            wakeup_reader.close()
            wakeup_writer.close()

    def _round(self, poller: "zmq.Poller", wakeup: socket.socket) -> None:
        pipe_fd, exit_fd = self._watch_worker(poller)
        ready = dict(poller.poll(self._timeout_ms()))
        if wakeup.fileno() in ready:
            self._take_signals(wakeup)
        self._minding(
            lambda: self._serve_worker(ready.get(pipe_fd, 0), has_exited=exit_fd in ready)
        )
        if self._router in ready:
            for route, frame in self._clients.receive():
                self._serve_frame(route, frame)
        self._minding(self._timers.run_due)
        if self._clients.has_unsent:
            self._clients.flush()

    def _serve_worker(self, events: int, *, has_exited: bool) -> None:
        if has_exited:
            self._supervisor.collect_worker()
            return
        if events & zmq.POLLOUT and self._supervisor.worker is not None:
            self._supervisor.worker.process.flush()
        if events & ~zmq.POLLOUT:
            self._supervisor.read_worker()

    def _minding(self, deed: Callable[[], None]) -> None:
        """Do it; a bug that shows costs the worker, whose end is a state that is known."""
        try:
            deed()
        except Exception:  # noqa: BLE001
            traceback.print_exc()
            self._supervisor.give_up_worker()

    def _watch_worker(self, poller: "zmq.Poller") -> tuple[int, int]:
        """Have the poller watch the worker's pipe and its exit; their descriptors, -1 for none."""
        worker = self._supervisor.worker
        pipe_fd = exit_fd = -1
        wanted: dict[int, int] = {}
        if worker is not None:
            process = worker.process
            pipe_fd, exit_fd = process.fileno(), process.exit_fileno()
            wanted[exit_fd] = zmq.POLLIN
            events = (0 if process.at_eof else zmq.POLLIN) | (
                zmq.POLLOUT if process.has_unsent else 0
            )
            if events:
                wanted[pipe_fd] = events
        if wanted != self._watched:
            for descriptor in self._watched:
                poller.unregister(descriptor)
            for descriptor, events in wanted.items():
                poller.register(descriptor, events)
            self._watched = wanted
        return pipe_fd, exit_fd

    def _timeout_ms(self) -> int:
        delay = self._timers.next_delay_s()
        delay = OWNERSHIP_CHECK_S if delay is None else delay
        if self._clients.has_unsent:
            delay = min(delay, RETRY_S)
        return int(delay * 1000) + 1

    def _take_signals(self, wakeup: socket.socket) -> None:
        numbers = wakeup.recv(64)
        if numbers.strip(bytes([signal.SIGHUP])):
            hard = len(numbers) > 1
            self._supervisor.feed(saw.StopWanted(Cause.STOP, hard=hard))

    def say_goodbye(self, parting: Iterable[tuple[Conversation, wire.Reply]]) -> None:
        """Nobody is left without an answer: what is due is sent, what came too late is refused.

        Readers that are behind have a moment to catch up.
        """
        for conversation, reply in parting:
            self._clients.end(conversation, reply)
        while frames := self._clients.receive():
            for route, frame in frames:
                self._refuse_frame(route, frame)
        end = self._timers.clock() + GOODBYE_S
        while self._clients.has_unsent and self._timers.clock() < end:
            self._clients.flush()
            self._router.poll(int(RETRY_S * 1000), zmq.POLLIN)

    def _refuse_frame(self, route: bytes, frame: bytes) -> None:
        try:
            request = wire.decode_request(frame)
        except ModeldError as exc:
            self._clients.answer(route, wire.Failed(id=str(exc.details["id"]), error=exc.body()))
            return
        if isinstance(request, wire.Hello):
            self._clients.answer(route, self._welcome(request))
        elif not isinstance(request, wire.Cancel):
            error = refusal_of(ErrorCode.NOT_OWNER, self._supervisor.slot, None)
            self._clients.answer(route, wire.Failed(id=request.id, error=error.body()))

    # --- time --------------------------------------------------------------------------------

    def _beat(self) -> None:
        self._timers.arm("heartbeat", HEARTBEAT_S, self._beat)
        self._requests.show_progress()

    def _check_ownership(self) -> None:
        """The lock file is still the one that is held, and the socket is there (H4)."""
        self._timers.arm("ownership", OWNERSHIP_CHECK_S, self._check_ownership)
        held = os.fstat(self._owner_lock.fileno())
        try:
            found = os.stat(self._root.owner_lock)
            os.stat(self._root.socket)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
            self._status.lost_owner = True
            self._supervisor.feed(saw.StopWanted(Cause.STOP, hard=True))

    def _note_use(self) -> None:
        if self._daemon_idle_s > 0:
            self._timers.arm("vacant", self._daemon_idle_s, self._leave_if_vacant)

    def _leave_if_vacant(self) -> None:
        """Leave if the slot has been empty as long as nobody has asked for anything."""
        since = self._supervisor.empty_since
        left = self._daemon_idle_s
        if since is not None:
            left -= self._timers.clock() - since
        if left <= 0:
            self._supervisor.feed(saw.Vacant())
        else:
            self._timers.arm("vacant", left, self._leave_if_vacant)

    # --- requests ----------------------------------------------------------------------------

    def _serve_frame(self, route: bytes, frame: bytes) -> None:
        """One request. Whatever is wrong with it is answered, and goes no further (W4)."""
        try:
            request = wire.decode_request(frame)
        except ModeldError as exc:
            self._clients.answer(route, wire.Failed(id=str(exc.details["id"]), error=exc.body()))
            return
        try:
            self._serve(route, request)
        except Exception as exc:  # noqa: BLE001  (a bug costs its request, not the daemon)
            traceback.print_exc()
            error = ModeldError(
                ErrorCode.INTERNAL,
                f"a bug in the daemon: {type(exc).__name__}: {exc}",
                log=self._root.daemon_log,
                recovery=f"please report it, with the traceback in {self._root.daemon_log}",
            )
            reply = wire.Failed(id=request.id, error=error.body())
            conversation = self._clients.find(route, request.id)
            if conversation is None:
                self._clients.answer(route, reply)
            else:
                self._requests.fail(conversation, error.body())
                self._clients.end(conversation, reply)

    def _serve(self, route: bytes, request: wire.Request) -> None:
        if isinstance(request, wire.Hello):
            self._clients.answer(route, self._welcome(request))
            return
        if request.owner != self._owner:
            error = ModeldError(
                ErrorCode.STALE_FENCE,
                "the request is meant for another daemon than this one",
                owner=self._owner,
            )
            self._clients.answer(route, wire.Failed(id=request.id, error=error.body()))
            return
        match request:
            case wire.Cancel(target=target):
                conversation = self._clients.find(route, target)
                if conversation is not None:
                    self._requests.cancel(conversation)
            case wire.GetStatus():
                self._clients.answer(route, self._status.read(request.id))
            case _:
                self._note_use()
                self._accept(route, request)

    def _accept(
        self,
        route: bytes,
        request: wire.Load | wire.Generate | wire.Kill | wire.Unload | wire.Reap | wire.Stop,
    ) -> None:
        conversation = self._clients.open(route, request.id, request.client_pid)
        if conversation is None:
            error = ModeldError(ErrorCode.BAD_REQUEST, f"the request {request.id} is open already")
            self._clients.answer(route, wire.Failed(id=request.id, error=error.body()))
            return
        self._requests.accept(conversation, request)

    def _welcome(self, hello: wire.Hello) -> wire.Reply:
        if hello.protocol != PROTOCOL:
            error = ModeldError(
                ErrorCode.PROTOCOL_MISMATCH,
                f"the command speaks protocol {hello.protocol}, the daemon (version {VERSION}) "
                f"speaks {PROTOCOL}",
                min=PROTOCOL,
                max=PROTOCOL,
                daemon=PROTOCOL,
                client=hello.protocol,
                recovery="modeld stop --force, then try again",
            )
            return wire.Failed(id=hello.id, error=error.body())
        return wire.Welcome(
            id=hello.id,
            owner=self._owner,
            protocol=PROTOCOL,
            version=VERSION,
            pid=os.getpid(),
            closing=self._supervisor.slot.closing,
        )


def _leave_it_to_the_loop(_number: int, _frame: FrameType | None) -> None:
    """The wakeup descriptor has the signal; a handler is only needed for it to be written."""


def remove_file(path: str) -> None:
    """``path`` is gone when this returns, if it can be."""
    with contextlib.suppress(OSError):
        os.unlink(path)
