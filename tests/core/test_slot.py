"""The slot's whole phase x event grid, then its stories."""

import dataclasses

import pytest

from modeld.daemon.contract.errors import ErrorCode
from modeld.daemon.contract.exit import AckStatus, Cause, Exit, ExitKind
from modeld.daemon.contract.model import Config, Plan
from modeld.daemon.core import effects as do
from modeld.daemon.core import events as saw
from modeld.daemon.core.slot import LEGAL, IllegalEventError, step
from modeld.daemon.core.state import Phase, Slot

CONFIG = Config(ctx=512, gpu_layers=0, threads=1, batch=64, kv_type="f16", flash_attn=False)


def plan(name: str = "a") -> Plan:
    return Plan(model=name, backend="echo", path=f"/{name}", file_id=name, config=CONFIG)


def gen(turn: str = "t1", model: str = "a", **options: object) -> saw.Wanted:
    return saw.Wanted(turn, plan(model), runs=True, **options)  # type: ignore[arg-type]


def load(turn: str = "l1", model: str = "a", **options: object) -> saw.Wanted:
    options = {"explicit": True, "may_wait": False, "switch": True, **options}
    return saw.Wanted(turn, plan(model), runs=False, **options)  # type: ignore[arg-type]


SEGV = Exit(ExitKind.SIGNAL, 11)
KILLED = Exit(ExitKind.SIGNAL, 9)
LEFT = Exit(ExitKind.CODE, 0)


def after(*events: saw.Event, start: Slot | None = None) -> tuple[Slot, tuple[do.Effect, ...]]:
    """The slot after the events, and the effects of the last of them."""
    slot, effects = start or Slot(), ()
    for event in events:
        slot, effects = step(slot, event)
    return slot, effects


def state_of(*events: saw.Event, start: Slot | None = None) -> Slot:
    return after(*events, start=start)[0]


READY = (load(), saw.WorkerReady(1))
BUSY = (gen(), saw.WorkerReady(1))
TERMED = (*BUSY, saw.StopWanted(Cause.KILL, who="k", hard=True))
UNSEEN = (*TERMED, saw.TimerExpired(1, do.Timer.TERM), saw.TimerExpired(1, do.Timer.KILL))

PHASES: dict[Phase, Slot] = {
    Phase.EMPTY: Slot(),
    Phase.LOADING: state_of(gen()),
    Phase.READY: state_of(*READY),
    Phase.BUSY: state_of(*BUSY),
    Phase.STOPPING: state_of(*TERMED),
    Phase.UNCONFIRMED: state_of(*UNSEEN),
}


def events_for(slot: Slot) -> list[saw.Event]:
    """Each kind of event, made to fit this slot's worker and turn."""
    serial = slot.serial
    return [
        gen("other"),
        load("other"),
        gen("other", model="b", switch=True),
        saw.StopWanted(Cause.KILL, who="w", hard=True),
        saw.StopWanted(Cause.UNLOAD, who="w"),
        saw.StopWanted(Cause.REAP, who="w"),
        saw.StopWanted(Cause.STOP, who="w"),
        saw.CancelWanted(slot.turn or "nobody"),
        saw.Vacant(),
        *(saw.TimerExpired(serial, timer) for timer in do.Timer),
        saw.WorkerReady(serial),
        saw.LoadRefused(serial),
        saw.NeverStarted(serial),
        saw.TurnEnded(serial, slot.turn or "nobody"),
        saw.WorkerBroken(serial),
        saw.WorkerBroken(serial, leaving=True),
        saw.WorkerExited(serial, KILLED),
        saw.WorkerExited(serial, SEGV),
    ]


GRID = [
    pytest.param(slot, event, id=f"{phase}-{index}-{type(event).__name__}")
    for phase, slot in PHASES.items()
    for index, event in enumerate(events_for(slot))
]


def test_every_phase_was_reached_as_named() -> None:
    assert {phase: slot.phase for phase, slot in PHASES.items()} == {p: p for p in Phase}


