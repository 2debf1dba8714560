"""The one slot as a pure state machine: what may happen in each phase, and what must follow.

Nothing here knows of clocks, processes or sockets (S1). The runtime turns what it sees into events,
calls :func:`step`, and performs the effects in order (S3). Time comes back as an event (S5).
"""

from dataclasses import replace
from typing import assert_never

from modeld.daemon.contract.errors import ErrorCode
from modeld.daemon.contract.exit import AckStatus, Cause, Exit
from modeld.daemon.core.effects import (
    Answer,
    Arm,
    CancelTurn,
    Effect,
    Fail,
    Finish,
    Loaded,
    Offer,
    Quit,
    Refuse,
    Retire,
    Run,
    Settle,
    Spawn,
    Timer,
    TurnAway,
    Wait,
)
from modeld.daemon.core.ending import (
    await_exit,
    begin_stop,
    ended_of,
    join_stop,
    signal_term,
    tell_to_leave,
    timer_expired,
)
from modeld.daemon.core.events import (
    CancelWanted,
    Event,
    LoadRefused,
    NeverStarted,
    StopWanted,
    TimerExpired,
    TurnEnded,
    Vacant,
    Wanted,
    WorkerBroken,
    WorkerExited,
    WorkerReady,
)
from modeld.daemon.core.state import Phase, Rest, Slot, Step, Stopping

_ALWAYS = frozenset({Wanted, StopWanted, CancelWanted, Vacant, TimerExpired})
_LEAVING = frozenset({WorkerReady, LoadRefused, TurnEnded, WorkerBroken, WorkerExited})

LEGAL: dict[Phase, frozenset[type[Event]]] = {
    Phase.EMPTY: _ALWAYS,
    Phase.LOADING: _ALWAYS | {WorkerReady, LoadRefused, NeverStarted, WorkerBroken, WorkerExited},
    Phase.READY: _ALWAYS | {WorkerBroken, WorkerExited},
    Phase.BUSY: _ALWAYS | {TurnEnded, WorkerBroken, WorkerExited},
    Phase.STOPPING: _ALWAYS | _LEAVING,
    Phase.UNCONFIRMED: _ALWAYS | _LEAVING,
}
"""The events each phase accepts (S2). Reports that cross a stop on the pipe are ignored."""

FREE = frozenset({Phase.EMPTY, Phase.READY})
"""The phases in which the next of the queue can be served: coming to rest there offers the slot."""


class IllegalEventError(Exception):
    """An event came that its phase does not accept; the state is unchanged."""


def step(slot: Slot, event: Event) -> Step:
    """The next state and the effects to perform, in order.

    Events of an earlier worker, and timers that no longer count, change nothing (S6). Raises
    IllegalEventError for an event that is not in :data:`LEGAL`.
    """
    if getattr(event, "serial", slot.serial) != slot.serial:
        return slot, ()
    if type(event) not in LEGAL[slot.phase]:
        raise IllegalEventError(f"{type(event).__name__} in {slot.phase}")
    state, effects = _react(slot, event)
    if effects and state.phase in FREE and not state.closing:
        effects = (*effects, Offer())
    return state, effects


def _react(slot: Slot, event: Event) -> Step:
    match event:
        case Wanted():
            return _wanted(slot, event)
        case StopWanted():
            return _stop_wanted(slot, event)
        case CancelWanted(turn=turn):
            return _cancel_wanted(slot, turn)
        case Vacant():
            return _vacant(slot)
        case TimerExpired(timer=timer):
            return (slot, ()) if timer is not slot.timer else timer_expired(slot, timer)
        case WorkerReady():
            return _worker_ready(slot)
        case LoadRefused():
            return _load_refused(slot)
        case NeverStarted():
            return _empty(slot, Rest.FAILED, _fail(slot, Cause.LOAD_FAILED, None))
        case TurnEnded(turn=turn):
            return _turn_ended_of(slot, turn)
        case WorkerBroken(leaving=leaving):
            return _worker_broken(slot, leaving=leaving)
        case WorkerExited(exit=exit_):
            return _worker_exited(slot, exit_)
        case _:  # pragma: no cover
            assert_never(event)


# --- what clients want ----------------------------------------------------------------------


def _wanted(slot: Slot, want: Wanted) -> Step:
    if slot.closing:
        return slot, (Refuse(want.turn, ErrorCode.NOT_OWNER),)
    if _is_stale(slot, want.if_generation):
        return slot, (Refuse(want.turn, ErrorCode.SLOT_GENERATION_STALE),)
    match slot.phase:
        case Phase.EMPTY:
            if not want.fits:
                return slot, (Refuse(want.turn, ErrorCode.INSUFFICIENT_MEMORY),)
            return _load(slot, want)
        case Phase.READY:
            return _wanted_of_resident(slot, want)
        case Phase.LOADING | Phase.BUSY | Phase.STOPPING:
            if not want.runs and slot.phase is Phase.BUSY and _serves(slot, want):
                return _adopt(slot, want), (Loaded(want.turn, already=True),)
            return slot, (_wait_or_refuse(want.turn, may_wait=want.may_wait),)
        case Phase.UNCONFIRMED:
            return slot, (Refuse(want.turn, ErrorCode.TERMINATION_UNCONFIRMED),)
        case _:  # pragma: no cover
            assert_never(slot.phase)


