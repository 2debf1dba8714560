"""From the facts of a worker's end to the ack that tells of them."""

from modeld.daemon.contract.exit import Ack, AckStatus, Cause, ExitKind, WorkerId
from modeld.daemon.core.effects import Ended


def status_of(cause: Cause, *, confirmed: bool, turn: bool) -> AckStatus:
    """The outcome's name. ``turn``: an inference was ended together with its worker."""
    if cause is Cause.DEADLINE:
        if confirmed:
            return AckStatus.DEADLINE_EXCEEDED_CONFIRMED
        return AckStatus.DEADLINE_EXCEEDED_UNCONFIRMED
    if not confirmed:
        return AckStatus.TERMINATION_UNCONFIRMED
    if turn and cause in {Cause.KILL, Cause.CANCEL}:
        return AckStatus.CANCELLED_CONFIRMED
    return AckStatus.RELEASED_CONFIRMED


def ack_of(
    ended: Ended,
    *,
    confirmed: bool,
    late: bool,
    model: str,
    worker: WorkerId | None,
    elapsed_ms: float,
    memory_returned: int | None,
) -> Ack:
    """The ack, made once the exit was collected and the charge dropped, or could not be.

    An exit whose status somebody else collected is over, and not proven (E4).
    """
    proven = confirmed and ended.exit is not None and ended.exit.kind is not ExitKind.UNKNOWN
    return Ack(
        status=status_of(ended.cause, confirmed=proven, turn=ended.turn is not None),
        cause=ended.cause,
        inference_id=ended.turn,
        model=model,
        worker=worker,
        exit=ended.exit,
        evidence="waited" if proven else "none",
        allocation_retired=confirmed,
        generation_before=ended.generation_before,
        generation_after=ended.generation_after,
        signals=ended.signals,
        elapsed_ms=elapsed_ms,
        memory_returned_bytes=memory_returned if confirmed else None,
        late=late,
    )


def bare_ack(
    status: AckStatus, cause: Cause, generation: int, inference_id: str | None = None
) -> Ack:
    """An ack that no end of a worker is behind."""
    return Ack(
        status=status,
        cause=cause,
        inference_id=inference_id,
        generation_before=generation,
        generation_after=generation,
    )
