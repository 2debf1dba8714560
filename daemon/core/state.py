"""The slot's whole state, as values; how it changes is told in ``slot.py``."""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from modeld.daemon.contract.exit import Cause
from modeld.daemon.core.effects import Effect, Timer
from modeld.daemon.core.events import Wanted


class Phase(StrEnum):
    """Where the slot is. Every phase but EMPTY has a worker that is not proven gone."""

    EMPTY = "empty"
    LOADING = "loading"
    READY = "ready"
    BUSY = "busy"
    STOPPING = "stopping"
    UNCONFIRMED = "unconfirmed"


class Rest(StrEnum):
    """Why an empty slot is empty, as ``ps`` words it."""

    EMPTY = "Empty"
    IDLE = "Idle"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Stopping:
    """A stop under way: why, since which generation, what was sent, and who wants to know.

    ``answered``: they were told that it is not confirmed; ``turn`` is then the one it was about.
    """

    cause: Cause
    generation_before: int
    signals: tuple[str, ...] = ()
    waiters: tuple[str, ...] = ()
    turn: str | None = None
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot's whole state.

    ``serial`` numbers the workers; ``wanted`` is what the present worker was made for, kept while
    it lives; ``was_ready`` says that its load succeeded. ``turn`` is the request that it serves,
    ``finished`` that only the worker's exit is missing from that request's answer, ``cancelling``
    that its client gave up. ``upcoming`` is loaded as soon as the present worker is gone, and
    ``switching`` lasts from there until it is ready. ``timer`` is the one timer that counts.
    """

    phase: Phase = Phase.EMPTY
    generation: int = 0
    serial: int = 0
    wanted: Wanted | None = None
    safe_mode: bool = False
    was_ready: bool = False
    turn: str | None = None
    finished: bool = False
    cancelling: bool = False
    stopping: Stopping | None = None
    upcoming: Wanted | None = None
    switching: bool = False
    timer: Timer | None = None
    rest: Rest = Rest.EMPTY
    closing: bool = False

    @property
    def resident(self) -> Wanted | None:
        """What a living worker holds, loaded; ``None`` while it loads and on its way out."""
        return self.wanted if self.phase in {Phase.READY, Phase.BUSY} else None

    @property
    def in_view(self) -> Wanted | None:
        """What is resident, or will be next if nothing intervenes."""
        if self.upcoming is not None:
            return self.upcoming
        return self.wanted if self.phase in {Phase.LOADING, Phase.READY, Phase.BUSY} else None

    @property
    def name(self) -> str:
        """The state as ``ps`` words it."""
        if self.phase is Phase.UNCONFIRMED:
            return "Unconfirmed"
        if self.closing:
            return "ShuttingDown"
        if self.switching:
            return "Switching"
        match self.phase:
            case Phase.EMPTY:
                return self.rest.value
            case Phase.LOADING:
                return "Loading"
            case Phase.READY:
                return "Ready"
            case Phase.BUSY:
                return "Busy"
            case Phase.STOPPING:
                return "Unloading"
            case _:  # pragma: no cover
                assert_never(self.phase)

    @property
    def busy_operation(self) -> str | None:
        """What the slot is busy with, if it is."""
        if self.switching:
            return "switch"
        match self.phase:
            case Phase.EMPTY | Phase.READY:
                return None
            case Phase.LOADING:
                return "load"
            case Phase.BUSY:
                return "decode"
            case Phase.STOPPING | Phase.UNCONFIRMED:
                return None if self.stopping is None else self.stopping.cause.value
            case _:  # pragma: no cover
                assert_never(self.phase)


Step = tuple[Slot, tuple[Effect, ...]]
"""What a transition gives: the next state, and the effects to perform in order."""
