"""The worker that a dead daemon may have left: gone before its successor admits anything (H14)."""

import contextlib
import os
import signal

from modeld.daemon.contract.birth import birth_of
from modeld.daemon.contract.errors import ModeldError
from modeld.daemon.contract.lock import FileLock
from modeld.daemon.contract.owner import WorkerRecord, read_worker
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
    worker = read_worker(record_path)
    if worker is not None:
        journal.write("orphan_killed", pid=worker.pid, killed=_kill(worker))
    slot_lock.acquire(KILLED_S)


def _kill(worker: WorkerRecord) -> bool:
    """SIGKILL for exactly that process, by pid and birth (E3); whether it was there."""
    if birth_of(worker.pid) != worker.birth:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker.pid, signal.SIGKILL)
    return True
