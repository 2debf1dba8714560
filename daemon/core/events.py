"""What can happen to the slot: wishes of clients, and what was seen of the worker."""

from dataclasses import dataclass

from modeld.daemon.contract.exit import Cause, Exit
from modeld.daemon.contract.model import Plan
from modeld.daemon.core.effects import Timer


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request, known as ``turn``, wants ``plan`` resident, to run on it (``runs``) or to keep it.

    ``fits`` is the admission's answer for a load, with credit for what would make room. ``switch``:
    ``None`` replaces only an implicit resident, ``True`` any, ``False`` none. ``if_generation``:
    only if that is the slot's generation.
    """

    turn: str
    plan: Plan
    runs: bool
    fits: bool = True
    explicit: bool = False
    pinned: bool = False
    transient: bool = False
    ttl_s: float | None = None
    switch: bool | None = None
    may_wait: bool = True
    if_generation: int | None = None


@dataclass(frozen=True, slots=True)
class StopWanted:
    """Somebody wants the worker gone; ``who`` is answered. With ``turn``, only if it runs that.

    Not ``hard``: a turn is spared, the worker is asked first.
    """

    cause: Cause
    who: str | None = None
    hard: bool = False
    turn: str | None = None
    may_wait: bool = False
    if_generation: int | None = None


@dataclass(frozen=True, slots=True)
class CancelWanted:
    """The client of ``turn`` gave up or is gone."""

    turn: str


@dataclass(frozen=True, slots=True)
class Vacant:
    """Nobody has asked for anything for so long that the daemon may leave, if it is empty."""


@dataclass(frozen=True, slots=True)
class TimerExpired:
    """A timer that was armed for worker ``serial`` ran out (S5)."""

    serial: int
    timer: Timer


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The worker loaded its model and warmed up."""

    serial: int


@dataclass(frozen=True, slots=True)
class LoadRefused:
    """The worker could not load its model, said so, and is about to exit."""

    serial: int


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """No process was made for this serial, so there is none whose exit could be awaited."""

    serial: int


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The worker has ended ``turn``, well or badly, and is fit for the next."""

    serial: int
    turn: str


@dataclass(frozen=True, slots=True)
class WorkerBroken:
    """The worker is unfit: it said so and is ``leaving``, or it broke the protocol."""

    serial: int
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The kernel's wait status of the worker was collected (E1)."""

    serial: int
    exit: Exit


Event = (
    Wanted
    | StopWanted
    | CancelWanted
    | Vacant
    | TimerExpired
    | WorkerReady
    | LoadRefused
    | NeverStarted
    | TurnEnded
    | WorkerBroken
    | WorkerExited
)