def test_every_phase_lists_its_events() -> None:
    """Written out once more: a table that is its own witness would prove nothing."""
    wishes = {saw.Wanted, saw.StopWanted, saw.CancelWanted, saw.Vacant, saw.TimerExpired}
    words = {saw.WorkerReady, saw.LoadRefused, saw.TurnEnded, saw.WorkerBroken}
    end = {saw.WorkerBroken, saw.WorkerExited}
    assert {
        Phase.EMPTY: wishes,
        Phase.LOADING: wishes | end | {saw.WorkerReady, saw.LoadRefused, saw.NeverStarted},
        Phase.READY: wishes | end,
        Phase.BUSY: wishes | end | {saw.TurnEnded},
        Phase.STOPPING: wishes | end | words,
        Phase.UNCONFIRMED: wishes | end | words,
    } == LEGAL


@pytest.mark.parametrize(("slot", "event"), GRID)
def test_grid_accepts_exactly_what_is_legal(slot: Slot, event: saw.Event) -> None:
    before = dataclasses.replace(slot)
    if type(event) in LEGAL[slot.phase]:
        after_, effects = step(slot, event)
        assert isinstance(after_, Slot)
        assert isinstance(effects, tuple)
    else:
        with pytest.raises(IllegalEventError):
            step(slot, event)
    assert slot == before


@pytest.mark.parametrize(("slot", "event"), GRID)
def test_s4_only_a_collected_exit_empties_a_slot_that_had_a_worker(
    slot: Slot, event: saw.Event
) -> None:
    """NeverStarted is the one other way: there never was a process whose exit could be missing."""
    if slot.phase is Phase.EMPTY or type(event) not in LEGAL[slot.phase]:
        return
    state, effects = step(slot, event)
    ended = isinstance(event, saw.WorkerExited | saw.NeverStarted)
    if state.phase is Phase.EMPTY:
        assert ended
    assert any(isinstance(e, do.Retire) for e in effects) == isinstance(event, saw.WorkerExited)


@pytest.mark.parametrize(("slot", "event"), GRID)
def test_s7_the_charge_is_dropped_before_anybody_is_told(slot: Slot, event: saw.Event) -> None:
    if type(event) not in LEGAL[slot.phase]:
        return
    kinds = [type(effect) for effect in step(slot, event)[1]]
    confirmed = [
        index
        for index, effect in enumerate(step(slot, event)[1])
        if isinstance(effect, do.Settle) and effect.confirmed
    ]
    for index in confirmed:
        assert do.Retire in kinds[:index]
        assert not {do.Fail, do.Finish, do.Spawn} & set(kinds[:index])


@pytest.mark.parametrize(("slot", "event"), GRID)
def test_a_new_worker_is_only_made_when_there_is_none(slot: Slot, event: saw.Event) -> None:
    if type(event) not in LEGAL[slot.phase]:
        return
    _, effects = step(slot, event)
    if any(isinstance(effect, do.Spawn) for effect in effects):
        assert slot.phase is Phase.EMPTY or isinstance(event, saw.WorkerExited)


@pytest.mark.parametrize(("slot", "event"), GRID)
def test_s6_events_of_an_earlier_worker_change_nothing(slot: Slot, event: saw.Event) -> None:
    if not hasattr(event, "serial"):
        return
    stale = dataclasses.replace(event, serial=slot.serial - 1)
    assert step(slot, stale) == (slot, ())


@pytest.mark.parametrize("phase", list(Phase))
def test_a_timer_that_is_not_the_armed_one_changes_nothing(phase: Phase) -> None:
    slot = PHASES[phase]
    for timer in do.Timer:
        if timer is not slot.timer:
            assert step(slot, saw.TimerExpired(slot.serial, timer)) == (slot, ())


# --- stories --------------------------------------------------------------------------------


def test_first_gen_loads_then_runs() -> None:
    slot, effects = after(gen())
    assert (slot.name, effects) == ("Loading", (do.Spawn(1, plan(), safe_mode=False),))
    slot, effects = after(saw.WorkerReady(1), start=slot)
    assert (slot.name, slot.generation, effects) == ("Busy", 1, (do.Run(1, "t1"),))
    slot, effects = after(saw.TurnEnded(1, "t1"), start=slot)
    assert slot.name == "Ready"
    assert effects == (do.Finish("t1"), do.Arm(1, do.Timer.IDLE), do.Offer())


def test_second_load_of_the_same_keeps_worker_and_generation() -> None:
    slot, effects = after(*BUSY, saw.TurnEnded(1, "t1"), load("l2", pinned=True))
    assert (slot.generation, slot.serial) == (1, 1)
    assert slot.wanted is not None
    assert (slot.wanted.explicit, slot.wanted.pinned) == (True, True)
    assert effects[0] == do.Loaded("l2", already=True)


