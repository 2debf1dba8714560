"""Real children, each ended in its own way, watched in both ways (E1 to E5)."""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from rig import wait_until

from modeld.daemon.contract import pipe
from modeld.daemon.contract.exit import Exit, ExitKind
from modeld.daemon.contract.task import Task
from modeld.daemon.runtime import process
from modeld.daemon.runtime.process import PidfdWatch, ThreadWatch, WorkerProcess, spawn_worker

WORKERS = Path(__file__).parent / "workers"
PATIENCE_MS = 30_000

Start = Callable[..., WorkerProcess]


@pytest.fixture(params=[PidfdWatch, ThreadWatch], autouse=True)
def watch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with each of the two watches (E5)."""
    if request.param is PidfdWatch and not hasattr(os, "pidfd_open"):
        pytest.skip("no pidfd here")
    monkeypatch.setattr(process, "watch_exit", request.param)


def start_program(*command: str) -> WorkerProcess:
    ours, theirs = socket.socketpair()
    with theirs:
        popen = subprocess.Popen(
            [word.format(fd=theirs.fileno()) for word in command],
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    ours.setblocking(False)
    return WorkerProcess(1, popen, ours)


@pytest.fixture
def start() -> Iterator[Start]:
    """Start one of the programs in ``workers/``; in the end none is left."""
    started = []

    def start(name: str, *arguments: object) -> WorkerProcess:
        program = str(WORKERS / f"{name}.py")
        worker = start_program(sys.executable, program, "{fd}", *map(str, arguments))
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.signal("KILL")
        exit_of(worker)
        worker.close()


def await_readable(descriptor: int, events: int = select.POLLIN) -> None:
    poller = select.poll()
    poller.register(descriptor, events)
    assert poller.poll(PATIENCE_MS), "nothing came"


def reports_of(worker: WorkerProcess, count: int) -> list[pipe.Report]:
    reports: list[pipe.Report] = []
    while len(reports) < count:
        await_readable(worker.fileno())
        reports += worker.receive()
        assert not worker.at_eof
    return reports


def number_of(worker: WorkerProcess) -> int:
    (report,) = reports_of(worker, 1)
    assert isinstance(report, pipe.Piece)
    return report.tokens


def exit_of(worker: WorkerProcess) -> Exit:
    await_readable(worker.exit_fileno())
    exit_ = worker.collect()
    assert exit_ is not None
    return exit_


def end_of(pid: int) -> Callable[[], None]:
    """What returns when that process, which is no child of ours, has exited."""
    if not hasattr(os, "pidfd_open"):
        stranger = psutil.Process(pid)
        return lambda: stranger.wait(timeout=PATIENCE_MS / 1000)
    descriptor = os.pidfd_open(pid)

    def wait() -> None:
        await_readable(descriptor)
        os.close(descriptor)

    return wait


def open_descriptors() -> set[str]:
    return set(os.listdir("/dev/fd"))


# --- exits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_an_exit_by_code_is_that_code(start: Start, code: int) -> None:
    assert exit_of(start("exits", code)) == Exit(ExitKind.CODE, code)


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "ABRT", "BUS", "ILL", "FPE", "HUP"])
def test_an_exit_by_signal_is_that_signal(start: Start, name: str) -> None:
    worker = start("waits")
    reports_of(worker, 1)
    worker.signal(name)
    assert exit_of(worker) == Exit(ExitKind.SIGNAL, signal.Signals[f"SIG{name}"])


def test_a_living_worker_has_no_exit(start: Start) -> None:
    """E1: neither asking nor a signal that it ignores makes one."""
    worker = start("waits", "deaf")
    reports_of(worker, 1)
    assert worker.collect() is None
    worker.signal("TERM")
    assert worker.collect() is None
    worker.signal("KILL")
    assert exit_of(worker) == Exit(ExitKind.SIGNAL, signal.SIGKILL)


def test_an_exit_is_collected_once_and_told_again(start: Start) -> None:
    worker = start("exits", 3)
    first = exit_of(worker)
    assert worker.collect() is first
    with pytest.raises(ChildProcessError):
        os.waitpid(worker.pid, os.WNOHANG)  # noqa: TID251  (the proof that it was collected)


def test_an_exit_that_somebody_else_collected_is_unknown(start: Start) -> None:
    """E4: never code 0."""
    worker = start("exits", 0)
    os.waitpid(worker.pid, 0)  # noqa: TID251  (this is the somebody else)
    assert exit_of(worker) == Exit(ExitKind.UNKNOWN)
    assert worker.collect() == Exit(ExitKind.UNKNOWN)


def test_a_zombie_is_not_gone_until_it_is_collected(start: Start) -> None:
    worker = start("exits", 0)
    await_readable(worker.exit_fileno())
    assert psutil.Process(worker.pid).status() == psutil.STATUS_ZOMBIE
    worker.collect()
    assert not psutil.pid_exists(worker.pid)


def test_a_stopped_worker_is_killed(start: Start) -> None:
    worker = start("waits")
    reports_of(worker, 1)
    worker.signal("STOP")
    # Until it has stopped, SIGTERM would still end it.
    wait_until(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED)
    worker.signal("TERM")
    assert worker.collect() is None
    worker.signal("KILL")
    assert exit_of(worker) == Exit(ExitKind.SIGNAL, signal.SIGKILL)


def test_a_signal_after_the_exit_goes_nowhere(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E3: the number may be somebody else's by then."""
    worker = start("exits", 0)
    exit_of(worker)
    sent: list[object] = []
    monkeypatch.setattr(os, "killpg", lambda *arguments: sent.append(arguments))
    worker.signal("KILL")
    assert sent == []