def _wanted_of_resident(slot: Slot, want: Wanted) -> Step:
    if _serves(slot, want):
        if want.runs:
            return _run(slot, want)
        slot = replace(_adopt(slot, want), timer=Timer.IDLE)
        return slot, (Loaded(want.turn, already=True), Arm(slot.serial, Timer.IDLE))
    held = slot.wanted is not None and slot.wanted.explicit
    if want.switch is False or (held and want.switch is not True):
        return slot, (Refuse(want.turn, ErrorCode.MODEL_SWITCH_REQUIRED),)
    if not want.fits:
        return slot, (Refuse(want.turn, ErrorCode.INSUFFICIENT_MEMORY),)
    return tell_to_leave(replace(slot, upcoming=want, switching=True), Cause.SWITCH, ())


def _serves(slot: Slot, want: Wanted) -> bool:
    assert slot.wanted is not None
    return slot.wanted.plan.identity() == want.plan.identity()


def _adopt(slot: Slot, load: Wanted) -> Slot:
    """The resident, taken over by a ``load`` that found it there."""
    assert slot.wanted is not None
    held = replace(slot.wanted, explicit=True, pinned=load.pinned, ttl_s=load.ttl_s)
    return replace(slot, wanted=held)


def _is_stale(slot: Slot, if_generation: int | None) -> bool:
    """Whether a caller acts on a generation that has passed; 0 and absent mean any."""
    return bool(if_generation) and if_generation != slot.generation


def _wait_or_refuse(who: str, *, may_wait: bool) -> Effect:
    return Wait(who) if may_wait else Refuse(who, ErrorCode.MODEL_BUSY)


def _load(slot: Slot, want: Wanted, *, safe_mode: bool = False, switching: bool = False) -> Step:
    serial = slot.serial + 1
    state = Slot(
        phase=Phase.LOADING,
        generation=slot.generation,
        serial=serial,
        wanted=want,
        safe_mode=safe_mode,
        turn=want.turn,
        switching=switching,
        closing=slot.closing,
    )
    return state, (Spawn(serial, want.plan, safe_mode),)


def _run(slot: Slot, want: Wanted) -> Step:
    state = replace(
        slot,
        phase=Phase.BUSY,
        turn=want.turn,
        finished=False,
        cancelling=False,
        switching=False,
        timer=None,
    )
    if want.transient and slot.wanted is not None and not slot.wanted.explicit:
        state = replace(state, wanted=replace(slot.wanted, transient=True))
    return state, (Run(slot.serial, want.turn),)


def _cancel_wanted(slot: Slot, turn: str) -> Step:
    if slot.upcoming is not None and slot.upcoming.turn == turn:
        return replace(slot, upcoming=None, switching=False), (
            Fail(turn, Cause.CANCEL, None, confirmed=True),
        )
    if slot.turn != turn or slot.cancelling:
        return slot, ()
    if slot.phase is Phase.LOADING:
        return signal_term(slot, Cause.CANCEL, ())
    if slot.phase is Phase.BUSY:
        state = replace(slot, cancelling=True, timer=Timer.CANCEL)
        return state, (CancelTurn(slot.serial, turn), Arm(slot.serial, Timer.CANCEL))
    return slot, ()


def _vacant(slot: Slot) -> Step:
    if slot.phase is Phase.EMPTY:
        return replace(slot, closing=True), (TurnAway(), Quit())
    return slot, ()


def _stop_wanted(slot: Slot, want: StopWanted) -> Step:
    asked = () if want.who is None else (want.who,)
    if _is_stale(slot, want.if_generation):
        return slot, tuple(Refuse(who, ErrorCode.SLOT_GENERATION_STALE) for who in asked)
    if want.turn is not None and want.turn != slot.turn:
        return slot, tuple(Refuse(who, ErrorCode.INFERENCE_NOT_ACTIVE) for who in asked)
    if want.cause is Cause.STOP:
        state, effects = _stop_slot(replace(slot, closing=True, upcoming=None), want, asked)
        gone = slot.upcoming
        away = () if gone is None else (Refuse(gone.turn, ErrorCode.NOT_OWNER),)
        return state, (*away, TurnAway(), *effects)
    return _stop_slot(slot, want, asked)


def _stop_slot(slot: Slot, want: StopWanted, asked: tuple[str, ...]) -> Step:
    match slot.phase:
        case Phase.EMPTY:
            nothing = tuple(Answer(who, AckStatus.NOTHING_RESIDENT, want.cause) for who in asked)
            return slot, (*nothing, Quit()) if slot.closing else nothing
        case Phase.READY:
            if want.cause is Cause.REAP and slot.wanted is not None and slot.wanted.pinned:
                return slot, tuple(Answer(who, AckStatus.NOT_IDLE, want.cause) for who in asked)
            return begin_stop(slot, want.cause, asked, hard=want.hard)
        case Phase.LOADING | Phase.BUSY:
            if want.cause is Cause.REAP:
                return slot, tuple(Answer(who, AckStatus.NOT_IDLE, want.cause) for who in asked)
            if not want.hard and want.cause is not Cause.STOP:
                return slot, tuple(_wait_or_refuse(who, may_wait=want.may_wait) for who in asked)
            hard = want.hard or slot.phase is Phase.LOADING
            return begin_stop(slot, want.cause, asked, hard=hard)
        case Phase.STOPPING:
            return _stop_stopping(slot, want, asked)
        case Phase.UNCONFIRMED:
            return join_stop(slot, asked, hard=want.hard)
        case _:  # pragma: no cover
            assert_never(slot.phase)


