"""The ack's words follow from the facts, and confirm nothing that was not collected."""

import pytest

from modeld.daemon.contract.exit import AckStatus, Cause, Exit, ExitKind, WorkerId
from modeld.daemon.core.ack import ack_of, bare_ack, status_of
from modeld.daemon.core.effects import Ended

CONFIRMED = {
    AckStatus.CANCELLED_CONFIRMED,
    AckStatus.DEADLINE_EXCEEDED_CONFIRMED,
    AckStatus.RELEASED_CONFIRMED,
}
WORKER = WorkerId(pid=1, start_time=2.0, allocation_id="a")
KILLED = Exit(ExitKind.SIGNAL, 9)


@pytest.mark.parametrize(
    ("cause", "turn", "status"),
    [
        (Cause.KILL, True, "cancelled_confirmed"),
        (Cause.KILL, False, "released_confirmed"),
        (Cause.CANCEL, True, "cancelled_confirmed"),
        (Cause.CANCEL, False, "released_confirmed"),
        (Cause.DEADLINE, True, "deadline_exceeded_confirmed"),
        (Cause.DEADLINE, False, "deadline_exceeded_confirmed"),
        (Cause.UNLOAD, True, "released_confirmed"),
        (Cause.REAP, False, "released_confirmed"),
        (Cause.SWITCH, False, "released_confirmed"),
        (Cause.STOP, True, "released_confirmed"),
        (Cause.LOAD_FAILED, True, "released_confirmed"),
        (Cause.CRASH, True, "released_confirmed"),
    ],
)
def test_a_collected_exit_is_confirmed_in_the_word_of_its_cause(
    cause: Cause, turn: bool, status: str
) -> None:
    assert status_of(cause, confirmed=True, turn=turn) == status


@pytest.mark.parametrize("turn", [True, False])
@pytest.mark.parametrize("cause", list(Cause))
def test_an_exit_that_was_not_seen_is_never_confirmed(cause: Cause, turn: bool) -> None:
    """A18."""
    status = status_of(cause, confirmed=False, turn=turn)
    assert status not in CONFIRMED
    late = AckStatus.DEADLINE_EXCEEDED_UNCONFIRMED
    assert status is (late if cause is Cause.DEADLINE else AckStatus.TERMINATION_UNCONFIRMED)


def test_a_confirmed_ack_has_all_the_evidence() -> None:
    ended = Ended(3, Cause.KILL, KILLED, "i", 4, 5, ("TERM", "KILL"))
    ack = ack_of(
        ended,
        confirmed=True,
        late=True,
        model="m",
        worker=WORKER,
        elapsed_ms=6.5,
        memory_returned=7,
    )
    assert (ack.status, ack.cause) == (AckStatus.CANCELLED_CONFIRMED, Cause.KILL)
    assert (ack.inference_id, ack.model, ack.worker, ack.exit) == ("i", "m", WORKER, KILLED)
    assert (ack.evidence, ack.allocation_retired, ack.late) == ("waited", True, True)
    assert (ack.generation_before, ack.generation_after) == (4, 5)
    assert (ack.signals, ack.elapsed_ms) == (("TERM", "KILL"), 6.5)
    assert ack.memory_returned_bytes == 7


def test_an_unconfirmed_ack_claims_nothing() -> None:
    ended = Ended(3, Cause.KILL, None, "i", 4, 4, ("TERM", "KILL"))
    ack = ack_of(
        ended,
        confirmed=False,
        late=False,
        model="m",
        worker=WORKER,
        elapsed_ms=6.5,
        memory_returned=7,
    )
    assert ack.status is AckStatus.TERMINATION_UNCONFIRMED
    assert (ack.evidence, ack.allocation_retired, ack.exit) == ("none", False, None)
    assert ack.memory_returned_bytes is None


def test_an_ack_without_a_workers_end_has_no_evidence() -> None:
    ack = bare_ack(AckStatus.NOTHING_RESIDENT, Cause.UNLOAD, 4)
    assert (ack.generation_before, ack.generation_after, ack.inference_id) == (4, 4, None)
    assert (ack.evidence, ack.allocation_retired, ack.worker) == ("none", False, None)
    assert bare_ack(AckStatus.UNKNOWN, Cause.KILL, 0, "i").inference_id == "i"
