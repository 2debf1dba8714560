"""Which engine builds crash on which CPUs unless they are run in safe mode, as seen here."""

import contextlib
import importlib.metadata
import platform

import msgspec

from modeld.daemon.contract.model import BackendName
from modeld.daemon.contract.private import write_atomically

_DISTRIBUTION: dict[BackendName, str] = {"llama": "llama-cpp-python", "mlx": "mlx-lm"}


class SafeModeRecord:
    """A small file that is read once.

    Another build or another CPU is tried without safe mode again.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            with open(path, "rb") as file:
                self._known = set(msgspec.json.decode(file.read(), type=list[str]))
        except (OSError, msgspec.DecodeError):
            self._known = set()

    def knows(self, backend: BackendName) -> bool:
        """Whether this backend's present build is known to need safe mode on this CPU."""
        return backend in _DISTRIBUTION and bool(self._known) and _key(backend) in self._known

    def remember(self, backend: BackendName) -> None:
        """It crashed without safe mode and came up with it. ``echo`` is never remembered."""
        if backend not in _DISTRIBUTION:
            return
        self._known.add(_key(backend))
        # A full disk must not end the daemon; the next one will see the crash again.
        with contextlib.suppress(OSError):
            write_atomically(self._path, msgspec.json.encode(sorted(self._known)))


def _key(backend: BackendName) -> str:
    try:
        version = importlib.metadata.version(_DISTRIBUTION[backend])
    except importlib.metadata.PackageNotFoundError:
        version = "absent"
    return f"{backend} {version} on {_cpu()}"


def _cpu() -> str:
    """The CPU's name."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
