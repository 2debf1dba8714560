"""Find the daemon of a root, or start it: exactly one, detached, and only under one lock."""

import os
import select
import stat
import sys
import time

import msgspec

from modeld.cli.settings import Deadline
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.lock import FileLock, is_held
from modeld.daemon.contract.owner import OwnerRecord, read_owner
from modeld.daemon.contract.paths import Root
from modeld.daemon.contract.private import check_private_dir, ensure_private_dir, open_private
from modeld.daemon.contract.ready import ReadyLine, decode_ready

START_TIMEOUT_S = 20.0
CLOSE_TIMEOUT_S = 30.0
"""A closing daemon may have to end a worker that does not want to leave, step by step."""

_TAIL_BYTES = 2000


def refuse_in_worker() -> None:
    """Raise ModeldError(not_allowed_in_worker) inside a worker: a worker starts no worker."""
    if os.environ.get("MODELD_WORKER") == "1":
        raise ModeldError(
            ErrorCode.NOT_ALLOWED_IN_WORKER,
            "this runs inside a modeld worker (MODELD_WORKER=1), which may not use modeld itself",
        )


def find(root: Root) -> OwnerRecord | None:
    """What the running daemon says of itself; None without one, or while it starts or closes.

    Nothing is made and nothing is changed. Raises ModeldError(config_invalid) for a root that
    others could have written.
    """
    try:
        check_private_dir(root.path, os.lstat(root.path))
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ModeldError(
            ErrorCode.CONFIG_INVALID, f"{root.path} cannot be looked at: {exc.strerror}"
        ) from exc
    return read_owner(root.owner_record) if is_held(root.owner_lock) else None


def ensure_daemon(root: Root, *, no_start: bool, deadline: Deadline) -> OwnerRecord:
    """The daemon of ``root``, started if none held its lock.

    Raises ModeldError(not_running) with ``no_start``, ModeldError(daemon_start_failed) with the
    reason, ModeldError(lock_timeout) if another command's start does not end.
    """
    refuse_in_worker()
    found = find(root)
    if found is not None:
        return found
    if no_start:
        return _wait_for_record(root, deadline) or _not_running(root)
    ensure_private_dir(root.path)
    with FileLock(root.start_lock) as lock:
        lock.acquire(deadline.within(START_TIMEOUT_S + CLOSE_TIMEOUT_S))
        return _wait_for_record(root, deadline) or _start(root, lock, deadline)


def wait_until_closed(path: str, timeout_s: float) -> bool:
    """Wait, woken by the kernel, until nobody holds the lock at ``path``; whether it is so."""
    if not is_held(path):
        return True
    with FileLock(path) as lock:
        try:
            lock.acquire(timeout_s)
        except ModeldError:
            return False
    return True


def wait_for_successor(root: Root, owner: str, deadline: Deadline) -> None:
    """Return when ``owner`` has let go of the root, whoever has it now.

    Raises ModeldError(daemon_unreachable) if it does not.
    """
    end = time.monotonic() + deadline.within(CLOSE_TIMEOUT_S)
    while (record := find(root)) is not None and record.owner == owner:
        left = end - time.monotonic()
        # In slices: a successor may take the lock before this process is woken.
        if left <= 0:
            raise unreachable(record, f"is closing and did not end within {CLOSE_TIMEOUT_S:g} s")
        wait_until_closed(root.owner_lock, min(left, 1.0))


def unreachable(record: OwnerRecord, seen: str) -> ModeldError:
    """The error for a daemon that holds its lock and does not do what it should."""
    return ModeldError(
        ErrorCode.DAEMON_UNREACHABLE,
        f"the daemon (pid {record.pid}) {seen}",
        pid=record.pid,
        endpoint=record.endpoint,
        recovery="'modeld stop --force' kills it for sure; the next command starts a new one",
    )


