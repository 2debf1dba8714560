"""How a worker is ended: asked, then SIGTERM, then SIGKILL, and never taken for dead (E8)."""

from dataclasses import replace
from typing import assert_never

from modeld.daemon.contract.errors import ErrorCode
from modeld.daemon.contract.exit import Cause, Exit
from modeld.daemon.core.effects import (
    Arm,
    Effect,
    Ended,
    Fail,
    Refuse,
    Settle,
    Signal,
    TellToLeave,
    Timer,
)
from modeld.daemon.core.state import Phase, Slot, Step, Stopping


def begin_stop(slot: Slot, cause: Cause, waiters: tuple[str, ...], *, hard: bool) -> Step:
    """The worker is to go: at once if ``hard``, else it is asked first."""
    if hard:
        return signal_term(slot, cause, waiters)
    return tell_to_leave(slot, cause, waiters)


def join_stop(slot: Slot, asked: tuple[str, ...], *, hard: bool) -> Step:
    """More want to know of a stop that is under way; ``hard`` ones do not wait for politeness."""
    assert slot.stopping is not None
    stopping = replace(slot.stopping, waiters=slot.stopping.waiters + asked)
    slot = replace(slot, stopping=stopping)
    if slot.phase is Phase.UNCONFIRMED:
        # One more SIGKILL under way serves all who ask meanwhile, and its time is not stretched.
        return (slot, ()) if slot.timer is Timer.KILL else signal_kill(slot)
    if hard and slot.timer is Timer.LEAVE:
        return signal_term(slot, stopping.cause, stopping.waiters)
    return slot, ()


def tell_to_leave(slot: Slot, cause: Cause, waiters: tuple[str, ...]) -> Step:
    """The first step: ask over the pipe."""
    state = replace(
        slot,
        phase=Phase.STOPPING,
        stopping=Stopping(cause, slot.generation, (), waiters),
        timer=Timer.LEAVE,
    )
    return state, (TellToLeave(slot.serial), Arm(slot.serial, Timer.LEAVE))


def signal_term(slot: Slot, cause: Cause, waiters: tuple[str, ...]) -> Step:
    """The second step, or the first of a hard stop."""
    state = replace(
        slot,
        phase=Phase.STOPPING,
        stopping=Stopping(cause, slot.generation, ("TERM",), waiters),
        timer=Timer.TERM,
    )
    return state, (Signal(slot.serial, "TERM"), Arm(slot.serial, Timer.TERM))


def signal_kill(slot: Slot) -> Step:
    """The last step. It frees nothing: only the exit does (S4)."""
    assert slot.stopping is not None
    stopping = replace(slot.stopping, signals=(*slot.stopping.signals, "KILL"))
    state = replace(slot, stopping=stopping, timer=Timer.KILL)
    return state, (Signal(slot.serial, "KILL"), Arm(slot.serial, Timer.KILL))


def timer_expired(slot: Slot, timer: Timer) -> Step:
    """The time of one step is over: the next one follows."""
    match timer:
        case Timer.IDLE:
            return tell_to_leave(slot, Cause.REAP, ())
        case Timer.CANCEL:
            return signal_term(slot, Cause.CANCEL, ())
        case Timer.LEAVE:
            assert slot.stopping is not None
            return signal_term(slot, slot.stopping.cause, slot.stopping.waiters)
        case Timer.TERM:
            return signal_kill(slot)
        case Timer.KILL:
            return unconfirmed(slot)
        case _:  # pragma: no cover
            assert_never(timer)


def unconfirmed(slot: Slot) -> Step:
    """SIGKILL was sent and no exit seen: say so, stay charged, block loads, go on waiting."""
    assert slot.stopping is not None
    stopping = slot.stopping
    ended = ended_of(slot, None)
    effects: list[Effect] = [Settle(stopping.waiters, ended, confirmed=False)]
    if slot.turn is not None:
        effects.append(Fail(slot.turn, stopping.cause, None, confirmed=False))
    if slot.upcoming is not None:
        effects.append(Refuse(slot.upcoming.turn, ErrorCode.TERMINATION_UNCONFIRMED))
    state = replace(
        slot,
        phase=Phase.UNCONFIRMED,
        turn=None,
        upcoming=None,
        switching=False,
        timer=None,
        stopping=replace(stopping, waiters=(), turn=ended.turn, answered=True),
    )
    return state, tuple(effects)


def await_exit(slot: Slot, cause: Cause) -> Step:
    """The worker said that it goes; it gets the time of one that was told to."""
    state = replace(
        slot,
        phase=Phase.STOPPING,
        stopping=Stopping(cause, slot.generation),
        timer=Timer.LEAVE,
    )
    return state, (Arm(slot.serial, Timer.LEAVE),)


def ended_of(slot: Slot, exit_: Exit | None) -> Ended:
    """The facts of this worker's end; without an exit, of an end that was not seen."""
    stopping = slot.stopping or Stopping(Cause.CRASH, slot.generation)
    after = slot.generation + (slot.was_ready if exit_ is not None else 0)
    return Ended(
        serial=slot.serial,
        cause=stopping.cause,
        exit=exit_,
        turn=None if slot.finished else slot.turn or stopping.turn,
        generation_before=stopping.generation_before,
        generation_after=after,
        signals=stopping.signals,
    )
