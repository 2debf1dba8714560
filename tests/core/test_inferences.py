"""Which ids mean something now, and for how long the ended ones are remembered."""

import pytest

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, AckStatus, Cause
from modeld.daemon.core.inferences import FINISHED_KEPT_S, FINISHED_LIMIT, Inference, Inferences

ACK = Ack(status=AckStatus.TERMINATION_UNCONFIRMED, cause=Cause.KILL)
LATE = Ack(status=AckStatus.CANCELLED_CONFIRMED, cause=Cause.KILL, late=True)


def inference(id_: str) -> Inference:
    return Inference(id_, "gen", "m", client_pid=1, since=0.0)


def with_ended(*ids: str, at: float = 0.0, ack: Ack | None = None) -> Inferences:
    inferences = Inferences(limit=1000)
    for id_ in ids:
        inferences.open(inference(id_))
        inferences.close(id_, at, ack)
    return inferences


def test_a_live_id_is_taken() -> None:
    """A25."""
    inferences = Inferences(limit=2)
    inferences.open(inference("i"))
    with pytest.raises(ModeldError) as caught:
        inferences.open(inference("i"))
    assert caught.value.code is ErrorCode.DUPLICATE_INFERENCE_ID
    assert caught.value.details["inference_id"] == "i"


def test_an_ended_id_is_free_again_and_its_record_gone() -> None:
    inferences = with_ended("i")
    inferences.open(inference("i"))
    assert inferences.finished("i", now=0.0) is None


def test_no_more_than_the_limit_are_live_and_none_is_evicted() -> None:
    """A24."""
    inferences = Inferences(limit=2)
    inferences.open(inference("a"))
    inferences.open(inference("b"))
    with pytest.raises(ModeldError) as caught:
        inferences.open(inference("c"))
    assert caught.value.code is ErrorCode.ACTIVE_LIMIT_REACHED
    assert set(inferences.live) == {"a", "b"}
    inferences.close("a", 0.0)
    inferences.open(inference("c"))


def test_an_ended_inference_is_remembered_with_its_ack() -> None:
    found = with_ended("i", at=5.0, ack=ACK).finished("i", now=6.0)
    assert found is not None
    assert (found.id, found.at, found.ack) == ("i", 5.0, ACK)


def test_a_live_inference_and_a_stranger_have_no_record() -> None:
    inferences = Inferences(limit=1)
    inferences.open(inference("i"))
    assert inferences.finished("i", now=0.0) is None
    assert inferences.finished("stranger", now=0.0) is None


def test_ending_what_is_not_live_records_nothing() -> None:
    inferences = with_ended("i", ack=ACK)
    inferences.close("stranger", 0.0)
    inferences.close("i", 9.0, LATE)
    assert inferences.finished("stranger", now=0.0) is None
    found = inferences.finished("i", now=0.0)
    assert found is not None
    assert found.ack == ACK


def test_the_oldest_is_forgotten_when_there_are_too_many() -> None:
    ids = [str(number) for number in range(FINISHED_LIMIT + 1)]
    inferences = with_ended(*ids)
    assert inferences.finished("0", now=0.0) is None
    assert inferences.finished("1", now=0.0) is not None
    assert inferences.finished(ids[-1], now=0.0) is not None
    assert FINISHED_LIMIT == 256


def test_a_record_is_kept_for_its_time_and_no_longer() -> None:
    assert FINISHED_KEPT_S == 300.0
    inferences = with_ended("i", at=10.0)
    assert inferences.finished("i", now=309.9) is not None
    assert inferences.finished("i", now=310.0) is None
    assert inferences.finished("i", now=10.0) is None


def test_only_what_is_old_enough_is_forgotten() -> None:
    inferences = with_ended("old", at=0.0)
    inferences.open(inference("new"))
    inferences.close("new", 100.0)
    assert inferences.finished("new", now=350.0) is not None
    assert inferences.finished("old", now=350.0) is None


def test_a_late_exit_completes_the_record_once_and_keeps_its_age() -> None:
    """A21."""
    inferences = with_ended("i", at=5.0, ack=ACK)
    inferences.upgrade("i", LATE)
    found = inferences.finished("i", now=6.0)
    assert found is not None
    assert (found.at, found.ack) == (5.0, LATE)


def test_a_late_exit_of_what_is_forgotten_records_nothing() -> None:
    inferences = Inferences(limit=1)
    inferences.upgrade("i", LATE)
    assert inferences.finished("i", now=0.0) is None
