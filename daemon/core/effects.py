"""What the slot wants done to the world, in the order in which it says so."""

from dataclasses import dataclass
from enum import StrEnum

from modeld.daemon.contract.errors import ErrorCode
from modeld.daemon.contract.exit import AckStatus, Cause, Exit
from modeld.daemon.contract.model import Plan


class Timer(StrEnum):
    """What is waited for: idleness, a cancelled turn's end, or an exit after each step of E8."""

    IDLE = "idle"
    CANCEL = "cancel"
    LEAVE = "leave"
    TERM = "term"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Spawn:
    """Re-check admission, charge the ledger, start a worker, order it to load.

    Comes back as NeverStarted if there is no process.
    """

    serial: int
    plan: Plan
    safe_mode: bool


@dataclass(frozen=True, slots=True)
class TellToLeave:
    """Ask the worker over its pipe to exit."""

    serial: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Send the signal to the worker's whole process group."""

    serial: int
    name: str


@dataclass(frozen=True, slots=True)
class Arm:
    """Start this timer in place of any other of the slot."""

    serial: int
    timer: Timer


@dataclass(frozen=True, slots=True)
class Run:
    """Hand the turn to the worker."""

    serial: int
    turn: str


@dataclass(frozen=True, slots=True)
class CancelTurn:
    """Ask the worker to stop the turn."""

    serial: int
    turn: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Drop the worker's charge from the ledger: its exit was collected."""

    serial: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """Answer a ``load``: its model is resident (``already``: it was before)."""

    turn: str
    already: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """Answer the turn with what the worker said at its end."""

    turn: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer the request with the reason why its worker was ended; ``confirmed`` if it is gone."""

    turn: str
    cause: Cause
    exit: Exit | None
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer ``who`` that it cannot be done now; nothing was changed for it."""

    who: str
    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Answer:
    """Send ``who`` an ack that no worker's end is behind: there was none, or it was spared."""

    who: str
    status: AckStatus
    cause: Cause


@dataclass(frozen=True, slots=True)
class Wait:
    """Put ``who`` at the end of the queue."""

    who: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The slot can serve: take the next from the queue."""


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Refuse all that wait in the queue: the slot will not serve them."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The facts of one worker's end, as far as the slot knows them."""

    serial: int
    cause: Cause
    exit: Exit | None
    turn: str | None
    generation_before: int
    generation_after: int
    signals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settle:
    """Record the end and send the ack to all who wait for it.

    ``confirmed``: the exit was collected. ``late``: after an unconfirmed answer had gone out.
    """

    waiters: tuple[str, ...]
    ended: Ended
    confirmed: bool
    late: bool = False


@dataclass(frozen=True, slots=True)
class Quit:
    """Nothing is resident and the daemon is closing: leave."""


Effect = (
    Spawn
    | TellToLeave
    | Signal
    | Arm
    | Run
    | CancelTurn
    | Retire
    | Loaded
    | Finish
    | Fail
    | Refuse
    | Answer
    | Wait
    | Offer
    | TurnAway
    | Settle
    | Quit
)
