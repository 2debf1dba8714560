"""Deadlines by name, on the daemon's one clock."""

import time
from collections.abc import Callable, Hashable


class Timers:
    """At most one deadline a name; times are seconds of ``clock``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._armed: dict[Hashable, tuple[float, Callable[[], None]]] = {}

    def arm(self, name: Hashable, delay_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` once, ``delay_s`` from now, in place of what the name stood for."""
        self._armed[name] = (self.clock() + delay_s, action)

    def disarm(self, name: Hashable) -> None:
        """The name stands for nothing any more."""
        self._armed.pop(name, None)

    def remaining_s(self, name: Hashable) -> float | None:
        """How long until the deadline; ``None`` if there is none."""
        armed = self._armed.get(name)
        return None if armed is None else max(0.0, armed[0] - self.clock())

    def next_delay_s(self) -> float | None:
        """How long until the first deadline of all; ``None`` if there is none."""
        if not self._armed:
            return None
        return max(0.0, min(at for at, _ in self._armed.values()) - self.clock())

    def run_due(self) -> None:
        """Call the actions whose time has come, earliest first."""
        now = self.clock()
        due = sorted(
            ((at, name) for name, (at, _) in self._armed.items() if at <= now), key=lambda d: d[0]
        )
        for _, name in due:
            armed = self._armed.get(name)
            if armed is not None and armed[0] <= now:
                del self._armed[name]
                armed[1]()
