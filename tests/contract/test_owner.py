"""What a daemon says of itself: its record beside the lock, and the line when it is ready."""

import threading
from pathlib import Path

import msgspec
import pytest

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.owner import (
    OwnerRecord,
    WorkerRecord,
    read_owner,
    read_worker,
    remove_owner,
    write_owner,
    write_worker,
)
from modeld.daemon.contract.ready import ReadyLine, decode_ready, encode_ready

RECORD = OwnerRecord(
    owner="o1",
    pid=7,
    birth="7",
    start_time=1.5,
    boot_id="b",
    host="h",
    endpoint="ipc:///r/modeld.sock",
    protocol=1,
    version="0",
)


def test_a_record_comes_back_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "owner.json")
    write_owner(path, RECORD)
    assert read_owner(path) == RECORD


def test_a_workers_record_comes_back_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "worker.json")
    write_worker(path, WorkerRecord(pid=7, birth="123"))
    assert read_worker(path) == WorkerRecord(pid=7, birth="123")


@pytest.mark.parametrize("content", [None, b"", b"{", b"{}", b'{"owner":"\xff"}', b"[]"])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "record.json"
    if content is not None:
        path.write_bytes(content)
    assert read_owner(str(path)) is None
    assert read_worker(str(path)) is None


def test_only_its_own_record_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "owner.json"
    write_owner(str(path), RECORD)
    remove_owner(str(path), "somebody else")
    assert read_owner(str(path)) == RECORD
    remove_owner(str(path), "o1")
    assert not path.exists()
    remove_owner(str(path), "o1")


def test_a_reader_never_sees_half_a_record(tmp_path: Path) -> None:
    path = str(tmp_path / "owner.json")
    short = msgspec.structs.replace(RECORD, version="1")
    long = msgspec.structs.replace(RECORD, version="2" * 100_000)
    write_owner(path, short)
    seen = set()
    is_over = threading.Event()

    def rewrite() -> None:
        for _ in range(300):
            write_owner(path, long)
            write_owner(path, short)
        is_over.set()

    writer = threading.Thread(target=rewrite)
    writer.start()
    while not is_over.is_set():
        seen.add(read_owner(path))
    writer.join()
    assert seen <= {short, long}


@pytest.mark.parametrize(
    "line",
    [
        ReadyLine(owner=RECORD),
        ReadyLine(error=ModeldError(ErrorCode.CONFIG_INVALID, "two\nlines", a=1).body()),
    ],
)
def test_a_ready_line_is_one_line_and_comes_back_whole(line: ReadyLine) -> None:
    sent = encode_ready(line)
    assert sent.endswith(b"\n")
    assert sent.count(b"\n") == 1
    assert decode_ready(sent) == line


@pytest.mark.parametrize("line", [b"", b"\n", b'{"owner":1}\n', b"Traceback\n"])
def test_what_is_no_ready_line_is_a_decode_error(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_ready(line)