def test_load_of_the_resident_succeeds_while_it_runs_a_turn() -> None:
    slot, effects = after(*BUSY, load("l2"))
    assert slot.phase is Phase.BUSY
    assert effects == (do.Loaded("l2", already=True),)


def test_load_of_another_while_busy_is_refused_and_gen_waits() -> None:
    _, effects = after(*BUSY, load("l2", model="b"))
    assert effects == (do.Refuse("l2", ErrorCode.MODEL_BUSY),)
    _, effects = after(*BUSY, gen("t2", model="b"))
    assert effects == (do.Wait("t2"),)


def test_implicit_resident_gives_way_and_explicit_one_does_not() -> None:
    implicit = state_of(*BUSY, saw.TurnEnded(1, "t1"))
    slot, effects = after(gen("t2", model="b"), start=implicit)
    assert slot.name == "Switching"
    assert effects == (do.TellToLeave(1), do.Arm(1, do.Timer.LEAVE))
    _, effects = after(gen("t2", model="b"), start=state_of(*READY))
    assert effects == (do.Refuse("t2", ErrorCode.MODEL_SWITCH_REQUIRED), do.Offer())
    _, effects = after(gen("t2", model="b", switch=False), start=implicit)
    assert effects[0] == do.Refuse("t2", ErrorCode.MODEL_SWITCH_REQUIRED)


def test_switch_spawns_only_after_the_exit_and_adds_two() -> None:
    slot = state_of(*READY, gen("t2", model="b", switch=True))
    slot, effects = after(saw.WorkerExited(1, LEFT), start=slot)
    assert [type(e) for e in effects] == [do.Retire, do.Settle, do.Spawn]
    assert (slot.name, slot.generation) == ("Switching", 2)
    slot, _ = after(saw.WorkerReady(2), start=slot)
    assert (slot.name, slot.generation) == ("Busy", 3)


def test_failed_switch_adds_one_and_leaves_nothing() -> None:
    slot = state_of(*READY, gen("t2", model="b", switch=True), saw.WorkerExited(1, LEFT))
    slot = state_of(saw.LoadRefused(2), saw.WorkerExited(2, Exit(ExitKind.CODE, 1)), start=slot)
    assert (slot.name, slot.generation, slot.wanted) == ("Failed", 2, None)


def test_what_does_not_fit_evicts_nobody() -> None:
    ready = state_of(*READY)
    slot, effects = after(load("l2", model="b", fits=False), start=ready)
    assert slot == ready
    assert effects == (do.Refuse("l2", ErrorCode.INSUFFICIENT_MEMORY), do.Offer())
    assert after(gen(fits=False))[1][0] == do.Refuse("t1", ErrorCode.INSUFFICIENT_MEMORY)


def test_kill_names_both_signals_in_its_ack() -> None:
    slot, effects = after(*TERMED, saw.TimerExpired(1, do.Timer.TERM))
    assert effects == (do.Signal(1, "KILL"), do.Arm(1, do.Timer.KILL))
    slot, effects = after(saw.WorkerExited(1, KILLED), start=slot)
    settle = next(e for e in effects if isinstance(e, do.Settle))
    assert settle.waiters == ("k",)
    assert settle.confirmed
    assert settle.ended == do.Ended(1, Cause.KILL, KILLED, "t1", 1, 2, ("TERM", "KILL"))
    assert do.Fail("t1", Cause.KILL, KILLED, confirmed=True) in effects


def test_kill_of_an_inference_that_does_not_run_touches_nothing() -> None:
    busy = state_of(*BUSY)
    slot, effects = after(saw.StopWanted(Cause.KILL, "k", hard=True, turn="t0"), start=busy)
    assert slot == busy
    assert effects == (do.Refuse("k", ErrorCode.INFERENCE_NOT_ACTIVE),)


