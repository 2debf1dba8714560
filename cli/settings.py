"""What the global options and the environment say, for one run of one command."""

import os
import time

from modeld.daemon.contract.paths import Root, default_root


class Settings:
    """Filled by the options of the group and of the command; the later one wins."""

    def __init__(self) -> None:
        self.root_dir: str | None = None
        self.json = False
        self.events = False
        """JSON output is a sequence of typed events, errors included (``stream --json``)."""
        self.no_start = os.environ.get("MODELD_NO_START", "") not in {"", "0"}
        self.timeout_s: float | None = None
        self.quiet = False
        self.verbose = False

    def root(self) -> Root:
        """The daemon's state directory: ``--root``, ``MODELD_ROOT`` or the user's own."""
        if self.root_dir is not None:
            return Root(os.path.abspath(self.root_dir))
        return default_root(os.environ)

    def deadline(self) -> "Deadline":
        """``--timeout``, counted from now."""
        return Deadline(self.timeout_s)


class Deadline:
    """A moment after which nobody waits; without one, waiting is bounded by each step alone."""

    def __init__(self, after_s: float | None) -> None:
        self.after_s = after_s
        self._end = None if after_s is None else time.monotonic() + after_s

    def within(self, step_s: float) -> float:
        """``step_s``, or what is left if that is less; never below 0. Seconds."""
        if self._end is None:
            return step_s
        return max(0.0, min(step_s, self._end - time.monotonic()))

    def is_over(self) -> bool:
        """Whether the moment has passed."""
        return self._end is not None and time.monotonic() >= self._end
