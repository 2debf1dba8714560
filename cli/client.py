"""A ZeroMQ connection to a daemon: hello, and whole messages in both directions."""

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import zmq

from modeld.cli.settings import Deadline
from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.version import PROTOCOL, VERSION

HELLO_TIMEOUT_S = 5.0

_LOOK_S = 0.5
_RECEIVE_HIGH_WATER = 10_000
_LINGER_MS = 200
"""For a Cancel on its way out; a daemon that does not read does not hold a command longer."""


def new_id() -> str:
    """An id that no other command of this user has."""
    return os.urandom(8).hex()


class Client:
    """A connection to the daemon at ``endpoint``.

    ``is_gone`` says without asking the daemon that it has ended (its lock is free), which makes
    waiting for it pointless.
    """

    def __init__(self, endpoint: str, is_gone: Callable[[], bool], deadline: Deadline) -> None:
        self.is_gone = is_gone
        self.deadline = deadline
        self._context = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, _LINGER_MS)
        self.socket.setsockopt(zmq.RCVHWM, _RECEIVE_HIGH_WATER)
        self.socket.connect(endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _exc: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.socket.close()
        self._context.term()

    def hello(self, timeout_s: float = HELLO_TIMEOUT_S) -> wire.Welcome | None:
        """The daemon's answer, which alone proves that it is there (L2); None if none came.

        Raises ModeldError(protocol_mismatch), or what else the daemon answered.
        """
        self.send(wire.Hello(protocol=PROTOCOL, version=VERSION))
        end = time.monotonic() + self.deadline.within(timeout_s)
        while (left := end - time.monotonic()) > 0:
            if not self.socket.poll(int(min(left, _LOOK_S) * 1000) + 1):
                if self.is_gone():
                    return None
                continue
            match self.receive():
                case wire.Welcome() as welcome:
                    _check_protocol(welcome)
                    return welcome
                case wire.Failed(error=error):
                    raise ModeldError.from_body(error)
                case other:
                    raise out_of_place(other)
        return None

    def send(self, request: wire.Request) -> None:
        """Put ``request`` on its way. Raises ModeldError(bad_request) if it is too large."""
        frame = wire.encode(request)
        if len(frame) > wire.MAX_REQUEST_BYTES:
            raise ModeldError(
                ErrorCode.BAD_REQUEST,
                f"the request has {len(frame)} bytes, and {wire.MAX_REQUEST_BYTES} are allowed",
            )
        self.socket.send(frame)

    def receive(self) -> wire.Reply:
        """The next reply. Raises ModeldError(protocol_mismatch) if it is none."""
        return wire.decode_reply(self.socket.recv())


def _check_protocol(welcome: wire.Welcome) -> None:
    if welcome.protocol != PROTOCOL:
        raise ModeldError(
            ErrorCode.PROTOCOL_MISMATCH,
            f"the daemon speaks protocol {welcome.protocol} (modeld {welcome.version}), "
            f"this command protocol {PROTOCOL} (modeld {VERSION})",
            daemon=welcome.protocol,
            client=PROTOCOL,
            recovery="'modeld stop --force' ends the old daemon; the next command starts a new one",
        )


def out_of_place(reply: wire.Reply) -> ModeldError:
    """The error for a reply that is known, but not expected now."""
    kind = type(reply).__name__.lower()
    return ModeldError(
        ErrorCode.PROTOCOL_MISMATCH, f"the daemon sent {kind!r} where it has no place"
    )
