"""Standard output as bytes: without blocking during a conversation, completely at its end."""

import errno
import os
import select
import stat
import time
from typing import NoReturn

STDOUT = 1

_PIECE = select.PIPE_BUF
"""A pipe that polls as writable takes this many bytes at once without blocking."""


class OutputError(Exception):
    """Standard output takes no more, for another reason than a reader that is gone."""


class Output:
    """Standard output with a queue of what it did not take yet.

    BrokenPipeError from any method: the reader is gone. OutputError: the disk is full, or so.
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        mode = os.fstat(STDOUT).st_mode
        self.tells_when_unread = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        """Whether the kernel says that the reader is gone before anything is written."""

    @property
    def pending(self) -> int:
        """Bytes not yet taken."""
        return len(self._pending)

    def put(self, data: bytes) -> None:
        """Queue ``data`` and write what can be written without blocking."""
        self._pending += data
        self.push()

    def push(self) -> None:
        """Write as much of the queue as standard output takes without blocking."""
        poll = select.poll()
        poll.register(STDOUT, select.POLLOUT)
        while self._pending and poll.poll(0):
            self._write()

    def check_reader(self) -> None:
        """Raise BrokenPipeError if nobody reads any more, though nothing is to be written."""
        poll = select.poll()
        poll.register(STDOUT, 0)
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def finish(self, patience_s: float | None = None) -> None:
        """Write everything queued, or what is taken within ``patience_s``; drop the rest."""
        end = None if patience_s is None else time.monotonic() + patience_s
        poll = select.poll()
        poll.register(STDOUT, select.POLLOUT)
        while self._pending:
            if not poll.poll(None if end is None else max(end - time.monotonic(), 0) * 1000):
                self._pending.clear()
                return
            self._write()

    def _write(self) -> None:
        try:
            written = os.write(STDOUT, self._pending[:_PIECE])
        except BlockingIOError:
            # Somebody made the pipe non-blocking, and it has less room than a piece.
            written = self._write_what_fits()
        except OSError as exc:
            _refuse(exc)
        del self._pending[:written]

    def _write_what_fits(self) -> int:
        try:
            return os.write(STDOUT, self._pending[:1])
        except BlockingIOError:
            return 0
        except OSError as exc:
            _refuse(exc)


def write(data: bytes) -> None:
    """``data`` is on standard output when this returns."""
    output = Output()
    output.put(data)
    output.finish()


def _refuse(exc: OSError) -> NoReturn:
    if exc.errno == errno.EPIPE:
        raise exc
    seen = "it is closed" if exc.errno == errno.EBADF else exc.strerror
    raise OutputError(f"standard output cannot be written: {seen}") from exc
