"""``modeld log``: the journal, or the worker's native log, to its end or as it grows."""

import datetime as dt
import os
import select
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec

from modeld.cli import output, render
from modeld.cli.app import Command
from modeld.cli.settings import Settings
from modeld.daemon.contract.exit import Ack

_LOOK_S = 0.25
"""How often a followed file is looked at: files cannot be waited for portably."""


@click.command("log", cls=Command)
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option("--worker", is_flag=True, help="The worker's native log instead of the journal.")
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="The last N lines.",
)
@click.pass_obj
def command(settings: Settings, /, follow: bool, worker: bool, count: int) -> None:
    """Show the journal of loads, exits, kills and refusals. Never starts a daemon."""
    root = settings.root()
    path = root.worker_log if worker else root.journal
    show = _form(settings, worker=worker)
    tail = Tail(path)
    found = deque(tail.lines(), maxlen=count)
    if not found and not follow and not os.path.exists(path):
        render.remark(f"nothing is logged yet: there is no {path}", settings)
    output.write(b"".join(map(show, found)))
    if follow:
        _follow(tail, show)


def _follow(tail: "Tail", show: Callable[[bytes], bytes]) -> None:
    reader = select.poll()
    reader.register(output.STDOUT, 0)
    while True:
        new = b"".join(map(show, tail.lines()))
        if new:
            output.write(new)
        for _, event in reader.poll(_LOOK_S * 1000):
            if event & (select.POLLERR | select.POLLHUP):
                raise BrokenPipeError


class Tail:
    """The complete lines of a file that grows, is replaced by a new one, or is not there yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._partial = b""

    def lines(self) -> Iterator[bytes]:
        """The lines since the last call; first the rest of a file that was replaced meanwhile."""
        while True:
            if self._descriptor >= 0:
                self._restart_if_cut()
                yield from self._read()
            if not self._open_if_new():
                return

    def _read(self) -> Iterator[bytes]:
        while piece := os.read(self._descriptor, 1 << 16):
            *complete, self._partial = (self._partial + piece).split(b"\n")
            yield from complete

    def _restart_if_cut(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size < os.lseek(self._descriptor, 0, os.SEEK_CUR):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self._partial = b""

    def _open_if_new(self) -> bool:
        """Whether the path names another file than before, which is open now."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        if self._descriptor >= 0:
            if os.path.sameopenfile(descriptor, self._descriptor):
                os.close(descriptor)
                return False
            os.close(self._descriptor)
        self._descriptor, self._partial = descriptor, b""
        return True


def _form(settings: Settings, *, worker: bool) -> Callable[[bytes], bytes]:
    if worker:
        return _worker_json if settings.json else _worker_text
    return _journal_json if settings.json else _journal_text


def _worker_json(line: bytes) -> bytes:
    return msgspec.json.encode({"line": line.decode("utf-8", "backslashreplace")}) + b"\n"


def _worker_text(line: bytes) -> bytes:
    shown = line.decode("utf-8", "backslashreplace").rstrip("\r").replace("\t", "    ")
    return render.plain(shown).encode() + b"\n"


def _journal_json(line: bytes) -> bytes:
    return line + b"\n"


def _journal_text(line: bytes) -> bytes:
    try:
        entry = msgspec.json.decode(line, type=dict[str, Any])
        moment = dt.datetime.fromtimestamp(entry.pop("time")).astimezone()
        event = str(entry.pop("event"))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, OverflowError, OSError):
        # A line that a crash cut off is shown as it is.
        return _worker_text(line)
    facts = " ".join(_fact(key, value) for key, value in entry.items() if value is not None)
    return render.plain(f"{moment:%Y-%m-%d %H:%M:%S} {event:<12} {facts}".rstrip()).encode() + b"\n"


def _fact(key: str, value: Any) -> str:
    if key == "ack":
        try:
            ack = msgspec.convert(value, Ack)
        except msgspec.ValidationError:
            # Written by another version.
            return f"{key}={_value(value)}"
        return f"{ack.cause}: {render.ack_text(ack)}"
    return f"{key}={_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, str) and value and " " not in value:
        return value
    return msgspec.json.encode(value).decode()
