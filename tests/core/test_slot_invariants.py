"""Random histories of the slot with a faithful runtime round it: what must hold at every step."""

from collections import deque
from dataclasses import dataclass
from typing import assert_never

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from modeld.daemon.contract.exit import Cause, Exit, ExitKind
from modeld.daemon.contract.model import Config, Plan
from modeld.daemon.core import effects as do
from modeld.daemon.core import events as saw
from modeld.daemon.core.ledger import Ledger
from modeld.daemon.core.slot import FREE, step
from modeld.daemon.core.state import Phase, Slot

CONFIG = Config(ctx=512, gpu_layers=0, threads=1, batch=64, kv_type="f16", flash_attn=False)
PLANS = [
    Plan(model=name, backend="echo", path=f"/{name}", file_id=name, config=CONFIG)
    for name in ("a", "b")
]
EXITS = [
    Exit(ExitKind.CODE, 0),
    Exit(ExitKind.CODE, 1),
    Exit(ExitKind.SIGNAL, 11),
    Exit(ExitKind.SIGNAL, 15),
    Exit(ExitKind.SIGNAL, 9),
    Exit(ExitKind.UNKNOWN),
]
CLOSE_AFTER = 8
"""Requests before a history may end with the daemon's own end: after that little can happen."""

Request = saw.Wanted | saw.StopWanted


@dataclass
class Worker:
    """A process as far as the slot can tell: what it was told, and what it may still say."""

    serial: int
    is_ready: bool = False
    is_leaving: bool = False
    turn: str | None = None


