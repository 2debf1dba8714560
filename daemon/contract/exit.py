"""How a worker's end is reported: the kernel's word for it, and the ack built on that word."""

import signal
from enum import StrEnum
from typing import Literal, assert_never

import msgspec


class ExitKind(StrEnum):
    """What the kernel's wait status said. ``unknown``: somebody else collected it (E4)."""

    CODE = "code"
    SIGNAL = "signal"
    UNKNOWN = "unknown"


NATIVE_CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP}
)
"""Signals with which native code ends itself. SIGKILL is not one: it is somebody's decision."""


class Exit(msgspec.Struct, frozen=True):
    """A collected wait status. ``value`` is the exit code or the signal number."""

    kind: ExitKind
    value: int | None = None

    @property
    def is_native_crash(self) -> bool:
        """Whether native code ended the process with a fault of its own."""
        return self.kind is ExitKind.SIGNAL and self.value in NATIVE_CRASHES

    def __str__(self) -> str:
        match self.kind:
            case ExitKind.CODE:
                return f"code {self.value}"
            case ExitKind.SIGNAL:
                return f"signal {self.value} ({signal_name(self.value)})"
            case ExitKind.UNKNOWN:
                return "unknown status"
            case _:  # pragma: no cover
                assert_never(self.kind)


def signal_name(number: int | None) -> str:
    """``SEGV`` for 11; the number itself where the platform has no name for it."""
    try:
        return signal.Signals(number or 0).name.removeprefix("SIG")
    except ValueError:
        return str(number)


class WorkerId(msgspec.Struct, frozen=True, kw_only=True):
    """One process, exactly: a pid alone may be recycled, a pid with its start time is not.

    ``start_time`` is in seconds since the epoch, as psutil reports it.
    """

    pid: int
    start_time: float
    allocation_id: str | None = None


class Cause(StrEnum):
    """Why a worker or an inference was ended."""

    KILL = "kill"
    CANCEL = "cancel"
    DEADLINE = "deadline"
    UNLOAD = "unload"
    REAP = "reap"
    SWITCH = "switch"
    STOP = "stop"
    LOAD_FAILED = "load_failed"
    CRASH = "crash"


class AckStatus(StrEnum):
    """The outcome of something that ends a worker or an inference."""

    CANCELLED_CONFIRMED = "cancelled_confirmed"
    DEADLINE_EXCEEDED_CONFIRMED = "deadline_exceeded_confirmed"
    RELEASED_CONFIRMED = "released_confirmed"
    TERMINATION_UNCONFIRMED = "termination_unconfirmed"
    DEADLINE_EXCEEDED_UNCONFIRMED = "deadline_exceeded_unconfirmed"
    ALREADY_TERMINAL = "already_terminal"
    NOTHING_RESIDENT = "nothing_resident"
    NOT_IDLE = "not_idle"
    UNKNOWN = "unknown"


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to kill, unload, reap, switch, stop and crash: always this object.

    A ``*_confirmed`` status means that the wait status was collected, the ledger entry dropped and
    the slot's new state published, all before the ack was made (S7). ``elapsed_ms`` runs from the
    request to that moment; ``memory_returned_bytes`` is the worker's resident set just before its
    end. ``evidence`` ``lock``: the daemon was killed from outside, and the slot's lock, which its
    worker held as well, is free. ``late``: the exit was seen after an unconfirmed answer.
    """

    status: AckStatus
    cause: Cause
    inference_id: str | None = None
    model: str | None = None
    worker: WorkerId | None = None
    exit: Exit | None = None
    evidence: Literal["waited", "not_started", "lock", "none"] = "none"
    allocation_retired: bool = False
    generation_before: int = 0
    generation_after: int = 0
    signals: tuple[str, ...] = ()
    elapsed_ms: float = 0.0
    memory_returned_bytes: int | None = None
    late: bool = False
