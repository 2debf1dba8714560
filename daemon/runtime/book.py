"""The calls that have no terminal reply yet: each is entered once and closed once (W3)."""

import msgspec

from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorBody
from modeld.daemon.contract.exit import Ack, AckStatus, Cause
from modeld.daemon.core.inferences import Inferences
from modeld.daemon.core.queue import Queue
from modeld.daemon.runtime.calls import Call, failure_of
from modeld.daemon.runtime.clients import Clients, Conversation
from modeld.daemon.runtime.timers import Timers

UNCONFIRMED = {AckStatus.TERMINATION_UNCONFIRMED, AckStatus.DEADLINE_EXCEEDED_UNCONFIRMED}


class Book:
    """Calls by the name the slot knows them by, their queue, and the inferences among them.

    ``parting`` holds the replies that are due when lock and socket are gone.
    """

    def __init__(self, clients: Clients, timers: Timers, queue_limit: int) -> None:
        self.calls: dict[str, Call] = {}
        self.queue = Queue(queue_limit)
        self.inferences = Inferences(queue_limit + 1)
        self.parting: list[tuple[Conversation, wire.Reply]] = []
        self._clients = clients
        self._timers = timers

    def enter(self, call: Call) -> None:
        """The call is open. Raises ModeldError, and enters nothing, if its id is not to be had."""
        if call.inference is not None:
            self.inferences.open(call.inference)
        self.calls[call.who] = call

    def end(self, call: Call, outcome: wire.Reply | ErrorBody) -> None:
        """Send the call's terminal reply; its id is remembered, or free, from here on."""
        if isinstance(outcome, ErrorBody):
            outcome = wire.Failed(id=call.conversation.id, error=outcome)
        self.close(call)
        self._clients.end(call.conversation, outcome)

    def close(self, call: Call) -> None:
        """The call is open no more; nobody is told."""
        if self.calls.get(call.who) is not call:
            # It was never entered, and its id, with all that goes by it, is another call's.
            return
        del self.calls[call.who]
        if call.inference is not None:
            self.inferences.close(call.who, self._timers.clock(), call.ack)
        self._timers.disarm(("wait", call.who))
        self._timers.disarm(("deadline", call.who))

    def answer(self, who: str, ack: Ack) -> None:
        """Send an ack; for a stop it is the daemon's last deed, as it says that all is gone."""
        call = self.calls.get(who)
        if call is None:
            return
        if ack.evidence == "waited" and ack.status is not AckStatus.ALREADY_TERMINAL:
            elapsed = round((self._timers.clock() - call.since) * 1000, 3)
            ack = msgspec.structs.replace(ack, elapsed_ms=elapsed)
        reply = wire.Ended(id=call.conversation.id, ack=ack)
        if isinstance(call.request, wire.Stop) and ack.status not in UNCONFIRMED:
            self.close(call)
            self.parting.append((call.conversation, reply))
            return
        self.end(call, reply)

    def leave_queue(self, call: Call, cause: Cause, generation: int) -> Ack | None:
        """If it waits, it waits no more and its client is told: the proof that it never ran."""
        if self.queue.remove(call.who) is None:
            return None
        call.ack = not_started(call, cause, generation)
        error = call.error
        if error is None:
            now = self._timers.clock()
            error = failure_of(call, cause, None, confirmed=True, log=[], now=now).body()
        self.end(call, error)
        return call.ack


def not_started(call: Call, cause: Cause, generation: int) -> Ack:
    """The ack for a request that no worker ever saw."""
    if cause is Cause.DEADLINE:
        status = AckStatus.DEADLINE_EXCEEDED_CONFIRMED
    else:
        status = AckStatus.CANCELLED_CONFIRMED
    return Ack(
        status=status,
        cause=cause,
        inference_id=call.who if call.inference is not None else None,
        model=call.plan.model if call.plan is not None else None,
        evidence="not_started",
        generation_before=generation,
        generation_after=generation,
    )
