"""Drives the slot and its worker: what is seen becomes events, effects become deeds (S3).

It must not know what requests say; what concerns them goes to :class:`Outcomes`.
"""

import os
import traceback
from collections import deque
from dataclasses import dataclass
from typing import assert_never

from modeld.daemon.contract import pipe
from modeld.daemon.contract.birth import birth_of
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, Cause, WorkerId
from modeld.daemon.contract.model import Config, Plan
from modeld.daemon.contract.owner import WorkerRecord, write_worker
from modeld.daemon.contract.paths import Root
from modeld.daemon.contract.private import open_private
from modeld.daemon.core import effects as do
from modeld.daemon.core import events as saw
from modeld.daemon.core.ack import ack_of, bare_ack
from modeld.daemon.core.slot import IllegalEventError, step
from modeld.daemon.core.state import Phase, Slot
from modeld.daemon.runtime.accounts import Accounts
from modeld.daemon.runtime.config import Settings
from modeld.daemon.runtime.journal import Journal, rotate, tail
from modeld.daemon.runtime.outcomes import Outcomes
from modeld.daemon.runtime.process import WorkerProcess, spawn_worker
from modeld.daemon.runtime.refusals import insufficient_memory
from modeld.daemon.runtime.safemode import SafeModeRecord
from modeld.daemon.runtime.timers import Timers


@dataclass(slots=True)
class Worker:
    """What is known of the present worker. Times are of the monotonic clock."""

    process: WorkerProcess
    plan: Plan
    id: WorkerId
    log_offset: int
    config: Config | None = None
    degraded: tuple[str, ...] = ()
    rss_bytes: int = 0
    stop_since: float | None = None
    ready_after_ms: float = 0.0
    load_fraction: float = 0.0


