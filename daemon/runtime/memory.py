"""How much memory this machine has and has free, in bytes, containers included."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import psutil

CGROUP = "/sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes. ``free`` counts what the kernel would give up for the asking, page cache included."""

    total: int
    free: int


Probe = Callable[[], Measured]


def measure() -> Measured:
    """This machine's memory, or the control group's share of it where that is less."""
    machine = psutil.virtual_memory()
    total, free = machine.total, machine.available
    limit, used = _read(f"{CGROUP}/memory.max"), _read(f"{CGROUP}/memory.current")
    if limit is not None and used is not None and limit < total:
        reclaimable = _inactive_file()
        total = limit
        free = min(free, max(0, limit - used + reclaimable))
    return Measured(total, free)


def fixed(free: int) -> Probe:
    """A probe that always answers ``free``: for tests, by ``MODELD_MEMORY_FREE``."""
    return lambda: Measured(max(free, psutil.virtual_memory().total), free)


def _read(path: str) -> int | None:
    """A control group's number; ``None`` where there is none, or ``max``."""
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _inactive_file() -> int:
    """The control group's page cache that can go."""
    path = os.path.join(CGROUP, "memory.stat")
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(" ")
                if name == "inactive_file":
                    return int(value)
    except OSError:
        pass
    return 0