class Histories(RuleBasedStateMachine):
    """Feeds ``step`` as the runtime does, performs the effects, and keeps its own books."""

    def __init__(self) -> None:
        super().__init__()
        self.slot = Slot()
        self.worker: Worker | None = None
        self.ledger = Ledger()
        self.timer: tuple[int, do.Timer] | None = None
        self.queue: deque[str] = deque()
        self.requests: dict[str, Request] = {}
        self.outcomes: dict[str, do.Effect] = {}
        self.unconfirmed_turns: set[str] = set()
        self.generations: list[int] = [0]
        self.may_start = True
        self.may_offer = False
        self.is_over = False
        self.count = 0

    # --- the runtime ---------------------------------------------------------------------------

    def feed(self, *events: saw.Event) -> None:
        """The events, what follows from them, and then the queue, one offer at a time."""
        waiting = deque(events)
        for _ in range(1000):
            if waiting:
                self.once(waiting.popleft(), waiting)
            elif self.may_offer and self.queue:
                self.may_offer = False
                who = self.queue.popleft()
                waiting.append(self.requests[who])
            else:
                self.may_offer = False
                return
        raise AssertionError("offers do not come to an end")

    def once(self, event: saw.Event, then: deque[saw.Event]) -> None:
        before = self.slot
        self.slot, effects = step(self.slot, event)
        exited = isinstance(event, saw.WorkerExited) and event.serial == before.serial
        assert self.slot.generation >= before.generation
        if self.slot.generation != before.generation:
            assert isinstance(event, saw.WorkerReady | saw.WorkerExited)
            self.generations.append(self.slot.generation)
        told: set[str] = set()
        for effect in effects:
            if isinstance(effect, do.Settle):
                assert effect.confirmed == exited
                self.check_end(effect)
            if isinstance(effect, do.Retire):
                assert exited
            told |= self.perform(effect, then)
        for effect in effects:
            if isinstance(effect, do.Settle) and effect.ended.turn is not None:
                over = told | self.unconfirmed_turns
                assert effect.ended.turn in over, "an end names a turn that goes on"

    def check_end(self, settle: do.Settle) -> None:
        ended = settle.ended
        assert ended.serial == self.slot.serial or settle.confirmed
        assert (ended.exit is not None) == settle.confirmed
        assert ended.generation_before <= ended.generation_after == self.slot.generation
        assert settle.late <= settle.confirmed
        if settle.confirmed:
            assert self.ledger.charged == 0, "the charge is dropped before anybody is told"
        if settle.late and ended.turn is not None:
            assert ended.turn in self.unconfirmed_turns

    def perform(self, effect: do.Effect, then: deque[saw.Event]) -> set[str]:
        """Do it; who was given a terminal outcome by it."""
        match effect:
            case do.Spawn(serial=serial):
                assert self.worker is None, "two workers"
                self.timer = None
                if self.may_start:
                    self.ledger.charge(serial, 1)
                    self.worker = Worker(serial)
                else:
                    self.may_start = True
                    then.append(saw.NeverStarted(serial))
            case do.TellToLeave(serial=serial) | do.Signal(serial=serial):
                self.living(serial).is_leaving = True
            case do.Arm(serial=serial, timer=timer):
                self.living(serial)
                assert timer is self.slot.timer
                self.timer = (serial, timer)
            case do.Run(serial=serial, turn=turn):
                worker = self.living(serial)
                assert worker.is_ready
                assert worker.turn is None, "two turns at once"
                worker.turn = turn
            case do.CancelTurn(serial=serial, turn=turn):
                assert self.living(serial).turn == turn
            case do.Retire(serial=serial):
                self.ledger.retire(serial)
            case do.Loaded(turn=who) | do.Finish(turn=who):
                return {self.tell(who, effect)}
            case do.Fail(turn=who, confirmed=confirmed):
                if not confirmed:
                    self.unconfirmed_turns.add(who)
                return {self.tell(who, effect)}
            case do.Refuse(who=who) | do.Answer(who=who):
                return {self.tell(who, effect)}
            case do.Settle(waiters=waiters):
                return {self.tell(who, effect) for who in waiters}
            case do.Wait(who=who):
                assert who in self.requests
                assert who not in self.outcomes
                assert who not in self.queue
                self.queue.append(who)
            case do.Offer():
                assert self.slot.phase in FREE
                self.may_offer = True
            case do.TurnAway():
                while self.queue:
                    self.tell(self.queue.popleft(), effect)
            case do.Quit():
                assert self.worker is None, "the daemon leaves a worker behind"
                assert not self.queue
                self.is_over = True
            case _:
                assert_never(effect)
        return set()

    def living(self, serial: int) -> Worker:
        assert self.worker is not None
        assert self.worker.serial == serial
        return self.worker

    def tell(self, who: str, outcome: do.Effect) -> str:
        assert who in self.requests
        assert who not in self.outcomes, f"{who} was told {self.outcomes[who]} before"
        self.outcomes[who] = outcome
        return who

    def new(self, request: Request) -> None:
        who = request.turn if isinstance(request, saw.Wanted) else request.who
        assert who is not None
        self.requests[who] = request
        self.feed(request)

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # --- what clients do -----------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.feed()

    @rule(
        plan=st.sampled_from(PLANS),
        transient=st.booleans(),
        switch=st.sampled_from([None, True, False]),
        may_wait=st.sampled_from([True, True, True, False]),
        fits=st.sampled_from([True, True, True, False]),
    )
    def gen(
        self, plan: Plan, transient: bool, switch: bool | None, may_wait: bool, fits: bool
    ) -> None:
        who = self.name("gen")
        self.new(
            saw.Wanted(
                who,
                plan,
                runs=True,
                fits=fits,
                transient=transient,
                switch=switch,
                may_wait=may_wait,
            )
        )

    @rule(
        plan=st.sampled_from(PLANS),
        pinned=st.booleans(),
        switch=st.booleans(),
        may_wait=st.booleans(),
        if_generation=st.sampled_from([None, None, 0, 1, 3]),
    )
    def load(
        self, plan: Plan, pinned: bool, switch: bool, may_wait: bool, if_generation: int | None
    ) -> None:
        self.new(
            saw.Wanted(
                self.name("load"),
                plan,
                runs=False,
                explicit=True,
                pinned=pinned,
                switch=switch,
                may_wait=may_wait,
                if_generation=if_generation,
            )
        )

    @precondition(lambda self: self.worker is not None or self.count < CLOSE_AFTER // 3)
    @rule(cause=st.sampled_from([Cause.UNLOAD, Cause.REAP]), may_wait=st.booleans())
    def ask_to_stop(self, cause: Cause, may_wait: bool) -> None:
        may_wait = may_wait and cause is Cause.UNLOAD
        self.new(saw.StopWanted(cause, self.name("stop"), may_wait=may_wait))

    @precondition(lambda self: self.worker is not None or self.count < CLOSE_AFTER // 3)
    @rule(
        cause=st.sampled_from([Cause.KILL, Cause.UNLOAD]),
        if_generation=st.sampled_from([None, None, 0, 2]),
    )
    def stop_hard(self, cause: Cause, if_generation: int | None) -> None:
        who = self.name("kill")
        self.new(saw.StopWanted(cause, who, hard=True, if_generation=if_generation))

    @rule(cause=st.sampled_from([Cause.KILL, Cause.DEADLINE]), data=st.data())
    def end_a_turn(self, cause: Cause, data: st.DataObject) -> None:
        turns = [r.turn for r in self.requests.values() if isinstance(r, saw.Wanted)]
        if turns:
            turn = data.draw(st.sampled_from(turns[-6:]))
            who = self.name("end")
            self.new(saw.StopWanted(cause, who, hard=True, turn=turn))

    @precondition(lambda self: self.count >= CLOSE_AFTER)
    @rule(hard=st.booleans(), by=st.sampled_from(["request", "signal", "vacancy"]))
    def end_the_daemon(self, hard: bool, by: str) -> None:
        match by:
            case "request":
                self.new(saw.StopWanted(Cause.STOP, self.name("quit"), hard=hard))
            case "signal":
                self.feed(saw.StopWanted(Cause.STOP, hard=hard))
            case _:
                self.feed(saw.Vacant())

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """As the runtime: what waits leaves the queue, the rest is the slot's to end."""
        open_ = [who for who in self.requests if who not in self.outcomes]
        if not open_:
            return
        who = data.draw(st.sampled_from(open_))
        if who in self.queue:
            self.queue.remove(who)
            self.outcomes[who] = do.Refuse(who, None)  # type: ignore[arg-type]
        elif isinstance(self.requests[who], saw.Wanted):
            self.feed(saw.CancelWanted(who))

    @precondition(lambda self: self.worker is None and not self.is_over)
    @rule(plan=st.sampled_from(PLANS))
    def begin_a_turn(self, plan: Plan) -> None:
        """The usual course, so that histories get beyond their beginning."""
        self.new(saw.Wanted(self.name("turn"), plan, runs=True))
        self.worker_goes_on()

    @precondition(lambda self: self.slot.phase is Phase.READY)
    @rule()
    def begin_a_switch(self) -> None:
        resident = self.slot.resident
        assert resident is not None
        (other,) = [plan for plan in PLANS if plan != resident.plan]
        self.new(saw.Wanted(self.name("switch"), other, runs=True, switch=True))

    @rule()
    def run_out_of_processes(self) -> None:
        """The next worker cannot be made."""
        self.may_start = False

    # --- what the worker and time do -----------------------------------------------------------

    @precondition(lambda self: self.worker is not None)
    @rule()
    def worker_goes_on(self) -> None:
        """What a healthy worker says next, if anything."""
        worker = self.worker
        if worker is None:
            return
        if not worker.is_ready:
            worker.is_ready = True
            self.feed(saw.WorkerReady(worker.serial))
        elif worker.turn is not None:
            turn, worker.turn = worker.turn, None
            self.feed(saw.TurnEnded(worker.serial, turn))

    @precondition(
        lambda self: (
            self.worker is not None and not self.worker.is_ready and not self.worker.is_leaving
        )
    )
    @rule()
    def worker_refuses_the_load(self) -> None:
        assert self.worker is not None
        self.worker.is_leaving = True
        self.feed(saw.LoadRefused(self.worker.serial))

    @precondition(lambda self: self.worker is not None)
    @rule(leaving=st.booleans())
    def worker_breaks(self, leaving: bool) -> None:
        assert self.worker is not None
        self.worker.is_leaving |= leaving
        self.feed(saw.WorkerBroken(self.worker.serial, leaving=leaving))

    @precondition(lambda self: self.worker is not None)
    @rule(exit_=st.sampled_from(EXITS))
    def worker_exits(self, exit_: Exit) -> None:
        worker, self.worker = self.worker, None
        assert worker is not None
        self.feed(saw.WorkerExited(worker.serial, exit_))

    @precondition(lambda self: self.worker is not None and self.worker.serial > 1)
    @rule(exit_=st.sampled_from(EXITS))
    def an_earlier_worker_is_heard_of(self, exit_: Exit) -> None:
        """S6."""
        assert self.worker is not None
        before = self.slot
        old = self.worker.serial - 1
        self.feed(
            saw.WorkerReady(old), saw.WorkerExited(old, exit_), saw.TimerExpired(old, do.Timer.IDLE)
        )
        assert self.slot == before

    @precondition(lambda self: self.timer is not None)
    @rule()
    def time_passes(self) -> None:
        assert self.timer is not None
        (serial, timer), self.timer = self.timer, None
        self.feed(saw.TimerExpired(serial, timer))

    # --- what holds ----------------------------------------------------------------------------

    @invariant()
    def a_worker_exists_exactly_if_the_slot_is_not_empty(self) -> None:
        assert (self.worker is None) == (self.slot.phase is Phase.EMPTY)
        if self.worker is not None:
            assert self.worker.serial == self.slot.serial

    @invariant()
    def a_charge_exists_exactly_if_a_worker_is_not_proven_gone(self) -> None:
        assert self.ledger.charged == (self.worker is not None)

    @invariant()
    def generations_rise_one_by_one(self) -> None:
        assert self.generations == list(range(len(self.generations)))

    @invariant()
    def nobody_waits_for_a_slot_at_rest(self) -> None:
        if self.slot.phase in FREE:
            assert not self.queue
            assert self.holders() == set()

    @invariant()
    def every_open_request_is_in_exactly_one_hand(self) -> None:
        """It waits, or the slot has it; then something is armed or will be seen that moves it."""
        open_ = {who for who in self.requests if who not in self.outcomes}
        assert open_ == set(self.queue) | self.holders()
        assert not set(self.queue) & self.holders()

    @invariant()
    def a_stop_always_has_a_next_step(self) -> None:
        if self.slot.phase is Phase.STOPPING:
            assert self.timer is not None
            assert self.timer == (self.slot.serial, self.slot.timer)
        if self.slot.stopping is not None and self.slot.stopping.waiters:
            assert self.timer is not None

    @invariant()
    def a_closing_slot_quits_when_it_is_empty(self) -> None:
        assert self.is_over == (self.slot.closing and self.slot.phase is Phase.EMPTY)

    def holders(self) -> set[str]:
        """Whom the slot owes an answer."""
        slot = self.slot
        held = set() if slot.stopping is None else set(slot.stopping.waiters)
        if slot.upcoming is not None:
            held.add(slot.upcoming.turn)
        return held if slot.turn is None else held | {slot.turn}

    def teardown(self) -> None:
        """Let everything end by itself: then everybody was told, once."""
        for _ in range(10 * len(self.requests) + 50):
            if self.slot.phase is Phase.UNCONFIRMED:
                self.worker_exits(Exit(ExitKind.SIGNAL, 9))
            elif self.timer is not None and self.timer[1] is not do.Timer.IDLE:
                self.time_passes()
            elif self.worker is not None and self.slot.phase not in FREE:
                self.worker_goes_on()
            else:
                break
        assert not self.queue
        assert set(self.outcomes) == set(self.requests)


Histories.TestCase.settings = settings(deadline=None, max_examples=250, stateful_step_count=50)
TestHistories = Histories.TestCase
