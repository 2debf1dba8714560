"""End a daemon that does not answer, and wait for the kernel's word on it and its worker."""

import time

from modeld.cli import launch
from modeld.cli.watch import ProcessWatch
from modeld.daemon.contract.birth import birth_of
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, AckStatus, Cause, Exit, ExitKind
from modeld.daemon.contract.lock import FileLock
from modeld.daemon.contract.owner import OwnerRecord, read_owner, remove_owner
from modeld.daemon.contract.paths import Root

KILL_TIMEOUT_S = 10.0


def kill_daemon(root: Root) -> Ack:
    """The daemon of ``root`` and its worker are gone when this returns a confirmed ack.

    Proof is the kernel's: the daemon's exit, and both locks, which their holders' deaths release.
    No wait status was collected, hence the exit is unknown and the evidence the locks.
    Raises ModeldError(daemon_unreachable) if the lock's holder cannot be identified.
    """
    begun = time.monotonic()
    record = read_owner(root.owner_record)
    if record is None:
        raise ModeldError(
            ErrorCode.DAEMON_UNREACHABLE,
            f"a process holds {root.owner_lock}, but no record says which",
            path=root.owner_lock,
            recovery=f"'fuser {root.owner_lock}' names it",
        )
    sent = _kill_exactly(record)
    free = all(
        launch.wait_until_closed(path, KILL_TIMEOUT_S) for path in (root.owner_lock, root.slot_lock)
    )
    if free:
        _forget(root, record)
    return Ack(
        status=AckStatus.RELEASED_CONFIRMED if free else AckStatus.TERMINATION_UNCONFIRMED,
        cause=Cause.STOP,
        exit=Exit(ExitKind.UNKNOWN) if free else None,
        evidence="lock" if free else "none",
        signals=("KILL",) if sent else (),
        elapsed_ms=(time.monotonic() - begun) * 1000,
    )


def _kill_exactly(record: OwnerRecord) -> bool:
    """SIGKILL the process in ``record`` and wait for its exit; whether it was still that one."""
    try:
        with ProcessWatch(record.pid) as watch:
            # The watch came first: it holds on to whoever has the pid, and birth says who that is.
            if birth_of(record.pid) == record.birth:
                watch.kill()
                watch.wait(KILL_TIMEOUT_S)
                return True
    except ProcessLookupError:
        pass
    return False


def _forget(root: Root, record: OwnerRecord) -> None:
    """Remove the dead daemon's record, unless a successor has the root already."""
    with FileLock(root.owner_lock) as lock:
        if lock.try_acquire():
            remove_owner(root.owner_record, record.owner)