def test_unseen_exit_stays_charged_blocks_loads_and_is_upgraded_late() -> None:
    slot, effects = after(*UNSEEN)
    assert slot.name == "Unconfirmed"
    assert [type(e) for e in effects] == [do.Settle, do.Fail]
    assert not any(isinstance(e, do.Retire) for e in effects)
    _, refused = after(gen("t2"), start=slot)
    assert refused == (do.Refuse("t2", ErrorCode.TERMINATION_UNCONFIRMED),)
    slot, again = after(saw.StopWanted(Cause.KILL, "k2", hard=True), start=slot)
    assert again == (do.Signal(1, "KILL"), do.Arm(1, do.Timer.KILL))
    slot, joined = after(saw.StopWanted(Cause.KILL, "k3", hard=True), start=slot)
    assert joined == ()
    slot, told = after(saw.TimerExpired(1, do.Timer.KILL), start=slot)
    assert [e.waiters for e in told if isinstance(e, do.Settle)] == [("k2", "k3")]
    slot, late = after(saw.WorkerExited(1, KILLED), start=slot)
    settle = next(e for e in late if isinstance(e, do.Settle))
    assert (settle.late, settle.confirmed, settle.ended.turn) == (True, True, "t1")
    assert slot.name == "Empty"


def test_unseen_exit_of_a_switch_fails_the_one_that_was_next() -> None:
    slot = state_of(*READY, gen("t2", model="b", switch=True))
    for timer in (do.Timer.LEAVE, do.Timer.TERM):
        slot = state_of(saw.TimerExpired(1, timer), start=slot)
    _, effects = after(saw.TimerExpired(1, do.Timer.KILL), start=slot)
    assert do.Refuse("t2", ErrorCode.TERMINATION_UNCONFIRMED) in effects


def test_unload_spares_a_turn_unless_forced() -> None:
    _, effects = after(*BUSY, saw.StopWanted(Cause.UNLOAD, "u"))
    assert effects == (do.Refuse("u", ErrorCode.MODEL_BUSY),)
    _, effects = after(*BUSY, saw.StopWanted(Cause.UNLOAD, "u", may_wait=True))
    assert effects == (do.Wait("u"),)
    slot, _ = after(*BUSY, saw.StopWanted(Cause.UNLOAD, "u", hard=True))
    assert slot.name == "Unloading"


def test_unload_escalates_from_asking_to_killing() -> None:
    slot, effects = after(*READY, saw.StopWanted(Cause.UNLOAD, "u"))
    assert effects[0] == do.TellToLeave(1)
    slot, effects = after(saw.TimerExpired(1, do.Timer.LEAVE), start=slot)
    assert effects[0] == do.Signal(1, "TERM")
    _, effects = after(saw.TimerExpired(1, do.Timer.TERM), start=slot)
    assert effects[0] == do.Signal(1, "KILL")


def test_kill_during_a_polite_unload_does_not_wait_for_politeness() -> None:
    slot = state_of(*READY, saw.StopWanted(Cause.UNLOAD, "u"))
    slot, effects = after(saw.StopWanted(Cause.KILL, "k", hard=True), start=slot)
    assert effects[0] == do.Signal(1, "TERM")
    _, effects = after(saw.WorkerExited(1, KILLED), start=slot)
    assert next(e for e in effects if isinstance(e, do.Settle)).waiters == ("u", "k")


def test_reap_spares_the_busy_and_the_pinned() -> None:
    spared = do.Answer("r", AckStatus.NOT_IDLE, Cause.REAP)
    reap = saw.StopWanted(Cause.REAP, "r")
    assert after(*BUSY, reap)[1] == (spared,)
    assert after(load(pinned=True), saw.WorkerReady(1), reap)[1] == (spared, do.Offer())
    assert after(reap)[1][0] == do.Answer("r", AckStatus.NOTHING_RESIDENT, Cause.REAP)


def test_idleness_reaps_and_rests_as_idle() -> None:
    slot, effects = after(*READY, saw.TimerExpired(1, do.Timer.IDLE))
    assert effects[0] == do.TellToLeave(1)
    assert state_of(saw.WorkerExited(1, LEFT), start=slot).name == "Idle"


def test_stale_generation_is_refused_without_effect() -> None:
    ready = state_of(*READY)
    for event in (load("x", if_generation=7), saw.StopWanted(Cause.UNLOAD, "x", if_generation=7)):
        slot, effects = after(event, start=ready)
        assert slot == ready
        assert effects[0] == do.Refuse("x", ErrorCode.SLOT_GENERATION_STALE)
    assert after(load("x", if_generation=1), start=ready)[1][0] == do.Loaded("x", already=True)


