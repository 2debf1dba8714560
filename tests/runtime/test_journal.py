"""What is written down, and that a full or missing disk stops nothing."""

import json
import os
import stat
from pathlib import Path

import pytest

from modeld.daemon.contract.errors import ErrorCode
from modeld.daemon.runtime import journal
from modeld.daemon.runtime.journal import Journal, rotate, tail


def test_each_event_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written = Journal(str(path))
    written.write("load", model="two\nlines", pid=7)
    written.write("refused", code=ErrorCode.MODEL_BUSY)
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["event"], first["model"], first["pid"]) == ("load", "two\nlines", 7)
    assert (second["event"], second["code"]) == ("refused", "model_busy")
    assert first["time"] <= second["time"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_later_daemon_goes_on_where_the_earlier_stopped(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(str(path)).write("one")
    Journal(str(path)).write("two")
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["one", "two"]


def test_a_journal_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    Journal(str(tmp_path / "missing" / "journal.jsonl")).write("event")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    Journal(str(tmp_path / "link")).write("event")
    assert not (tmp_path / "target").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_stops_nothing() -> None:
    Journal("/dev/full").write("event")


def test_a_log_is_rotated_when_it_has_grown_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "ROTATE_BYTES", 10)
    path, old = tmp_path / "log", tmp_path / "log.1"
    path.write_text("x" * 10)
    rotate(str(path))
    assert not old.exists()
    path.write_text("y" * 11)
    rotate(str(path))
    assert not path.exists()
    assert old.read_text() == "y" * 11
    path.write_text("z" * 11)
    rotate(str(path))
    assert old.read_text() == "z" * 11
    rotate(str(path))


def test_a_tail_is_the_last_lines_that_came_since(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    since = path.stat().st_size
    with path.open("a") as file:
        file.write("one\n\n  \ntwo\nthree\n")
    assert tail(str(path), since) == ["one", "two", "three"]
    assert tail(str(path), since, lines=2) == ["two", "three"]
    assert tail(str(path), 10**9) == []
    assert tail(str(tmp_path / "missing"), 0) == []


def test_a_tail_takes_native_bytes_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe bad\n" + b"x" * 50_000 + b"\nlast")
    lines = tail(str(path), 0)
    assert lines[-1] == "last"
    assert sum(map(len, lines)) <= 16 * 1024
