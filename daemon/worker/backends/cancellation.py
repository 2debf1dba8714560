"""The wish that a load or a turn ends at its next safe point; it knows nothing of who wishes it."""

import ctypes
import threading


class Cancellation:
    """Set once and for all by the thread that reads orders, looked at by the one that works.

    ``flag`` holds the same fact as a C string, empty or not, for native code that may look at it
    without the interpreter's lock.
    """

    def __init__(self) -> None:
        self.flag = ctypes.create_string_buffer(2)
        self._event = threading.Event()

    def set(self) -> None:
        """Wish it; again is harmless."""
        self.flag[0] = b"\x01"
        self._event.set()

    def is_set(self) -> bool:
        """Whether it is wished."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep for ``seconds``, or less if it is wished meanwhile; whether it is."""
        return self._event.wait(seconds)
