"""How a worker begins, obeys and ends: real processes, real signals."""

import os
import signal
import socket
import subprocess
import sys
import tempfile

import msgspec
import psutil
import pytest
from worker_rig import Piece, Pipe, Prefill, command, gone_within

from modeld.daemon.contract.pipe import LoadModel, LoadProgress, Ready


def test_leave_ends_an_idle_worker_with_code_0(worker, script):
    echo = worker(script())
    echo.ready()
    echo.leave()
    assert echo.read() is None
    assert echo.exit() == 0
    assert echo.log.read_text() == ""


def test_leave_before_a_load_ends_it_too(worker):
    echo = worker()
    echo.leave()
    assert echo.exit() == 0


def test_leave_cancels_the_turn_that_runs(worker, script):
    echo = worker(script("tokens = 1000", "tok_sleep = 10"))
    echo.run("p")
    echo.until(Prefill)
    echo.leave()
    assert echo.answer().end.stop_reason == "cancelled"
    assert echo.exit() == 0


def test_leave_cancels_a_load(worker, script):
    echo = worker(script("load_sleep = 60"))
    assert isinstance(echo.read(), LoadProgress)
    echo.leave()
    assert echo.after_progress() is None
    assert echo.exit() == 0


def test_cancel_ends_the_turn_that_runs_and_only_it(worker, script):
    echo = worker(script("tokens = 3", "tok_sleep = 0.05"))
    echo.run("p", turn="a")
    echo.until(Piece)
    echo.cancel("a")
    first = echo.answer().end
    assert (first.turn, first.stop_reason) == ("a", "cancelled")
    second = echo.ask("p", turn="b")
    assert (second.end.turn, second.end.stop_reason) == ("b", "stop")


def test_cancel_reaches_a_turn_that_waits(worker, script):
    echo = worker(script("tokens = 100", "tok_sleep = 10"))
    echo.run("p", turn="a")
    echo.run("p", turn="b")
    echo.until(Prefill)
    echo.cancel("b")
    echo.cancel("a")
    assert echo.answer().end.turn == "a"
    waiting = echo.answer()
    assert (waiting.end.turn, waiting.end.stop_reason) == ("b", "cancelled")
    assert (waiting.text, waiting.end.usage) == ("", None)


def test_cancel_of_a_turn_that_is_over_or_unknown_means_nothing(worker, script):
    echo = worker(script())
    echo.ask("p", turn="a")
    echo.cancel("a")
    echo.cancel("nobody")
    assert echo.ask("still here", turn="a").text == "still here"


def test_a_worker_may_not_heed_cancel(worker, script):
    echo = worker(script("tokens = 5", "tok_sleep = 0.05", "cancel_cooperative = false"))
    echo.run("p")
    echo.until(Piece)
    echo.cancel()
    assert echo.answer().end.stop_reason == "stop"


@pytest.mark.parametrize("where", ["load", "prefill", "decode"])
def test_the_end_of_the_pipe_ends_a_native_hang(worker, script, where):
    """B06: no signal is needed if the interpreter's lock is free."""
    echo = worker(script(f"hang_in = '{where}'", "hang_gil = false"))
    reached = echo.read()
    assert isinstance(reached, LoadProgress)
    if where != "load":
        echo.run("p")
        echo.ready()
    if where == "decode":
        echo.until(Prefill)
    echo.hang_up()
    assert echo.exit(2) == 0


@pytest.mark.parametrize("where", ["load", "prefill", "decode"])
def test_sigterm_ends_a_native_hang_that_holds_the_interpreter(worker, script, where):
    """E7: the default action needs no interpreter."""
    echo = worker(script(f"hang_in = '{where}'"))
    assert isinstance(echo.read(), LoadProgress)
    if where != "load":
        echo.run("p")
        echo.ready()
    if where == "decode":
        echo.until(Prefill)
    echo.signal(signal.SIGTERM)
    assert echo.exit(2) == -signal.SIGTERM