def _wait_for_record(root: Root, deadline: Deadline) -> OwnerRecord | None:
    """The daemon's record, once a held lock has one; None when the lock is free.

    A daemon that starts in the foreground holds its lock a moment before its record is there, and
    one that closes removes its record a moment before it lets go. The kernel tells of the second
    only, hence the slices, each longer than the last.
    """
    slice_s = 0.02
    end = time.monotonic() + deadline.within(CLOSE_TIMEOUT_S)
    while True:
        found = find(root)
        if found is not None or wait_until_closed(root.owner_lock, slice_s):
            return found
        if time.monotonic() >= end:
            raise ModeldError(
                ErrorCode.DAEMON_UNREACHABLE,
                f"a process holds {root.owner_lock} but does not say where it answers",
                path=root.owner_lock,
                recovery=f"'fuser {root.owner_lock}' names it",
            )
        slice_s = min(slice_s * 2, 1.0)


def _not_running(root: Root) -> OwnerRecord:
    raise ModeldError(
        ErrorCode.NOT_RUNNING,
        f"no daemon is running for {root.path}",
        path=root.path,
    )


def _start(root: Root, lock: FileLock, deadline: Deadline) -> OwnerRecord:
    """Start a daemon and wait for its ready line, under ``lock``.

    The daemon holds the lock too until it has written the line: if this process is ended meanwhile,
    the next command waits for that daemon and does not start a rival.
    """
    timeout_s = deadline.within(START_TIMEOUT_S)
    log = open_private(root.daemon_log, os.O_RDWR | os.O_APPEND)
    reading, writing = os.pipe()
    try:
        log_start = os.fstat(log).st_size
        try:
            pid = _spawn(root, log, writing, lock.fileno())
        finally:
            os.close(writing)
        line = _read_line(reading, timeout_s)
        if line is None:
            raise ModeldError(
                ErrorCode.DAEMON_START_FAILED,
                f"the daemon (pid {pid}) was not ready within {timeout_s:g} s",
                pid=pid,
                log=root.daemon_log,
                recovery=f"see {root.daemon_log}; it may still become ready",
            )
        return _read_ready(line, root, _tail(log, log_start))
    finally:
        os.close(reading)
        os.close(log)


def _spawn(root: Root, log: int, ready: int, lock: int) -> int:
    """A daemon that shares its log, the ready pipe and the lock with this process; its pid."""
    import subprocess  # noqa: PLC0415  only a start pays for it

    command = [sys.executable, "-P", "-m", "modeld.daemon"]
    command += ["--root", root.path, "--ready-fd", str(ready), "--start-lock-fd", str(lock)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(ready, lock),
            cwd="/",
            env={**os.environ, "MODELD_ROOT": root.path},
            start_new_session=True,
        )
    except OSError as exc:
        raise ModeldError(
            ErrorCode.DAEMON_START_FAILED,
            f"{sys.executable or 'the interpreter'} cannot be run: {exc.strerror}",
        ) from exc
    # It is meant to outlive this process: nobody here waits for it, and the object, which would
    # complain about that, is told that there is nothing to wait for.
    process.returncode = 0
    return process.pid


def _read_line(descriptor: int, timeout_s: float) -> bytes | None:
    """What was written up to a newline or the end of the pipe; None if neither came in time."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    end = time.monotonic() + timeout_s
    data = b""
    while not data.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            break
        data += piece
    return data


def _read_ready(line: bytes, root: Root, log_tail: str) -> OwnerRecord:
    try:
        ready = decode_ready(line)
    except msgspec.DecodeError:
        ready = ReadyLine()
    if ready.owner is not None:
        return ready.owner
    if ready.error is not None:
        raise ModeldError.from_body(ready.error)
    last = log_tail.splitlines()[-1] if log_tail else "it said nothing"
    raise ModeldError(
        ErrorCode.DAEMON_START_FAILED,
        f"the daemon ended while it started: {last}",
        log=root.daemon_log,
        log_tail=log_tail,
        recovery=f"see {root.daemon_log}",
    )


def _tail(log: int, start: int) -> str:
    size = os.fstat(log).st_size
    start = max(start, size - _TAIL_BYTES)
    return os.pread(log, size - start, start).decode("utf-8", "backslashreplace").strip()


def socket_is_there(record: OwnerRecord) -> bool:
    """Whether the endpoint's socket exists: a connection to a missing one would wait in vain."""
    try:
        return stat.S_ISSOCK(os.stat(record.endpoint.removeprefix("ipc://")).st_mode)
    except OSError:
        return False
