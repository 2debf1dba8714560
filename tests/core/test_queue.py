"""The line of those who wait."""

import pytest

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.core.queue import Entry, Queue


def line_of(*names: str, limit: int = 8) -> Queue:
    queue = Queue(limit)
    for since, name in enumerate(names):
        queue.push(name, float(since))
    return queue


def test_who_came_first_is_served_first() -> None:
    queue = line_of("a", "b", "c")
    assert [queue.pop() for _ in range(4)] == [Entry("a", 0), Entry("b", 1), Entry("c", 2), None]


def test_who_comes_again_is_last() -> None:
    queue = line_of("a", "b")
    queue.pop()
    queue.push("a", 9)
    assert queue.entries() == (Entry("b", 1), Entry("a", 9))


def test_who_left_is_not_served() -> None:
    queue = line_of("a", "b")
    assert queue.remove("a") == Entry("a", 0)
    assert queue.remove("a") is None
    assert "a" not in queue
    assert "b" in queue
    assert queue.pop() == Entry("b", 1)


def test_positions_count_from_one_and_move_up() -> None:
    queue = line_of("a", "b", "c")
    assert [entry.who for entry in queue.entries()] == ["a", "b", "c"]
    queue.remove("b")
    assert [entry.who for entry in queue.entries()] == ["a", "c"]


def test_a_full_line_takes_nobody_and_loses_nobody() -> None:
    """Requirements A24: a refusal, never an eviction."""
    queue = line_of("a", "b", limit=2)
    with pytest.raises(ModeldError) as caught:
        queue.push("c", 0)
    assert caught.value.code is ErrorCode.ACTIVE_LIMIT_REACHED
    assert caught.value.details["limit"] == 2
    assert len(queue) == 2
    assert [entry.who for entry in queue.entries()] == ["a", "b"]
