"""What the slot decides, brought back to the clients as replies."""

from collections.abc import Callable

from modeld.daemon.contract import pipe, wire
from modeld.daemon.contract.errors import ErrorBody, ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, Cause, Exit
from modeld.daemon.runtime.book import Book
from modeld.daemon.runtime.calls import Call, failure_of, result_of
from modeld.daemon.runtime.clients import Clients
from modeld.daemon.runtime.journal import Journal
from modeld.daemon.runtime.refusals import insufficient_memory, refusal_of
from modeld.daemon.runtime.supervisor import Supervisor
from modeld.daemon.runtime.timers import Timers


class Replies:
    """The supervisor's :class:`Outcomes`: each becomes a reply, or a place in the queue."""

    def __init__(
        self,
        *,
        book: Book,
        supervisor: Supervisor,
        clients: Clients,
        timers: Timers,
        journal: Journal,
        feed_again: Callable[[Call], None],
        on_quit: Callable[[], None],
    ) -> None:
        self._book = book
        self._supervisor = supervisor
        self._clients = clients
        self._timers = timers
        self._journal = journal
        self._feed_again = feed_again
        self._on_quit = on_quit

    def run(self, turn: str) -> pipe.RunTurn:
        """The turn begins now; the order for it."""
        call = self._book.calls[turn]
        supervisor = self._supervisor
        worker = supervisor.worker
        assert worker is not None
        assert isinstance(call.request, wire.Generate)
        assert call.inference is not None
        call.ran_at = self._timers.clock()
        call.worker = worker.id
        call.plan = worker.plan
        if call.offered_at is None:
            call.offered_at = call.ran_at
        call.inference.phase = "prefill"
        self._clients.send(
            call.conversation,
            wire.Start(
                id=call.conversation.id,
                inference_id=turn,
                model=worker.plan.model,
                backend=worker.plan.backend,
                generation=supervisor.slot.generation,
                allocation_id=worker.id.allocation_id,
                worker=worker.id,
                degraded=worker.degraded,
            ),
        )
        return pipe.RunTurn(
            turn=turn,
            task=call.request.task,
            seed=call.seed,
            exact=call.request.task.sampling.seed is not None,
            stream=call.request.stream,
        )

    def loading(self, turn: str) -> None:
        """A worker was started for this request."""
        call = self._book.calls.get(turn)
        if call is not None and call.inference is not None:
            call.inference.phase = "loading"
            if call.offered_at is None:
                call.offered_at = self._timers.clock()

    def report(self, report: pipe.Report) -> None:
        """The worker said something of the running turn."""
        match report:
            case pipe.Prefill(turn=turn, done=done, total=total):
                inference = self._book.calls[turn].inference
                assert inference is not None
                inference.done, inference.total = done, total
            case pipe.Piece(turn=turn, text=text, tokens=tokens):
                self._piece(self._book.calls[turn], text, tokens)
            case pipe.TurnDone(turn=turn):
                self._book.calls[turn].done = report
            case pipe.TurnFailed(turn=turn, error=error):
                self._book.calls[turn].error = error
            case _:
                raise AssertionError(report)

    def _piece(self, call: Call, text: str, tokens: int) -> None:
        inference = call.inference
        assert inference is not None
        if inference.phase != "decode":
            inference.phase, inference.done, inference.total = "decode", None, None
            inference.decode_since = self._timers.clock()
        inference.tokens = tokens
        if not text:
            return
        call.text.append(text)
        if isinstance(call.request, wire.Generate) and call.request.stream:
            conversation = call.conversation
            self._clients.send(conversation, wire.Token(id=conversation.id, seq=0, text=text))

    def load_failed(self, turn: str, error: ErrorBody) -> None:
        """Why the load for this request failed; its failure follows."""
        if turn in self._book.calls:
            self._book.calls[turn].error = error

    def loaded(self, turn: str, *, already: bool) -> None:
        """Answer a load."""
        call = self._book.calls[turn]
        supervisor = self._supervisor
        worker, wanted = supervisor.worker, supervisor.slot.wanted
        assert worker is not None
        assert wanted is not None
        assert worker.id.allocation_id is not None
        offered_at = call.since if call.offered_at is None else call.offered_at
        load_ms = 0.0 if already else (self._timers.clock() - offered_at) * 1000
        self._journal.write("loaded", model=worker.plan.model, pid=worker.id.pid, already=already)
        self._book.end(
            call,
            wire.Loaded(
                id=call.conversation.id,
                model=worker.plan.model,
                backend=worker.plan.backend,
                path=worker.plan.path,
                config=worker.config or worker.plan.config,
                generation=supervisor.slot.generation,
                explicit=wanted.explicit,
                pinned=wanted.pinned,
                already=already,
                allocation_id=worker.id.allocation_id,
                worker=worker.id,
                load_ms=round(load_ms, 3),
                degraded=worker.degraded,
            ),
        )

    def finish(self, turn: str) -> None:
        """Answer a turn that ended."""
        call = self._book.calls[turn]
        now = self._timers.clock()
        if call.error is not None:
            self._book.end(call, call.error)
        elif call.done is not None and call.done.stop_reason == "cancelled":
            failure = failure_of(call, Cause.CANCEL, None, confirmed=True, log=[], now=now)
            self._book.end(call, failure.body())
        else:
            assert call.done is not None
            residency = self._residency()
            degraded = () if self._supervisor.worker is None else self._supervisor.worker.degraded
            self._book.end(call, result_of(call, call.done, residency, degraded, now))

    def _residency(self) -> wire.Residency:
        slot, worker = self._supervisor.slot, self._supervisor.worker
        resident = slot.resident
        retained = resident is not None and worker is not None
        return wire.Residency(
            retained=retained,
            allocation_id=worker.id.allocation_id if retained and worker is not None else None,
            generation=slot.generation,
            explicit=resident is not None and resident.explicit,
        )

    def fail(self, turn: str, cause: Cause, exit_: Exit | None, *, confirmed: bool) -> None:
        """Answer a request whose worker was ended."""
        call = self._book.calls.get(turn)
        if call is None:
            return
        log = self._supervisor.last_words
        now = self._timers.clock()
        failure = failure_of(call, cause, exit_, confirmed=confirmed, log=log, now=now)
        self._journal.write("failed", inference_id=turn, code=failure.code, message=failure.message)
        self._book.end(call, failure.body())

    def refuse(self, who: str, code: ErrorCode) -> None:
        """Answer that it cannot be done now."""
        call = self._book.calls.get(who)
        if call is not None:
            self._book.end(call, self._refusal(call, code).body())

    def _refusal(self, call: Call, code: ErrorCode) -> ModeldError:
        if code is ErrorCode.INSUFFICIENT_MEMORY and call.plan is not None:
            verdict = self._supervisor.accounts.weigh(call.plan.required_bytes, credit=True)
            return insufficient_memory(call.plan, verdict)
        asked = call.plan.model if call.plan is not None else call.choice.name
        return refusal_of(code, self._supervisor.slot, asked)

    def answer(self, who: str, ack: Ack) -> None:
        """Send an ack."""
        self._book.answer(who, ack)

    def settled(self, waiters: tuple[str, ...], turn: str | None, ack: Ack) -> None:
        """A worker's end is known: record it for ``turn``, tell the waiters."""
        if turn is not None:
            if turn in self._book.calls:
                self._book.calls[turn].ack = ack
            self._book.inferences.upgrade(turn, ack)
        for who in waiters:
            self._book.answer(who, ack)

    def wait(self, who: str) -> None:
        """Put the request in the queue."""
        call = self._book.calls[who]
        wait_s = getattr(call.request, "wait_s", 0.0)
        try:
            self._book.queue.push(who, call.since)
        except ModeldError as exc:
            self._book.end(call, exc.body())
            return
        waited = self._timers.clock() - call.since
        self._timers.arm(("wait", who), wait_s - waited, lambda: self._wait_over(call, wait_s))

    def _wait_over(self, call: Call, wait_s: float) -> None:
        if self._book.queue.remove(call.who) is not None:
            refusal = self._refusal(call, ErrorCode.MODEL_BUSY)
            refusal.message = f"waited {wait_s:g} s, and {refusal.message}"
            self._book.end(call, refusal.body())

    def offer(self) -> bool:
        """Feed the next waiting request; whether there was one."""
        while (entry := self._book.queue.pop()) is not None:
            call = self._book.calls[entry.who]
            self._timers.disarm(("wait", call.who))
            if self._is_there(call):
                self._feed_again(call)
                return True
            self._book.close(call)
        return False

    def _is_there(self, call: Call) -> bool:
        """Whether the client still is: only sending to it tells (L3)."""
        conversation = call.conversation
        age_s = self._timers.clock() - call.since
        self._clients.send(
            conversation,
            wire.Progress(
                id=conversation.id, inference_id=call.who, phase="queued", age_s=age_s, position=0
            ),
        )
        return conversation.is_open

    def turn_away(self) -> None:
        """Refuse all that wait."""
        while (entry := self._book.queue.pop()) is not None:
            self.refuse(entry.who, ErrorCode.NOT_OWNER)

    def quit(self) -> None:
        """The slot is empty for good."""
        self._on_quit()