class Supervisor:
    """The slot, its worker and its accounts. ``feed`` is the only way to change any of them."""

    def __init__(
        self,
        *,
        owner: str,
        root: Root,
        slot_lock_fd: int,
        settings: Settings,
        accounts: Accounts,
        timers: Timers,
        journal: Journal,
    ) -> None:
        self.slot = Slot()
        self.worker: Worker | None = None
        self.accounts = accounts
        self.last_exit: Ack | None = None
        self.last_error: str | None = None
        self.last_words: list[str] = []
        self.idle_since: float | None = None
        self.empty_since: float | None = timers.clock()
        self._owner = owner
        self._root = root
        self._slot_lock_fd = slot_lock_fd
        self._settings = settings
        self._timers = timers
        self._journal = journal
        self._safe_mode = SafeModeRecord(root.safe_mode_record)
        self._outcomes: Outcomes
        self._events: deque[saw.Event] = deque()
        self._is_running = False
        self._may_offer = False

    def attach(self, outcomes: Outcomes) -> None:
        """Name who hears what becomes of requests; before the first event."""
        self._outcomes = outcomes

    # --- events in ---------------------------------------------------------------------------

    def feed(self, event: saw.Event) -> None:
        """Let an event happen, with all that follows from it, before this returns.

        From within an effect it is queued: effects of two steps are never interleaved.
        """
        self._events.append(event)
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._events or self._next_offer():
                if self._events:
                    self._step(self._events.popleft())
        finally:
            self._is_running = False

    def _next_offer(self) -> bool:
        """One waiting request is fed only when nothing else is left to do: the queue stays fair."""
        if not self._may_offer:
            return False
        self._may_offer = False
        return self._outcomes.offer()

    def offer_again(self) -> None:
        """The one whose turn it was does not need the slot: it is the next one's turn."""
        self._may_offer = True

    def _step(self, event: saw.Event) -> None:
        try:
            self.slot, effects = step(self.slot, event)
        except IllegalEventError as exc:
            # Only a worker can cause one, by reports that make no sense at that moment.
            self._journal.write("protocol_violation", seen=str(exc), serial=self.slot.serial)
            if self.worker is None:
                raise
            self._events.append(saw.WorkerBroken(self.slot.serial))
            return
        if self.slot.phase is not Phase.EMPTY:
            self.empty_since = None
        elif self.empty_since is None:
            self.empty_since = self._timers.clock()
        for effect in effects:
            self._perform(effect)

    def read_worker(self) -> None:
        """Take in what the worker wrote."""
        worker = self.worker
        if worker is None:
            return
        try:
            reports = worker.process.receive()
        except pipe.PipeError as exc:
            self._journal.write("protocol_violation", seen=str(exc), serial=worker.process.serial)
            worker.process.at_eof = True  # nothing that follows can be trusted
            self.feed(saw.WorkerBroken(worker.process.serial))
            return
        for report in reports:
            self._take(worker, report)
        if worker.process.at_eof and self.worker is worker:
            # Mostly its exit is a moment away; one that lives on without its pipe is ended.
            broken = saw.WorkerBroken(worker.process.serial)
            self._timers.arm("eof", self._settings.leave_grace_s, lambda: self.feed(broken))

    def collect_worker(self) -> None:
        """The worker's exit descriptor is readable: take in its last words, then its exit.

        Nothing is offered to a worker that is known to be dead: what its words lead to waits until
        its exit is known too.
        """
        worker = self.worker
        if worker is None or (exit_ := worker.process.collect()) is None:
            return
        self._journal.write(
            "exit", pid=worker.id.pid, model=worker.plan.model, kind=exit_.kind, value=exit_.value
        )
        self._is_running = True
        try:
            for report in worker.process.drain():
                self._take(worker, report)
        finally:
            self._is_running = False
        self.feed(saw.WorkerExited(worker.process.serial, exit_))

    def give_up_worker(self) -> None:
        """A bug was met while it was served: it is ended, which is a known state."""
        if self.worker is not None:
            self.feed(saw.WorkerBroken(self.worker.process.serial))

    def _take(self, worker: Worker, report: pipe.Report) -> None:
        serial = worker.process.serial
        match report:
            case pipe.LoadProgress(fraction=fraction):
                worker.load_fraction = fraction
            case pipe.Ready():
                worker.config = report.config
                worker.degraded = (*worker.plan.notes, *report.degraded)
                if self.slot.safe_mode:
                    self._safe_mode.remember(worker.plan.backend)
                self.last_error = None
                self.idle_since = self._timers.clock()
                self.feed(saw.WorkerReady(serial))
            case pipe.LoadFailed(error=error):
                if self.slot.turn is not None:
                    self._outcomes.load_failed(self.slot.turn, error)
                self.feed(saw.LoadRefused(serial))
            case pipe.Prefill() | pipe.Piece():
                if report.turn == self.slot.turn:
                    self._outcomes.report(report)
            case pipe.TurnDone(turn=turn) | pipe.TurnFailed(turn=turn):
                if turn == self.slot.turn:
                    self._outcomes.report(report)
                if isinstance(report, pipe.TurnFailed) and report.fatal:
                    self.feed(saw.WorkerBroken(serial, leaving=True))
                else:
                    self.idle_since = self._timers.clock()
                    self.feed(saw.TurnEnded(serial, turn))
            case _:
                assert_never(report)

    # --- effects out -------------------------------------------------------------------------

    def _perform(self, effect: do.Effect) -> None:
        match effect:
            case do.Spawn():
                self._spawn(effect)
            case do.TellToLeave():
                self._note_stop()
                self._order(pipe.Leave())
            case do.Signal(name=name):
                self._note_stop()
                self._journal.write("signal", name=name, serial=effect.serial)
                if self.worker is not None:
                    self.worker.process.signal(name)
            case do.Arm(timer=timer):
                self._arm(effect.serial, timer)
            case do.Run(turn=turn):
                self._order(self._outcomes.run(turn))
            case do.CancelTurn(turn=turn):
                self._order(pipe.CancelTurn(turn=turn))
            case do.Retire(serial=serial):
                self.accounts.ledger.retire(serial)
            case do.Settle():
                self._settle(effect)
            case do.Loaded(turn=turn, already=already):
                if already:
                    self.idle_since = self._timers.clock()
                self._outcomes.loaded(turn, already=already)
            case do.Finish(turn=turn):
                self._outcomes.finish(turn)
            case do.Fail(turn=turn, cause=cause):
                self._outcomes.fail(turn, cause, effect.exit, confirmed=effect.confirmed)
            case do.Refuse(who=who, code=code):
                self._outcomes.refuse(who, code)
            case do.Answer(who=who, status=status, cause=cause):
                self._outcomes.answer(who, bare_ack(status, cause, self.slot.generation))
            case do.Wait(who=who):
                self._outcomes.wait(who)
            case do.Offer():
                self._may_offer = True
            case do.TurnAway():
                self._outcomes.turn_away()
            case do.Quit():
                self._outcomes.quit()
            case _:
                assert_never(effect)

    def _order(self, order: pipe.Order) -> None:
        if self.worker is not None:
            self.worker.process.send(order)

    def _note_stop(self) -> None:
        """Remember when the end began and how much memory was held then."""
        worker = self.worker
        if worker is not None and worker.stop_since is None:
            worker.stop_since = self._timers.clock()
            worker.rss_bytes = worker.process.rss_bytes()

    def _spawn(self, effect: do.Spawn) -> None:
        """E10: what was admitted is weighed again, right before the charge and the process."""
        serial, plan = effect.serial, effect.plan
        turn = self.slot.turn
        try:
            self._admit(plan)
            self.accounts.ledger.charge(serial, plan.required_bytes)
            try:
                self.worker = self._start(serial, plan)
            except Exception:
                self.accounts.ledger.retire(serial)
                raise
        except Exception as exc:  # noqa: BLE001  (no process was made, whatever the reason)
            error = exc if isinstance(exc, ModeldError) else _start_failure(exc)
            self.last_error = error.message
            self._journal.write("refused", code=error.code, model=plan.model, message=error.message)
            if turn is not None:
                self._outcomes.load_failed(turn, error.body())
            self._events.append(saw.NeverStarted(serial))
            return
        if turn is not None:
            self._outcomes.loading(turn)
        safe_mode = effect.safe_mode or self._safe_mode.knows(plan.backend)
        self.worker.process.send(pipe.LoadModel(plan=plan, safe_mode=safe_mode))
        self._journal.write(
            "load",
            model=plan.model,
            backend=plan.backend,
            pid=self.worker.id.pid,
            required_bytes=plan.required_bytes,
            safe_mode=safe_mode,
        )

    def _admit(self, plan: Plan) -> None:
        """Raise ModeldError(insufficient_memory) if the plan does not fit now."""
        verdict = self.accounts.weigh(plan.required_bytes)
        if not verdict.fits:
            raise insufficient_memory(plan, verdict)

    def _start(self, serial: int, plan: Plan) -> Worker:
        rotate(self._root.worker_log)
        log_fd = open_private(self._root.worker_log, os.O_WRONLY | os.O_APPEND)
        try:
            offset = os.fstat(log_fd).st_size
            process = spawn_worker(serial, lock_fd=self._slot_lock_fd, log_fd=log_fd)
        finally:
            os.close(log_fd)
        allocation = f"{self._owner}:{serial}:{process.pid}:{process.start_time:.2f}"
        id_ = WorkerId(pid=process.pid, start_time=process.start_time, allocation_id=allocation)
        try:
            birth = birth_of(process.pid) or ""
            write_worker(self._root.worker_record, WorkerRecord(pid=process.pid, birth=birth))
        except OSError as exc:
            # It is there, so it is supervised; a successor can do without the record.
            self._journal.write("worker_record_failed", pid=process.pid, message=str(exc))
        return Worker(process, plan, id_, offset)

    def _arm(self, serial: int, timer: do.Timer) -> None:
        delay = self._delay_s(timer)
        if delay is None:
            self._timers.disarm("slot")
            return
        self._timers.arm("slot", delay, lambda: self.feed(saw.TimerExpired(serial, timer)))

    def _delay_s(self, timer: do.Timer) -> float | None:
        match timer:
            case do.Timer.IDLE:
                wanted = self.slot.wanted
                ttl_s = self.ttl_s
                return None if ttl_s <= 0 or wanted is None or wanted.pinned else ttl_s
            case do.Timer.CANCEL:
                return self._settings.cancel_grace_s
            case do.Timer.LEAVE:
                return self._settings.leave_grace_s
            case do.Timer.TERM:
                return self._settings.term_grace_s
            case do.Timer.KILL:
                return self._settings.kill_grace_s
            case _:
                assert_never(timer)

    @property
    def ttl_s(self) -> float:
        """The time to live that counts now: the resident's own, else the daemon's."""
        wanted = self.slot.resident
        own = None if wanted is None else wanted.ttl_s
        return self._settings.idle_ttl_s if own is None else own

    def ttl_of(self, plan: Plan) -> float:
        """The time to live that ``plan`` has, or would have when it is resident."""
        resident = self.slot.resident
        if resident is not None and resident.plan.identity() == plan.identity():
            return self.ttl_s
        return self._settings.idle_ttl_s

    def idle_for_s(self) -> float | None:
        """How long the resident has been idle; ``None`` if there is none, or it is in use."""
        if self.slot.phase is not Phase.READY or self.idle_since is None:
            return None
        return self._timers.clock() - self.idle_since

    def _settle(self, effect: do.Settle) -> None:
        """The new state stands and the charge is dropped; only now is anybody told (S7)."""
        worker = self.worker
        assert worker is not None
        now = self._timers.clock()
        since = now if worker.stop_since is None else worker.stop_since
        ack = ack_of(
            effect.ended,
            confirmed=effect.confirmed,
            late=effect.late,
            model=worker.plan.model,
            worker=worker.id,
            elapsed_ms=round((now - since) * 1000, 3),
            memory_returned=worker.rss_bytes or None,
        )
        self.last_exit = ack
        if ack.cause is Cause.CRASH and ack.exit is not None:
            self.last_error = f"the worker of {worker.plan.model} ended by {ack.exit}"
        self._journal.write("ended", ack=ack)
        self.last_words = tail(self._root.worker_log, worker.log_offset)
        if effect.confirmed:
            worker.process.close()
            self.worker = None
            self.idle_since = None
            if effect.ended.cause not in {Cause.CRASH, Cause.LOAD_FAILED}:
                self.last_error = None
        self._outcomes.settled(effect.waiters, effect.ended.turn, ack)


def _start_failure(exc: Exception) -> ModeldError:
    traceback.print_exception(exc)
    return ModeldError(ErrorCode.MODEL_LOAD_FAILED, f"no worker could be started: {exc}")