def _stop_stopping(slot: Slot, want: StopWanted, asked: tuple[str, ...]) -> Step:
    """A worker is on its way out already; with a switch, what comes next is at stake too."""
    if want.cause is Cause.REAP:
        return slot, tuple(Answer(who, AckStatus.NOT_IDLE, want.cause) for who in asked)
    if slot.upcoming is None:
        return join_stop(slot, asked, hard=want.hard)
    if not want.hard:
        return slot, tuple(_wait_or_refuse(who, may_wait=want.may_wait) for who in asked)
    failed = Fail(slot.upcoming.turn, want.cause, None, confirmed=True)
    state = replace(slot, upcoming=None, switching=False)
    state, effects = join_stop(state, asked, hard=True)
    return state, (failed, *effects)


# --- what the worker does --------------------------------------------------------------------


def _worker_ready(slot: Slot) -> Step:
    if slot.phase is not Phase.LOADING:
        return slot, ()
    assert slot.wanted is not None
    want = slot.wanted
    slot = replace(slot, generation=slot.generation + 1, was_ready=True)
    if want.runs:
        return _run(slot, want)
    state = replace(slot, phase=Phase.READY, turn=None, switching=False, timer=Timer.IDLE)
    loaded = Loaded(want.turn, already=False)
    return state, (loaded, Arm(slot.serial, Timer.IDLE))


def _load_refused(slot: Slot) -> Step:
    if slot.phase is not Phase.LOADING:
        return slot, ()
    return await_exit(slot, Cause.LOAD_FAILED)


def _worker_broken(slot: Slot, *, leaving: bool) -> Step:
    if slot.phase in {Phase.STOPPING, Phase.UNCONFIRMED}:
        return slot, ()
    if leaving:
        return await_exit(slot, Cause.CRASH)
    return signal_term(slot, Cause.CRASH, ())


def _turn_ended_of(slot: Slot, turn: str) -> Step:
    if slot.phase is not Phase.BUSY:
        return slot, ()
    if slot.turn != turn:
        raise IllegalEventError(f"TurnEnded of {turn} while {slot.turn} runs")
    assert slot.wanted is not None
    if slot.wanted.transient and not slot.wanted.explicit:
        return tell_to_leave(replace(slot, finished=True), Cause.UNLOAD, ())
    state = replace(slot, phase=Phase.READY, turn=None, cancelling=False, timer=Timer.IDLE)
    return state, (Finish(turn), Arm(slot.serial, Timer.IDLE))


def _worker_exited(slot: Slot, exit_: Exit) -> Step:
    """The only way to an empty slot from a worker that existed (S4)."""
    retire = Retire(slot.serial)
    assert slot.wanted is not None
    if slot.phase is Phase.LOADING and exit_.is_native_crash and not slot.safe_mode:
        # Its request goes on with the next worker, so no turn has ended with this one.
        settle = Settle((), replace(ended_of(slot, exit_), turn=None), confirmed=True)
        state, effects = _load(slot, slot.wanted, safe_mode=True, switching=slot.switching)
        return state, (retire, settle, *effects)
    generation = slot.generation + slot.was_ready
    stopping = slot.stopping or Stopping(Cause.CRASH, slot.generation)
    settle = Settle(stopping.waiters, ended_of(slot, exit_), confirmed=True, late=stopping.answered)
    slot = replace(slot, generation=generation)
    if slot.turn is not None and slot.finished:
        last: tuple[Effect, ...] = (Finish(slot.turn),)
    else:
        last = _fail(slot, stopping.cause, exit_)
    done = (settle, *last)
    if slot.upcoming is not None:
        state, effects = _load(slot, slot.upcoming, switching=True)
        return state, (retire, *done, *effects)
    match stopping.cause:
        case Cause.REAP:
            rest = Rest.IDLE
        case Cause.CRASH | Cause.LOAD_FAILED:
            rest = Rest.FAILED
        case _:
            rest = Rest.EMPTY
    state, effects = _empty(slot, rest, ())
    return state, (retire, *done, *effects)


def _empty(slot: Slot, rest: Rest, effects: tuple[Effect, ...]) -> Step:
    state = Slot(generation=slot.generation, serial=slot.serial, rest=rest, closing=slot.closing)
    return state, (*effects, Quit()) if slot.closing else effects


def _fail(slot: Slot, cause: Cause, exit_: Exit | None) -> tuple[Effect, ...]:
    return () if slot.turn is None else (Fail(slot.turn, cause, exit_, confirmed=True),)
