"""Deadlines on a clock that the test turns."""

from modeld.daemon.runtime.timers import Timers


class Clock:
    """A monotonic clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def rung(timers: Timers, clock: Clock, at: float, bell: list[str]) -> list[str]:
    clock.now = at
    bell.clear()
    timers.run_due()
    return list(bell)


def test_a_deadline_is_due_at_its_time_and_once() -> None:
    clock, bell = Clock(), list[str]()
    timers = Timers(clock)
    timers.arm("a", 5.0, lambda: bell.append("a"))
    assert (timers.remaining_s("a"), timers.next_delay_s()) == (5.0, 5.0)
    assert rung(timers, clock, 104.9, bell) == []
    assert rung(timers, clock, 105.0, bell) == ["a"]
    assert rung(timers, clock, 200.0, bell) == []
    assert (timers.remaining_s("a"), timers.next_delay_s()) == (None, None)


def test_what_is_due_is_called_earliest_first() -> None:
    clock, bell = Clock(), list[str]()
    timers = Timers(clock)
    for name, delay in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("d", 9.0)):
        timers.arm(name, delay, lambda name=name: bell.append(name))  # type: ignore[misc]
    assert timers.next_delay_s() == 1.0
    assert rung(timers, clock, 104.0, bell) == ["a", "b", "c"]
    assert timers.next_delay_s() == 5.0


def test_arming_again_replaces() -> None:
    clock, bell = Clock(), list[str]()
    timers = Timers(clock)
    timers.arm("a", 1.0, lambda: bell.append("old"))
    timers.arm("a", 5.0, lambda: bell.append("new"))
    assert rung(timers, clock, 102.0, bell) == []
    assert rung(timers, clock, 105.0, bell) == ["new"]


def test_what_is_disarmed_is_not_called() -> None:
    clock, bell = Clock(), list[str]()
    timers = Timers(clock)
    timers.arm("a", 1.0, lambda: bell.append("a"))
    timers.disarm("a")
    timers.disarm("never armed")
    assert rung(timers, clock, 200.0, bell) == []


def test_an_action_may_disarm_another_that_is_due() -> None:
    clock, bell = Clock(), list[str]()
    timers = Timers(clock)
    timers.arm("a", 1.0, lambda: timers.disarm("b"))
    timers.arm("b", 2.0, lambda: bell.append("b"))
    assert rung(timers, clock, 200.0, bell) == []


def test_an_action_may_put_another_off() -> None:
    clock, bell = Clock(), list[str]()
    timers = Timers(clock)
    timers.arm("a", 1.0, lambda: timers.arm("b", 7.0, lambda: bell.append("later")))
    timers.arm("b", 2.0, lambda: bell.append("b"))
    assert rung(timers, clock, 103.0, bell) == []
    assert rung(timers, clock, 110.0, bell) == ["later"]


def test_a_beat_that_arms_itself_beats_once_a_round() -> None:
    clock, bell = Clock(), list[str]()
    timers = Timers(clock)

    def beat() -> None:
        bell.append("beat")
        timers.arm("beat", 0.0, beat)

    beat()
    assert rung(timers, clock, 150.0, bell) == ["beat"]
    assert rung(timers, clock, 150.0, bell) == ["beat"]


def test_a_missed_deadline_has_no_time_left_and_not_less() -> None:
    clock = Clock()
    timers = Timers(clock)
    timers.arm("a", 1.0, lambda: None)
    clock.now = 500.0
    assert (timers.remaining_s("a"), timers.next_delay_s()) == (0.0, 0.0)
