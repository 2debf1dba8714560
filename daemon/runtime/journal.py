"""The record of what happened: one JSON object a line, for ``modeld log`` and for people."""

import os
import time
from typing import Any

import msgspec

from modeld.daemon.contract.private import open_private

ROTATE_BYTES = 4 * 1024 * 1024


class Journal:
    """Appends whole lines; a journal that cannot be written never stops the daemon."""

    def __init__(self, path: str) -> None:
        self._path = path
        rotate(path)

    def write(self, event: str, **facts: Any) -> None:
        """One line: the wall clock's ``time`` in epoch seconds, the ``event``, and its facts."""
        line = msgspec.json.encode({"time": round(time.time(), 3), "event": event, **facts})
        try:
            descriptor = open_private(self._path, os.O_WRONLY | os.O_APPEND)
        except OSError:
            return
        try:
            os.write(descriptor, line + b"\n")
        except OSError:
            pass
        finally:
            os.close(descriptor)


def rotate(path: str) -> None:
    """Move a log that has grown too large to ``path.1``."""
    try:
        if os.stat(path).st_size > ROTATE_BYTES:
            os.replace(path, f"{path}.1")
    except OSError:
        pass


def tail(path: str, since: int, lines: int = 12) -> list[str]:
    """The last lines that a log gained after its first ``since`` bytes, if it can be read."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(since, size - 16 * 1024))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-lines:]
