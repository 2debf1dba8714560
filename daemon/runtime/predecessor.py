"""The worker that a dead daemon may have left: gone before its successor admits anything (H14)."""

import contextlib

import msgspec
import psutil

from modeld.daemon.contract.errors import ModeldError
from modeld.daemon.contract.exit import WorkerId
from modeld.daemon.contract.lock import FileLock
from modeld.daemon.runtime.journal import Journal

LEAVE_BY_ITSELF_S = 2.0
KILLED_S = 10.0


def end_predecessors_worker(slot_lock: FileLock, record_path: str, journal: Journal) -> None:
    """``slot_lock`` is held when this returns, so no earlier worker lives.

    A worker dies with its daemon; one that has not done so in time is killed by pid and start time,
    as its record has them. Raises ModeldError(lock_timeout) if the lock does not become free then.
    """
    if slot_lock.try_acquire():
        return
    with contextlib.suppress(ModeldError):
        slot_lock.acquire(LEAVE_BY_ITSELF_S)
        journal.write("orphan_left")
        return
    worker = _read(record_path)
    if worker is not None:
        journal.write("orphan_killed", pid=worker.pid, killed=_kill(worker))
    slot_lock.acquire(KILLED_S)


def _kill(worker: WorkerId) -> bool:
    """SIGKILL for exactly that process; whether it was there.

    psutil compares the start time (E3).
    """
    try:
        process = psutil.Process(worker.pid)
        if abs(process.create_time() - worker.start_time) > 1.0:
            return False
        process.kill()
    except psutil.Error:
        return False
    return True


def _read(path: str) -> WorkerId | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=WorkerId)
    except (OSError, msgspec.DecodeError):
        return None
