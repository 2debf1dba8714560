"""Signals as something to poll for, while a conversation has to be ended in an orderly way."""

import os
import signal
from types import FrameType, TracebackType
from typing import Self

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered, SIGINT, SIGTERM and SIGHUP end nothing; they can be polled for and taken.

    The interpreter's C handler writes the signal's number to a pipe at once, whatever Python code
    runs or waits then, so none is lost between a look and a wait. A signal that was ignored
    (``nohup``, a background job of an old shell) stays ignored. Main thread only.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def fileno(self) -> int:
        """Readable when a signal has come."""
        return self._reading

    def take(self) -> list[int]:
        """The numbers of the signals that came since the last call, in order."""
        try:
            numbers = os.read(self._reading, 64)
        except BlockingIOError:
            return []
        return [number for number in numbers if number in WATCHED]

    def __enter__(self) -> Self:
        self._previous = {
            number: signal.signal(number, _arrived)
            for number in WATCHED
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        self._previous_descriptor = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _exc: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(self._previous_descriptor)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._reading)
        os.close(self._writing)


def _arrived(_number: int, _frame: FrameType | None) -> None:
    """A handler has to exist for the number to reach the pipe."""