def test_cancelled_turn_is_asked_to_stop_then_its_worker_is_ended() -> None:
    slot, effects = after(*BUSY, saw.CancelWanted("t1"))
    assert effects == (do.CancelTurn(1, "t1"), do.Arm(1, do.Timer.CANCEL))
    assert step(slot, saw.CancelWanted("t1")) == (slot, ())
    assert state_of(saw.TurnEnded(1, "t1"), start=slot).name == "Ready"
    slot, effects = after(saw.TimerExpired(1, do.Timer.CANCEL), start=slot)
    assert effects[0] == do.Signal(1, "TERM")
    assert slot.stopping is not None
    assert slot.stopping.cause is Cause.CANCEL


def test_cancelled_load_ends_its_worker_and_rests_empty() -> None:
    slot, effects = after(gen(), saw.CancelWanted("t1"))
    assert effects[0] == do.Signal(1, "TERM")
    slot, effects = after(saw.WorkerExited(1, KILLED), start=slot)
    assert slot.name == "Empty"
    assert do.Fail("t1", Cause.CANCEL, KILLED, confirmed=True) in effects


def test_cancelled_successor_of_a_switch_is_never_loaded() -> None:
    slot = state_of(*READY, gen("t2", model="b", switch=True))
    slot, effects = after(saw.CancelWanted("t2"), start=slot)
    assert effects == (do.Fail("t2", Cause.CANCEL, None, confirmed=True),)
    slot, effects = after(saw.WorkerExited(1, LEFT), start=slot)
    assert not any(isinstance(e, do.Spawn) for e in effects)
    assert slot.name == "Empty"


def test_cancel_of_a_stranger_changes_nothing() -> None:
    for slot in PHASES.values():
        assert step(slot, saw.CancelWanted("stranger")) == (slot, ())


def test_native_crash_in_a_load_is_tried_once_more_in_safe_mode() -> None:
    slot, effects = after(gen(), saw.WorkerExited(1, SEGV))
    assert [type(e) for e in effects] == [do.Retire, do.Settle, do.Spawn]
    assert effects[-1] == do.Spawn(2, plan(), safe_mode=True)
    slot, effects = after(saw.WorkerExited(2, SEGV), start=slot)
    assert slot.name == "Failed"
    assert do.Fail("t1", Cause.CRASH, SEGV, confirmed=True) in effects


def test_somebodys_sigkill_in_a_load_is_no_reason_for_safe_mode() -> None:
    slot, _ = after(gen(), saw.WorkerExited(1, KILLED))
    assert slot.name == "Failed"


def test_crash_fails_the_turn_and_never_runs_it_again() -> None:
    slot, effects = after(*BUSY, saw.WorkerExited(1, SEGV))
    assert (slot.name, slot.generation) == ("Failed", 2)
    assert do.Fail("t1", Cause.CRASH, SEGV, confirmed=True) in effects
    assert not any(isinstance(e, do.Spawn | do.Run) for e in effects)


def test_crash_while_idle_is_noticed_and_not_repaired_unasked() -> None:
    slot, effects = after(*READY, saw.WorkerExited(1, KILLED))
    assert (slot.name, slot.generation) == ("Failed", 2)
    assert [type(e) for e in effects] == [do.Retire, do.Settle, do.Offer]


def test_worker_that_breaks_the_protocol_is_ended() -> None:
    assert after(*BUSY, saw.WorkerBroken(1))[1][0] == do.Signal(1, "TERM")
    assert after(*BUSY, saw.WorkerBroken(1, leaving=True))[1] == (do.Arm(1, do.Timer.LEAVE),)


def test_end_of_another_turn_than_the_running_one_is_illegal() -> None:
    with pytest.raises(IllegalEventError):
        after(*BUSY, saw.TurnEnded(1, "t0"))


def test_transient_turn_is_answered_when_its_worker_is_gone() -> None:
    slot, effects = after(gen(transient=True), saw.WorkerReady(1), saw.TurnEnded(1, "t1"))
    assert effects[0] == do.TellToLeave(1)
    slot, effects = after(saw.WorkerExited(1, LEFT), start=slot)
    assert [type(e) for e in effects] == [do.Retire, do.Settle, do.Finish, do.Offer]
    assert slot.name == "Empty"


def test_transient_turn_on_an_idle_implicit_resident_takes_it_along() -> None:
    idle = state_of(*BUSY, saw.TurnEnded(1, "t1"))
    slot, _ = after(gen("t2", transient=True), saw.TurnEnded(1, "t2"), start=idle)
    assert slot.phase is Phase.STOPPING


