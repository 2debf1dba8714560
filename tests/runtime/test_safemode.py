"""Which builds on which CPUs need safe mode, remembered across daemons."""

from pathlib import Path

import pytest

from modeld.daemon.runtime import safemode
from modeld.daemon.runtime.safemode import SafeModeRecord


def test_nothing_is_known_at_first(tmp_path: Path) -> None:
    assert not SafeModeRecord(str(tmp_path / "r")).knows("llama")


def test_what_was_seen_is_known_at_once_and_to_the_next_daemon(tmp_path: Path) -> None:
    path = str(tmp_path / "r")
    record = SafeModeRecord(path)
    record.remember("llama")
    assert record.knows("llama")
    assert SafeModeRecord(path).knows("llama")
    assert not SafeModeRecord(path).knows("mlx")


def test_echo_is_never_remembered(tmp_path: Path) -> None:
    record = SafeModeRecord(str(tmp_path / "r"))
    record.remember("echo")
    assert not record.knows("echo")
    assert not (tmp_path / "r").exists()


def test_another_cpu_is_tried_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = SafeModeRecord(str(tmp_path / "r"))
    record.remember("llama")
    monkeypatch.setattr(safemode, "_cpu", lambda: "another")
    assert not record.knows("llama")
    record.remember("llama")
    assert SafeModeRecord(str(tmp_path / "r")).knows("llama")


def test_another_build_is_tried_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = SafeModeRecord(str(tmp_path / "r"))
    record.remember("llama")
    monkeypatch.setattr(safemode.importlib.metadata, "version", lambda _name: "999")  # type: ignore[attr-defined]
    assert not record.knows("llama")


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"\xff", b"[1]"])
def test_a_damaged_record_is_no_record(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    record = SafeModeRecord(str(path))
    assert not record.knows("llama")
    record.remember("llama")
    assert SafeModeRecord(str(path)).knows("llama")


def test_a_record_that_cannot_be_written_is_known_for_this_daemons_life(tmp_path: Path) -> None:
    record = SafeModeRecord(str(tmp_path / "missing" / "r"))
    record.remember("llama")
    assert record.knows("llama")