# --- the group ------------------------------------------------------------------------------


def test_a_grandchild_does_not_delay_the_exit_and_dies_with_it(start: Start) -> None:
    """It holds the pipe and ignores SIGTERM, so neither EOF nor politeness would do."""
    worker = start("has_child", "go")
    child = end_of(number_of(worker))
    assert exit_of(worker) == Exit(ExitKind.CODE, 4)
    child()


def test_a_signal_reaches_the_whole_group(start: Start) -> None:
    worker = start("has_child")
    child = end_of(number_of(worker))
    worker.signal("KILL")
    child()
    assert exit_of(worker) == Exit(ExitKind.SIGNAL, signal.SIGKILL)


# --- the pipe -------------------------------------------------------------------------------


def test_what_was_said_right_before_death_is_not_lost(start: Start) -> None:
    worker = start("talks", 1000)
    exit_of(worker)
    words = worker.drain()
    assert [w.tokens for w in words if isinstance(w, pipe.Piece)] == list(range(1000))
    assert worker.at_eof


def test_half_a_frame_before_death_is_no_report(start: Start) -> None:
    worker = start("talks", 2, "half")
    exit_of(worker)
    assert len(worker.drain()) == 2


def test_nonsense_before_death_does_not_hide_what_came_before_it(start: Start) -> None:
    worker = start("talks", 2, "nonsense")
    exit_of(worker)
    assert len(worker.drain()) == 2


def test_nonsense_is_a_pipe_error(start: Start) -> None:
    worker = start("talks", 0, "nonsense")
    await_readable(worker.fileno())
    with pytest.raises(pipe.PipeError):
        worker.receive()


def test_a_silent_worker_is_not_waited_for(start: Start) -> None:
    worker = start("waits")
    reports_of(worker, 1)
    assert worker.receive() == []
    assert worker.drain() == []
    assert not worker.at_eof


def test_the_end_of_the_pipe_is_noticed_and_is_no_exit(start: Start) -> None:
    worker = start("exits", 0)
    exit_of(worker)
    assert worker.receive() == []
    assert worker.at_eof


def test_a_worker_that_reads_nothing_never_blocks_and_gets_everything_later(start: Start) -> None:
    order = pipe.RunTurn(turn="t", task=Task(prompt="x" * 2**20), seed=1, exact=False, stream=False)
    worker = start("reads_late", 4)
    reports_of(worker, 1)
    for _ in range(4):
        worker.send(order)
    assert worker.has_unsent
    os.kill(worker.pid, signal.SIGUSR1)
    while worker.has_unsent:
        await_readable(worker.fileno(), select.POLLOUT)
        worker.flush()
    assert number_of(worker) == 4 * len(pipe.encode(order))


def test_an_order_to_a_dead_worker_is_no_error_and_is_not_kept(start: Start) -> None:
    worker = start("exits", 0)
    exit_of(worker)
    worker.send(pipe.Leave())
    assert not worker.has_unsent


# --- what is left ---------------------------------------------------------------------------


def test_the_resident_set_is_read_while_there_is_a_process(start: Start) -> None:
    worker = start("waits")
    reports_of(worker, 1)
    assert worker.rss_bytes() > 1024**2
    worker.signal("KILL")
    exit_of(worker)
    assert worker.rss_bytes() == 0


def test_a_worker_is_not_closed_before_its_exit_was_collected(start: Start) -> None:
    worker = start("waits")
    with pytest.raises(AssertionError):
        worker.close()


def test_fifty_workers_leave_no_descriptor_and_no_child() -> None:
    true = shutil.which("true")
    assert true is not None
    before = open_descriptors()
    for _ in range(50):
        worker = start_program(true)
        assert exit_of(worker) == Exit(ExitKind.CODE, 0)
        worker.close()
    assert open_descriptors() == before
    assert psutil.Process().children() == []


def test_a_spawn_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = open_descriptors()
    with pytest.raises(OSError, match="nowhere"):
        spawn_worker(1, lock_fd=0, log_fd=2)
    assert open_descriptors() == before


def test_a_worker_that_cannot_be_watched_is_not_left_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody would ever collect it, and the ledger would not know of it."""

    def fail(_pid: int) -> None:
        raise OSError("no descriptor left")

    monkeypatch.setattr(process, "watch_exit", fail)
    before = open_descriptors()
    with pytest.raises(OSError, match="no descriptor left"):
        spawn_worker(1, lock_fd=0, log_fd=2)
    assert open_descriptors() == before
    assert psutil.Process().children() == []
