"""DUR, as options take it and as people read it."""

import pytest

from modeld.cli.app import seconds
from modeld.cli.render import duration, size


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 0.5), ("10s", 10), ("5m", 300), ("2h", 7200), ("7", 7), ("1.5s", 1.5), ("0", 0)],
)
def test_a_duration(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "-1s", "1d", "5 m", "inf", "nan", "1e3", "ms", "٣s", "1s\nx"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0123, "12 ms"),
        (0.9999, "1.0 s"),
        (3.44, "3.4 s"),
        (9.97, "10 s"),
        (59.7, "1 m"),
        (250, "4 m 10 s"),
        (7500, "2 h 5 m"),
    ],
)
def test_a_time_span_for_a_person(value: float, expected: str) -> None:
    assert duration(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1 << 20, "1.0 MiB"),
        (310 << 20, "310 MiB"),
        (1 << 43, "8.0 TiB"),
    ],
)
def test_bytes_for_a_person(value: int, expected: str) -> None:
    assert size(value) == expected