def test_a_hang_comes_after_the_token(worker, script):
    echo = worker(script("tokens = 9", "hang_at = 2"))
    echo.run("p")
    assert [echo.until(Piece).text for _ in range(2)] == ["w0", " w1"]
    assert echo.lasts(0.3)
    echo.cancel()
    assert echo.lasts(0.3)


def test_a_worker_may_ignore_sigterm(worker, script):
    echo = worker(script("ignore_term = true"))
    echo.ready()
    echo.signal(signal.SIGTERM)
    assert echo.ask("still here").text == "still here"
    echo.signal(signal.SIGKILL)
    assert echo.exit() == -signal.SIGKILL


def test_sigint_is_for_others(worker, script):
    echo = worker(script())
    echo.ready()
    echo.signal(signal.SIGINT)
    assert echo.ask("still here").text == "still here"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x04oops",
        b'\x00\x00\x00\x0f{"type":"dance"}',
    ],
)
def test_bytes_that_are_no_order_end_it(worker, script, data):
    echo = worker(script())
    echo.ready()
    echo.send_bytes(data)
    assert echo.exit() == 70
    assert "modeld worker: " in echo.log.read_text()


def test_orders_out_of_order_end_it(worker, script):
    early = worker()
    early.run("p")
    assert early.exit() == 70
    twice = worker(script())
    twice.load(script())
    assert twice.exit() == 70


def test_a_pipe_without_reader_ends_it(worker, script):
    echo = worker(script("tokens = 1000000"))
    echo.run("p", max_tokens=1000000)
    echo.until(Piece)
    echo.hang_up()
    assert echo.exit(2) == 0


def test_a_backend_that_is_not_there_is_a_failed_load(worker, script):
    plan = script()
    echo = worker(msgspec.structs.replace(plan, backend="mlx"))
    assert echo.load_failed().error.code == "unsupported_feature"
    assert echo.exit() == 1


def test_a_worker_whose_parent_is_another_leaves_at_once():
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryFile() as lock:
        done = subprocess.run(
            command(theirs.fileno(), 1, lock.fileno()),
            pass_fds=(theirs.fileno(), lock.fileno()),
            timeout=30,
            check=False,
        )
    assert done.returncode == 0


def test_programs_that_a_worker_starts_inherit_neither_pipe_nor_lock(worker, script):
    echo = worker(script())
    echo.ready()
    flags = {}
    for name in os.listdir(f"/proc/{echo.pid}/fd"):
        if int(name) > 2:
            with open(f"/proc/{echo.pid}/fdinfo/{name}") as file:
                flags[name] = int(file.read().split("flags:")[1].split()[0], 8)
    assert len(flags) == 2
    assert all(value & os.O_CLOEXEC for value in flags.values())


PARENT = """
import subprocess, sys
worker = subprocess.Popen(sys.argv[3:], pass_fds=(int(sys.argv[1]), int(sys.argv[2])))
print(worker.pid, flush=True)
sys.stdin.read()
"""

# The parent's pid is known only to itself.
COMMAND = """
import os, sys
os.execv(sys.argv[1], [a.replace("PPID", str(os.getppid())) for a in sys.argv[1:]])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
@pytest.mark.parametrize("line", ["", "hang_in = 'load'", "hang_in = 'prefill'"])
def test_a_worker_dies_with_its_parent(script, line):
    """B06, H14: even while native code holds the interpreter, and the pipe stays open."""
    ours, theirs = socket.socketpair()
    pipe = Pipe(ours)
    with theirs, tempfile.TemporaryFile() as lock:
        fds = (theirs.fileno(), lock.fileno())
        line_of_worker = command(fds[0], 0, fds[1])
        line_of_worker[line_of_worker.index("0")] = "PPID"
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, *map(str, fds)]
            + [sys.executable, "-c", COMMAND, *line_of_worker],
            pass_fds=fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    with parent:
        pid = int(parent.stdout.readline())
        pipe.send(LoadModel(plan=script(line), safe_mode=False))
        assert isinstance(pipe.read(), LoadProgress)
        if "load" not in line:
            assert isinstance(pipe.read(), Ready)
        try:
            assert psutil.pid_exists(pid)
            parent.kill()
            assert gone_within(pid, 2)
        finally:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
    pipe.close()
