"""One worker process: made, talked to, signalled, and collected. The only place that waits (E2)."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Protocol

import psutil

from modeld.daemon.contract import pipe
from modeld.daemon.contract.exit import Exit, ExitKind

READ_BYTES = 16 * 1024
"""A token's report is 60 bytes; a buffer of over 128 KiB is mapped and unmapped at each read."""

DRAIN_BYTES = 64 * 1024 * 1024
"""What is still read from a pipe after its worker's exit; a grandchild may go on writing."""


class ExitWatch(Protocol):
    """Becomes readable when the child's wait status can be collected, and collects nothing."""

    def fileno(self) -> int:
        """A descriptor for a poller."""

    def close(self) -> None:
        """Give the descriptor back."""


class PidfdWatch:
    """Linux: the kernel's own descriptor of the process."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    def fileno(self) -> int:
        """The pidfd, readable when the process has exited."""
        return self._descriptor

    def close(self) -> None:
        """Close the pidfd."""
        os.close(self._descriptor)


class ThreadWatch:
    """Anywhere: a thread blocks until the exit can be collected, then closes a pipe."""

    def __init__(self, pid: int) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        threading.Thread(target=self._wait, args=(pid,), daemon=True).start()

    def _wait(self, pid: int) -> None:
        if sys.platform == "darwin":
            # os.waitid is there since Python 3.13 only; a kqueue sees the exit as well.
            queue = select.kqueue()
            exits = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
            with contextlib.suppress(ProcessLookupError):
                queue.control([exits], 1)
            queue.close()
        else:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(self._writer)

    def fileno(self) -> int:
        """The pipe's reading end: at its end when the process has exited."""
        return self._reader

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._reader)


def watch_exit(pid: int) -> ExitWatch:
    """The best watch that this platform has, and its kernel allows (E5)."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return PidfdWatch(pid)
    return ThreadWatch(pid)


class WorkerProcess:
    """A worker that was started. It is a child until :meth:`collect` has returned its exit."""

    def __init__(self, serial: int, popen: subprocess.Popen[bytes], end: socket.socket) -> None:
        self.serial = serial
        self.pid = popen.pid
        self.start_time = psutil.Process(popen.pid).create_time()
        self._popen = popen
        self._watch = watch_exit(popen.pid)
        self._exit: Exit | None = None
        self._end = end
        self._frames = pipe.Frames()
        self._unsent = bytearray()
        self.at_eof = False

    def fileno(self) -> int:
        """The pipe's descriptor."""
        return self._end.fileno()

    def exit_fileno(self) -> int:
        """The descriptor that becomes readable when the exit can be collected."""
        return self._watch.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether orders wait for room in the pipe."""
        return bool(self._unsent)

    def send(self, order: pipe.Order) -> None:
        """Hand an order to the pipe. Never blocks; what does not fit goes out by :meth:`flush`."""
        self._unsent += pipe.encode(order)
        self.flush()

    def flush(self) -> None:
        """Send what there is room for.

        A worker that is gone reads nothing, which is no error here.
        """
        try:
            while self._unsent:
                sent = self._end.send(self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def receive(self) -> list[pipe.Report]:
        """The reports that have come. Never blocks. Raises PipeError if they make no sense."""
        return [pipe.decode_report(body) for body in self._frames.feed(self._read())]

    def drain(self) -> list[pipe.Report]:
        """What an exited worker had still written, as far as it makes sense."""
        reports: list[pipe.Report] = []
        budget = DRAIN_BYTES
        with contextlib.suppress(pipe.PipeError):
            while budget > 0 and (data := self._read()):
                budget -= len(data)
                # One by one: what came before a report that makes no sense is kept.
                reports.extend(map(pipe.decode_report, self._frames.feed(data)))
        return reports

    def _read(self) -> bytes:
        try:
            data = self._end.recv(READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self.at_eof = True
        return data

    def signal(self, name: str) -> None:
        """Send SIG``name`` to the worker and its whole group.

        The pid cannot have been recycled: it is this daemon's until its exit is collected.
        """
        if self._exit is not None:
            return
        # Popen returned after the child's exec, so after its setsid: the group exists.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.Signals[f"SIG{name}"])

    def rss_bytes(self) -> int:
        """The resident set as the kernel shows it now; 0 if it cannot be read any more."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def collect(self) -> Exit | None:
        """The worker's exit, collected from the kernel; ``None`` while it lives.

        Whatever is left of its group is killed first: as long as the leader is not collected, the
        group's number can belong to nobody else.
        """
        if self._exit is not None:
            return self._exit
        if sys.platform != "darwin":
            try:
                peek = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return self._remember(Exit(ExitKind.UNKNOWN))
            if peek is None:
                return None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        try:
            # On macOS the watch may be a moment ahead of the wait; then this blocks for the moment.
            pid, status = os.waitpid(self.pid, 0 if sys.platform == "darwin" else os.WNOHANG)
        except ChildProcessError:
            return self._remember(Exit(ExitKind.UNKNOWN))
        if pid == 0:
            return None
        if os.WIFSIGNALED(status):
            return self._remember(Exit(ExitKind.SIGNAL, os.WTERMSIG(status)))
        return self._remember(Exit(ExitKind.CODE, os.WEXITSTATUS(status)))

    def _remember(self, exit_: Exit) -> Exit:
        self._exit = exit_
        # Popen only spawned; with a return code it leaves the collected child alone.
        self._popen.returncode = exit_.value if exit_.value is not None else 0
        return exit_

    def close(self) -> None:
        """Give the descriptors back. The exit must have been collected."""
        assert self._exit is not None
        self._watch.close()
        self._end.close()


def spawn_worker(
    serial: int, *, lock_fd: int, log_fd: int, extra: Sequence[str] = ()
) -> WorkerProcess:
    """Start a worker in a fresh interpreter (E9), in a session of its own (E7).

    It inherits its end of the pipe and ``lock_fd`` (E6), writes to ``log_fd``, and reads nothing.
    Raises OSError if no process could be made.
    """
    ours, theirs = socket.socketpair()
    try:
        arguments = [
            *("--pipe-fd", str(theirs.fileno())),
            *("--lock-fd", str(lock_fd)),
            *("--parent-pid", str(os.getpid())),
        ]
        popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "modeld.daemon.worker", *arguments, *extra],
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            pass_fds=(theirs.fileno(), lock_fd),
            start_new_session=True,
            cwd="/",
            env={**os.environ, "MODELD_WORKER": "1"},
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.setblocking(False)
    try:
        return WorkerProcess(serial, popen, ours)
    except BaseException:
        # Nobody would ever collect a worker that cannot be watched.
        popen.kill()
        popen.wait()
        ours.close()
        raise
