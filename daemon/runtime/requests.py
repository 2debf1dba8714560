"""What clients ask for, brought to the slot as events.

It must not know what becomes of them.
"""

import contextlib
import secrets
from typing import Any, assert_never

import msgspec

from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorBody, ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, AckStatus, Cause
from modeld.daemon.core import events as saw
from modeld.daemon.core.ack import bare_ack
from modeld.daemon.core.inferences import Inference
from modeld.daemon.runtime.book import UNCONFIRMED, Book, not_started
from modeld.daemon.runtime.calls import Call
from modeld.daemon.runtime.catalog import Catalog
from modeld.daemon.runtime.clients import Clients, Conversation
from modeld.daemon.runtime.refusals import refusal_of
from modeld.daemon.runtime.supervisor import Supervisor
from modeld.daemon.runtime.timers import Timers

Verb = wire.Load | wire.Generate | wire.Kill | wire.Unload | wire.Reap | wire.Stop


class Requests:
    """Turns each request into an event of the slot, when it comes and when its turn comes."""

    def __init__(
        self,
        *,
        book: Book,
        supervisor: Supervisor,
        clients: Clients,
        catalog: Catalog,
        timers: Timers,
    ) -> None:
        self._book = book
        self._supervisor = supervisor
        self._clients = clients
        self._catalog = catalog
        self._timers = timers

    def accept(self, conversation: Conversation, request: Verb) -> None:
        """Take a request in hand; it gets its one terminal reply, now or later (W3)."""
        named = request.inference_id if isinstance(request, wire.Load | wire.Generate) else None
        call = Call(named or secrets.token_hex(4), conversation, request, self._timers.clock())
        try:
            match request:
                case wire.Load() | wire.Generate():
                    self._want(call, request)
                case wire.Kill(inference_id=str(target)):
                    self._book.enter(call)
                    self._kill_inference(call, target, request.if_generation)
                case wire.Kill() | wire.Unload() | wire.Reap() | wire.Stop():
                    self._book.enter(call)
                    self._stop(call)
                case _:
                    assert_never(request)
        except ModeldError as exc:
            self._book.end(call, exc.body())

    def cancel(self, conversation: Conversation) -> None:
        """The client gave the request up, or is gone: it never runs, or stops running (G3, G4)."""
        generation = self._supervisor.slot.generation
        for call in [c for c in self._book.calls.values() if c.conversation is conversation]:
            if self._book.leave_queue(call, Cause.CANCEL, generation) is not None:
                continue
            if call.inference is not None:
                call.ended_by = call.ended_by or Cause.CANCEL
                self._supervisor.feed(saw.CancelWanted(call.who))
            elif not conversation.is_open:
                self._book.close(call)

    def give_up_on(self, conversation: Conversation) -> None:
        """The client does not read: its request ends, others go on (L4)."""
        error = ModeldError(ErrorCode.SLOW_READER, "the answer was not read; it was cancelled")
        for call in self._book.calls.values():
            if call.conversation is conversation:
                call.error = error.body()
        self.cancel(conversation)

    def fail(self, conversation: Conversation, error: ErrorBody) -> None:
        """A bug was met while the conversation was served: what is left of it ends in ``error``."""
        for call in [c for c in self._book.calls.values() if c.conversation is conversation]:
            self._book.queue.remove(call.who)
            self._book.end(call, error)

    def feed_again(self, call: Call) -> None:
        """The call's turn has come: what it needs is worked out anew, as things are now."""
        try:
            if call.inference is None:
                self._stop(call)
            else:
                self._supervisor.feed(self._wanted(call))
        except ModeldError as exc:
            self._book.end(call, exc.body())
            self._supervisor.offer_again()

    def show_progress(self) -> None:
        """A sign of life for each open request; who does not take it is gone (L3)."""
        waiting = enumerate(self._book.queue.entries(), start=1)
        positions = {entry.who: position for position, entry in waiting}
        for call in tuple(self._book.calls.values()):
            if call.conversation.is_open:
                progress = self._progress(call, positions.get(call.who))
                self._clients.send(call.conversation, progress)

    def _progress(self, call: Call, position: int | None) -> wire.Progress:
        inference = call.inference
        phase: Any = "stopping"
        done = total = None
        if position is not None:
            phase = "queued"
        elif inference is not None:
            phase, done, total = inference.phase, inference.done, inference.total
            if phase == "loading" and self._supervisor.worker is not None:
                done, total = round(self._supervisor.worker.load_fraction * 100), 100
        return wire.Progress(
            id=call.conversation.id,
            inference_id=None if inference is None else call.who,
            phase=phase,
            age_s=round(self._timers.clock() - call.since, 3),
            position=position,
            done=done,
            total=total,
        )

    # --- load, generate ----------------------------------------------------------------------

    def _want(self, call: Call, request: wire.Load | wire.Generate) -> None:
        """Find the model first: a missing one is reported even while the slot is busy (B3)."""
        in_view = self._supervisor.slot.in_view
        resident = None if in_view is None else in_view.plan
        path = self._catalog.locate(self._catalog.name_of(request.model, resident))
        name = request.model.name or path
        call.choice = msgspec.structs.replace(request.model, name=name)
        kind = "load"
        if isinstance(request, wire.Generate):
            kind = "stream" if request.stream else "gen"
            seed = request.task.sampling.seed
            call.seed = secrets.randbelow(2**32 - 1) if seed is None else seed
        call.inference = Inference(call.who, kind, name, call.conversation.client_pid, call.since)
        event = self._wanted(call)
        self._book.enter(call)
        if isinstance(request, wire.Generate) and request.deadline_s is not None:
            self._timers.arm(
                ("deadline", call.who), request.deadline_s, lambda: self._deadline(call)
            )
        self._supervisor.feed(event)

    def _wanted(self, call: Call) -> saw.Wanted:
        """The request as the slot understands it, with this moment's plan and admission."""
        request = call.request
        supervisor = self._supervisor
        in_view = supervisor.slot.in_view
        usable = supervisor.accounts.weigh(0, credit=True).usable
        plan = self._catalog.plan(call.choice, None if in_view is None else in_view.plan, usable)
        call.plan = plan
        if call.inference is not None:
            call.inference.model = plan.model
        fits = supervisor.accounts.weigh(plan.required_bytes, credit=True).fits
        if isinstance(request, wire.Load):
            return saw.Wanted(
                turn=call.who,
                plan=plan,
                runs=False,
                fits=fits,
                explicit=True,
                pinned=request.pin,
                ttl_s=request.ttl_s,
                switch=request.switch,
                may_wait=request.wait_s > 0,
                if_generation=request.if_generation,
            )
        assert isinstance(request, wire.Generate)
        return saw.Wanted(
            turn=call.who,
            plan=plan,
            runs=True,
            fits=fits,
            transient=request.transient or supervisor.ttl_of(plan) <= 0,
            switch=request.switch,
            may_wait=request.wait_s > 0,
        )

    def _deadline(self, call: Call) -> None:
        generation = self._supervisor.slot.generation
        if self._book.leave_queue(call, Cause.DEADLINE, generation) is not None:
            return
        call.ended_by = Cause.DEADLINE
        with contextlib.suppress(ModeldError):  # it has just ended in another way
            self._end_serving(call, Cause.DEADLINE, None)

    def _end_serving(self, call: Call, cause: Cause, who: str | None) -> None:
        """End a request that the slot has taken: exactly its worker, if there is one yet (A17)."""
        slot = self._supervisor.slot
        if slot.turn == call.who:
            self._supervisor.feed(saw.StopWanted(cause, who=who, hard=True, turn=call.who))
            return
        if slot.upcoming is None or slot.upcoming.turn != call.who:
            raise refusal_of(ErrorCode.INFERENCE_NOT_ACTIVE, slot, None)
        call.ended_by = cause
        self._supervisor.feed(saw.CancelWanted(call.who))
        if who is not None:
            self._book.answer(who, not_started(call, cause, slot.generation))

    # --- kill, unload, reap, stop --------------------------------------------------------------

    def _kill_inference(self, call: Call, target: str, if_generation: int | None) -> None:
        slot = self._supervisor.slot
        if if_generation and if_generation != slot.generation:
            raise refusal_of(ErrorCode.SLOT_GENERATION_STALE, slot, None)
        victim = self._book.calls.get(target)
        if victim is None or victim.inference is None:
            self._book.answer(call.who, self._past(target))
            return
        ack = self._book.leave_queue(victim, Cause.KILL, slot.generation)
        if ack is not None:
            self._book.answer(call.who, ack)
            return
        self._end_serving(victim, Cause.KILL, call.who)

    def _past(self, target: str) -> Ack:
        """What is known of an inference that is not live: how it ended, or nothing (A19, A21)."""
        finished = self._book.inferences.finished(target, self._timers.clock())
        if finished is not None and finished.ack is not None:
            if finished.ack.status in UNCONFIRMED:
                return finished.ack
            return msgspec.structs.replace(finished.ack, status=AckStatus.ALREADY_TERMINAL)
        status = AckStatus.UNKNOWN if finished is None else AckStatus.ALREADY_TERMINAL
        return bare_ack(status, Cause.KILL, self._supervisor.slot.generation, target)

    def _stop(self, call: Call) -> None:
        """Feed the stop that is wanted, unless it is a reap of what is not idle enough."""
        who = call.who
        match call.request:
            case wire.Kill(if_generation=generation):
                event = saw.StopWanted(Cause.KILL, who, hard=True, if_generation=generation)
            case wire.Unload(force=force, wait_s=wait_s, if_generation=generation):
                event = saw.StopWanted(
                    Cause.UNLOAD, who, hard=force, may_wait=wait_s > 0, if_generation=generation
                )
            case wire.Reap(idle_for_s=wanted, if_generation=generation):
                current = self._supervisor.slot.generation
                if generation in {None, 0, current} and self._is_spared(wanted):
                    self._book.answer(who, bare_ack(AckStatus.NOT_IDLE, Cause.REAP, current))
                    return
                event = saw.StopWanted(Cause.REAP, who, if_generation=generation)
            case wire.Stop(force=force):
                event = saw.StopWanted(Cause.STOP, who, hard=force)
            case _:
                raise AssertionError(call.request)
        self._supervisor.feed(event)

    def _is_spared(self, wanted_s: float | None) -> bool:
        """Whether the resident is idle, but not for so long that a reap may take it."""
        idle_for_s = self._supervisor.idle_for_s()
        if idle_for_s is None:
            return False
        if wanted_s is not None:
            return idle_for_s < wanted_s
        return self._supervisor.ttl_s <= 0 or idle_for_s < self._supervisor.ttl_s
