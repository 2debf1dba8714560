"""Directories and files that only their user can open, made or checked."""

import contextlib
import os
import stat

from modeld.daemon.contract.errors import ErrorCode, ModeldError

PRIVATE = 0o700


def ensure_private_dir(path: str) -> None:
    """``path`` is a real directory of this user with mode 0700 when this returns.

    Raises ModeldError(config_invalid) if it cannot be made, is a link, or is open to others.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ModeldError(
            ErrorCode.CONFIG_INVALID,
            f"the path {path!r} is no UTF-8, which modeld needs",
            recovery="name another one with --root DIR or MODELD_ROOT",
        ) from None
    try:
        os.makedirs(os.path.dirname(path), mode=PRIVATE, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, mode=PRIVATE)
        found = os.lstat(path)
    except OSError as exc:
        raise ModeldError(
            ErrorCode.CONFIG_INVALID,
            f"{path} cannot be used as a directory: {exc.strerror}",
            path=path,
            recovery="name another one with --root DIR or MODELD_ROOT",
        ) from exc
    check_private_dir(path, found)
    if stat.S_IMODE(found.st_mode) != PRIVATE:
        os.chmod(path, PRIVATE)


def check_private_dir(path: str, found: os.stat_result) -> None:
    """Raise ModeldError(config_invalid) unless ``found`` is a directory only this user writes."""
    if not stat.S_ISDIR(found.st_mode):
        seen = "is a link" if stat.S_ISLNK(found.st_mode) else "is not a directory"
    elif found.st_uid != os.getuid():
        seen = f"belongs to uid {found.st_uid}, not to uid {os.getuid()}"
    elif found.st_mode & 0o022:
        seen = f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    else:
        return
    raise ModeldError(
        ErrorCode.CONFIG_INVALID,
        f"{path} {seen}; modeld needs a directory of its own",
        path=path,
        recovery="mend it, or name another one with --root DIR or MODELD_ROOT",
    )


def open_private(path: str, flags: int) -> int:
    """A descriptor of ``path``, made with mode 0600, never through a link, closed on exec."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def write_atomically(path: str, data: bytes) -> None:
    """``path`` holds all of ``data`` or what it held before, whatever happens."""
    partial = f"{path}.{os.getpid()}.tmp"
    descriptor = open_private(partial, os.O_WRONLY | os.O_TRUNC)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