def test_transient_turn_leaves_an_explicit_resident_alone() -> None:
    slot = state_of(*READY, gen("t2", transient=True), saw.TurnEnded(1, "t2"))
    assert slot.name == "Ready"


def test_process_that_could_not_be_made_leaves_the_slot_failed() -> None:
    slot, effects = after(gen(), saw.NeverStarted(1))
    assert slot.name == "Failed"
    assert effects == (do.Fail("t1", Cause.LOAD_FAILED, None, confirmed=True), do.Offer())


def test_stop_turns_the_queue_away_and_quits_after_the_exit() -> None:
    slot, effects = after(*BUSY, saw.StopWanted(Cause.STOP, "s"))
    assert effects[:2] == (do.TurnAway(), do.TellToLeave(1))
    assert slot.name == "ShuttingDown"
    assert after(gen("t2"), start=slot)[1] == (do.Refuse("t2", ErrorCode.NOT_OWNER),)
    _, effects = after(saw.WorkerExited(1, LEFT), start=slot)
    assert [type(e) for e in effects] == [do.Retire, do.Settle, do.Fail, do.Quit]


def test_stop_during_a_switch_loads_nothing_more() -> None:
    slot = state_of(*READY, gen("t2", model="b", switch=True))
    slot, effects = after(saw.StopWanted(Cause.STOP, "s"), start=slot)
    assert effects[0] == do.Refuse("t2", ErrorCode.NOT_OWNER)
    _, effects = after(saw.WorkerExited(1, LEFT), start=slot)
    assert isinstance(effects[-1], do.Quit)


def test_stop_of_an_empty_slot_quits_at_once() -> None:
    _, effects = after(saw.StopWanted(Cause.STOP, "s"))
    answer = do.Answer("s", AckStatus.NOTHING_RESIDENT, Cause.STOP)
    assert effects == (do.TurnAway(), answer, do.Quit())


def test_kill_during_a_switch_loads_nothing_more() -> None:
    """It once answered with the old worker's exit while the next model was loaded."""
    slot = state_of(*READY, gen("t2", model="b", switch=True))
    slot, effects = after(saw.StopWanted(Cause.KILL, "k", hard=True), start=slot)
    assert effects[0] == do.Fail("t2", Cause.KILL, None, confirmed=True)
    assert do.Signal(1, "TERM") in effects
    _, effects = after(saw.WorkerExited(1, KILLED), start=slot)
    assert [type(e) for e in effects] == [do.Retire, do.Settle, do.Offer]


def test_unload_and_reap_during_a_switch_claim_nothing() -> None:
    slot = state_of(*READY, gen("t2", model="b", switch=True))
    _, effects = after(saw.StopWanted(Cause.UNLOAD, "u"), start=slot)
    assert effects == (do.Refuse("u", ErrorCode.MODEL_BUSY),)
    _, effects = after(saw.StopWanted(Cause.REAP, "r"), start=slot)
    assert effects == (do.Answer("r", AckStatus.NOT_IDLE, Cause.REAP),)


def test_vacancy_ends_only_an_empty_daemon() -> None:
    assert after(saw.Vacant())[1] == (do.TurnAway(), do.Quit())
    ready = state_of(*READY)
    assert step(ready, saw.Vacant()) == (ready, ())


def test_generations_of_a_long_story_are_exact() -> None:
    """Requirements C5."""
    slot = state_of(*READY)
    seen = [slot.generation]
    slot = state_of(
        load("l2", model="b"), saw.WorkerExited(1, LEFT), saw.WorkerReady(2), start=slot
    )
    seen.append(slot.generation)
    kill = saw.StopWanted(Cause.KILL, "k", hard=True)
    slot = state_of(kill, saw.WorkerExited(2, KILLED), start=slot)
    seen.append(slot.generation)
    slot = state_of(load("l3"), saw.WorkerReady(3), start=slot)
    seen.append(slot.generation)
    slot = state_of(saw.WorkerBroken(3, leaving=True), saw.WorkerExited(3, LEFT), start=slot)
    seen.append(slot.generation)
    slot = state_of(saw.StopWanted(Cause.REAP, "r"), start=slot)
    seen.append(slot.generation)
    assert seen == [1, 3, 4, 5, 6, 6]
