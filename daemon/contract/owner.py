"""What a daemon writes about itself and its worker beside its lock.

It informs; the lock decides (requirements H3).
"""

import os

import msgspec

from modeld.daemon.contract.private import write_atomically


class OwnerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One daemon instance. ``endpoint`` is a ZeroMQ address; ``start_time`` in epoch seconds.

    ``pid`` and ``birth`` name the process exactly, within the boot ``boot_id``.
    """

    owner: str
    pid: int
    birth: str
    start_time: float
    boot_id: str
    host: str
    endpoint: str
    protocol: int
    version: str


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's worker, for a successor that finds it alive."""

    pid: int
    birth: str


def read_owner(path: str) -> OwnerRecord | None:
    """The record at ``path``, or ``None`` if there is none that can be read."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=OwnerRecord)
    except (OSError, msgspec.DecodeError):
        return None


def write_owner(path: str, record: OwnerRecord) -> None:
    """Publish ``record``; a reader sees the old one or the new one, never half of either."""
    write_atomically(path, msgspec.json.encode(record))


def remove_owner(path: str, owner: str) -> None:
    """Remove the record if it is ``owner``'s; a successor's stays."""
    found = read_owner(path)
    if found is not None and found.owner == owner:
        os.unlink(path)


def read_worker(path: str) -> WorkerRecord | None:
    """The record at ``path``, or ``None`` if there is none that can be read."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=WorkerRecord)
    except (OSError, msgspec.DecodeError):
        return None


def write_worker(path: str, record: WorkerRecord) -> None:
    """Publish ``record``, as :func:`write_owner` does."""
    write_atomically(path, msgspec.json.encode(record))
