"""The lock, really held by other processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.lock import FileLock, is_held

HOLD = """
import sys
from modeld.daemon.contract.lock import FileLock
lock = FileLock(sys.argv[1])
assert lock.try_acquire()
print("held", flush=True)
sys.stdin.read()
"""
KEEP_WHAT_WAS_INHERITED = """
import sys
print("here", flush=True)
sys.stdin.read()
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.lock")


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program that says one line when it is set, and ends when its input does."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str, *arguments: str, pass_fds: tuple[int, ...] = ()) -> object:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=pass_fds,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    yield start  # type: ignore[misc]
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def test_a_free_lock_is_taken_and_given_back(path: str) -> None:
    with FileLock(path) as lock:
        assert not is_held(path)
        assert lock.try_acquire()
        assert lock.try_acquire()
        assert is_held(path)
    assert not is_held(path)


def test_a_lock_that_was_never_made_is_not_held(path: str) -> None:
    assert not is_held(path)
    assert not os.path.exists(path)


def test_closing_twice_is_closing_once(path: str) -> None:
    lock = FileLock(path)
    assert lock.fileno() > 2
    lock.close()
    lock.close()


def test_another_processs_lock_is_not_taken(path: str, start: Start) -> None:
    start(HOLD, path)
    with FileLock(path) as lock:
        assert is_held(path)
        assert not lock.try_acquire()


def test_a_killed_holder_leaves_no_lock(path: str, start: Start) -> None:
    holder = start(HOLD, path)
    holder.kill()
    holder.wait()
    assert not is_held(path)
    with FileLock(path) as lock:
        assert lock.try_acquire()


def test_a_waiter_is_woken_by_the_holders_exit(path: str, start: Start) -> None:
    holder = start(HOLD, path)
    with FileLock(path) as lock:
        before = time.monotonic()
        holder.send_signal(signal.SIGKILL)
        lock.acquire(30)
        assert time.monotonic() - before < 10
        assert is_held(path)


@pytest.mark.parametrize("timeout_s", [0.05, 0.0, -1.0])
def test_a_lock_that_stays_held_is_a_lock_timeout(
    path: str, start: Start, timeout_s: float
) -> None:
    start(HOLD, path)
    before = signal.getsignal(signal.SIGALRM)
    with FileLock(path) as lock, pytest.raises(ModeldError) as caught:
        lock.acquire(timeout_s)
    assert caught.value.code is ErrorCode.LOCK_TIMEOUT
    assert caught.value.details == {"path": path, "waited_s": timeout_s}
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_free_lock_needs_no_time(path: str) -> None:
    with FileLock(path) as lock:
        lock.acquire(0)
        assert is_held(path)


def test_a_child_that_inherited_the_lock_keeps_it(path: str, start: Start) -> None:
    """E6."""
    with FileLock(path) as lock:
        assert lock.try_acquire()
        heir = start(KEEP_WHAT_WAS_INHERITED, pass_fds=(lock.fileno(),))
    assert is_held(path)
    heir.kill()
    heir.wait()
    assert not is_held(path)


def test_an_orphan_keeps_the_lock_of_its_dead_parent(path: str, start: Start) -> None:
    """E6: the parent is killed, its child holds on."""
    parent = start(
        """
import subprocess, sys
from modeld.daemon.contract.lock import FileLock
lock = FileLock(sys.argv[1])
assert lock.try_acquire()
child = subprocess.Popen(
    [sys.executable, "-c", "import sys; print('here', flush=True); sys.stdin.read()"],
    pass_fds=(lock.fileno(),),
)
child.wait()
""",
        path,
    )
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert is_held(path)
    assert parent.stdin is not None
    parent.stdin.close()
    with FileLock(path) as lock:
        lock.acquire(30)


def test_asking_does_not_take_the_lock(path: str) -> None:
    FileLock(path).close()
    assert not is_held(path)
    with FileLock(path) as lock:
        assert lock.try_acquire()
        assert is_held(path)
        assert is_held(path)
