"""Where things are on disk, computed the same by every process, without touching the disk.

platformdirs is not used: its import costs a tenth of a command's start-up, and the root must not
follow the platform's habit where that is a runtime directory, which cron jobs do not have.
"""

import os
import pwd
from collections.abc import Mapping
from typing import NamedTuple

SOCKET_PATH_LIMIT = 100
"""Bytes. Linux takes 107 in a socket's path and macOS 103; longer ones move to /tmp."""


class Root(NamedTuple):
    """The state directory of one daemon: absolute path, and what lies in it."""

    path: str

    @property
    def owner_lock(self) -> str:
        """Held by the daemon for life; the one proof that a daemon exists."""
        return os.path.join(self.path, "owner.lock")

    @property
    def owner_record(self) -> str:
        """What the daemon says of itself; it informs, the lock decides."""
        return os.path.join(self.path, "owner.json")

    @property
    def start_lock(self) -> str:
        """Held by a command while it decides whether to start a daemon, and starts it."""
        return os.path.join(self.path, "start.lock")

    @property
    def slot_lock(self) -> str:
        """Held by daemon and worker: a worker that outlives its daemon keeps it (E6)."""
        return os.path.join(self.path, "slot.lock")

    @property
    def worker_record(self) -> str:
        """Pid and start time of the worker, for a successor that finds ``slot_lock`` held."""
        return os.path.join(self.path, "worker.json")

    @property
    def journal(self) -> str:
        """Loads, exits, kills and refusals, one JSON object a line."""
        return os.path.join(self.path, "journal.jsonl")

    @property
    def daemon_log(self) -> str:
        """The daemon's standard error: what it says before it can say it properly."""
        return os.path.join(self.path, "daemon.log")

    @property
    def worker_log(self) -> str:
        """The worker's standard output and error: the native log."""
        return os.path.join(self.path, "worker.log")

    @property
    def safe_mode_record(self) -> str:
        """Engine builds and CPUs on which only safe mode works."""
        return os.path.join(self.path, "safe_mode.json")

    @property
    def socket(self) -> str:
        """The daemon's socket; a long root gets a short hashed name under /tmp.

        /tmp and not $TMPDIR: a shell and a cron job must find the same one.
        """
        path = os.path.join(self.path, "modeld.sock")
        if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT:
            return path
        import hashlib  # noqa: PLC0415  (costs a short root's commands 3 ms of start-up)

        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return f"/tmp/modeld-{os.getuid()}/{digest}.sock"  # noqa: S108


def default_root(environ: Mapping[str, str]) -> Root:
    """``$MODELD_ROOT``, else ``modeld/<host>`` in the user's state directory."""
    given = environ.get("MODELD_ROOT")
    if given:
        return Root(os.path.abspath(given))
    host = os.uname().nodename.replace("/", "_") or "localhost"
    return Root(os.path.join(_xdg(environ, "XDG_STATE_HOME", ".local/state"), "modeld", host))


def config_file(environ: Mapping[str, str]) -> str:
    """``config.toml`` in the user's configuration directory."""
    return os.path.join(_xdg(environ, "XDG_CONFIG_HOME", ".config"), "modeld", "config.toml")


def models_dir(environ: Mapping[str, str]) -> str:
    """Where modeld's own models lie: ``$MODELD_MODELS``, else in the user's data directory."""
    given = environ.get("MODELD_MODELS")
    if given:
        return os.path.abspath(given)
    return os.path.join(_xdg(environ, "XDG_DATA_HOME", ".local/share"), "modeld", "models")


def _xdg(environ: Mapping[str, str], variable: str, fallback: str) -> str:
    """An XDG base directory; the specification has relative values ignored."""
    given = environ.get(variable, "")
    if os.path.isabs(given):
        return given
    home = environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return os.path.join(home, fallback)
