"""A kernel lock on a file: it dies with its holders, so it can never be stale."""

import fcntl
import os
import signal
from types import FrameType
from typing import Self

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.private import open_private


class FileLock:
    """An exclusive ``flock``.

    The descriptor may be inherited: then both processes hold the lock.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = open_private(path, os.O_RDWR)

    def fileno(self) -> int:
        """The descriptor that carries the lock."""
        return self._descriptor

    def try_acquire(self) -> bool:
        """Take the lock if nobody holds it; whether it is held now."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def acquire(self, timeout_s: float) -> None:
        """Take the lock, woken by the kernel when it is free. Main thread only.

        Raises ModeldError(lock_timeout) when it was not free in time.
        """
        if self.try_acquire():
            return

        def expire(_number: int, _frame: FrameType | None) -> None:
            raise TimeoutError

        previous = signal.signal(signal.SIGALRM, expire)
        try:
            # 0 would disarm the timer, and the wait would have no end.
            signal.setitimer(signal.ITIMER_REAL, max(timeout_s, 0.001))
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except TimeoutError:
            raise ModeldError(
                ErrorCode.LOCK_TIMEOUT,
                f"{self.path} was held by another process for {timeout_s:g} s",
                path=self.path,
                waited_s=timeout_s,
            ) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)

    def close(self) -> None:
        """Give up this process's hold."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def is_held(path: str) -> bool:
    """Whether some process holds the lock at ``path`` now.

    The answer is got with a shared lock for a moment: askers do not see each other, and a process
    that wants the lock tries again for longer than a moment.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
