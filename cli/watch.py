"""The exit of a process that is not this one's child, told by the kernel."""

import os
import select
import signal
import sys
from typing import Self


class ProcessWatch:
    """One process, from the moment this is made: its pid cannot come to mean another one (E3).

    The exit is seen, not collected: that is the parent's business (E1, E2). A pid that no process
    has counts as exited.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = -1
        self._exited = False
        try:
            self._open()
        except ProcessLookupError:
            self._exited = True

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has exited; whether it has."""
        if not self._exited:
            self._exited = self._poll(timeout_s)
        return self._exited

    def close(self) -> None:
        """Forget the process."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    if sys.platform == "linux":

        def _open(self) -> None:
            self._descriptor = os.pidfd_open(self.pid)

        def _poll(self, timeout_s: float) -> bool:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            return bool(poll.poll(timeout_s * 1000))

        def kill(self) -> None:
            """Send SIGKILL to it, and to no other. Raises ProcessLookupError if it has exited."""
            if self._exited:
                raise ProcessLookupError
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    else:

        def _open(self) -> None:
            self._queue = select.kqueue()
            event = select.kevent(
                self.pid,
                filter=select.KQ_FILTER_PROC,
                flags=select.KQ_EV_ADD,
                fflags=select.KQ_NOTE_EXIT,
            )
            self._queue.control([event], 0)

        def _poll(self, timeout_s: float) -> bool:
            return bool(self._queue.control(None, 1, timeout_s))

        def kill(self) -> None:
            """Send SIGKILL to it. Raises ProcessLookupError if it has exited."""
            if self.wait(0):
                raise ProcessLookupError
            os.kill(self.pid, signal.SIGKILL)
