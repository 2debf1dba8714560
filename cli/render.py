"""What a person or a program reads: answers and JSON on stdout, all else on stderr."""

# ruff: noqa: PLR2004  sizes and times are made of well-known numbers

import os
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from modeld.cli import output
from modeld.cli.settings import Settings
from modeld.daemon.contract.errors import ModeldError
from modeld.daemon.contract.exit import Ack, AckStatus, Exit, ExitKind, signal_name

STDERR = 2


def plain(text: str) -> str:
    """``text`` without anything that a terminal obeys: such characters are shown escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def line(text: str) -> None:
    """One line on standard output; a control character in it is shown, not sent."""
    lines([text])


def lines(texts: Iterable[str]) -> None:
    """Several at once, so that a reader sees all of them or is gone."""
    shown = "".join(f"{plain(text)}\n" for text in texts)
    output.write(shown.encode("utf-8", "backslashreplace"))


def json_line(value: Any) -> None:
    """One JSON value as one line on standard output."""
    output.write(msgspec.json.encode(value) + b"\n")


def without_envelope(message: msgspec.Struct) -> dict[str, Any]:
    """A reply's fields as ``--json`` has them: without the wire's ``id`` and ``type``."""
    fields: dict[str, Any] = msgspec.to_builtins(message)
    for name in ("id", "type"):
        fields.pop(name, None)
    return fields


# --- standard error -------------------------------------------------------------------------


def to_stderr(text: str) -> None:
    """``text`` and a newline on standard error; one that is gone is nobody's loss."""
    try:
        os.write(STDERR, text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        return


def remark(text: str, settings: Settings) -> None:
    """Something worth saying that is not the answer; silent with ``-q``."""
    if not settings.quiet:
        to_stderr(f"modeld: {plain(text)}")


def error_as_text(error: ModeldError, *, verbose: bool) -> None:
    """One line with what was seen, one with what to do; with ``verbose`` the facts as well."""
    lines = [f"modeld: {plain(error.message)}"]
    facts = dict(error.details)
    recovery = facts.pop("recovery", None)
    if recovery:
        lines.append(f"  {plain(str(recovery))}")
    if verbose and facts:
        lines.append(f"  {msgspec.json.encode(facts, enc_hook=str).decode()}")
    to_stderr("\n".join(lines))


def error_as_json(error: ModeldError, *, as_event: bool) -> None:
    """The error object of every ``--json``."""
    body = msgspec.to_builtins(error.body(), enc_hook=str)
    json_line({"type": "error", "error": body} if as_event else {"error": body})


# --- sizes and times ------------------------------------------------------------------------


def size(count: int) -> str:
    """Bytes for a person: ``310 MiB``."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 999.5 or unit == "TiB":
            break
    return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"


def duration(seconds: float) -> str:
    """A time span for a person: ``12 ms``, ``3.4 s``, ``4 m 10 s``, ``2 h``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} m {rest} s" if rest else f"{minutes} m"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} m" if rest else f"{hours} h"


# --- the ack --------------------------------------------------------------------------------

_DONE_WORDS = {
    AckStatus.CANCELLED_CONFIRMED: "killed",
    AckStatus.DEADLINE_EXCEEDED_CONFIRMED: "killed at its deadline",
    AckStatus.RELEASED_CONFIRMED: "released",
}


def exit_words(found: Exit | None) -> str:
    """How a process ended, in the kernel's terms."""
    if found is None or found.kind is ExitKind.UNKNOWN or found.value is None:
        return "exited, status unknown"
    if found.kind is ExitKind.CODE:
        return f"exited with code {found.value}"
    return f"exited by signal {found.value} ({signal_name(found.value)})"


def ack_text(ack: Ack) -> str:
    """The ack in one line."""
    subject = f"inference {ack.inference_id}" if ack.inference_id else "the worker"
    match ack.status:
        case AckStatus.NOTHING_RESIDENT:
            return "nothing is resident"
        case AckStatus.NOT_IDLE:
            return "not idle for long enough; nothing was released"
        case AckStatus.UNKNOWN:
            return f"no inference {ack.inference_id or ''} is known to this daemon".replace(
                "  ", " "
            )
        case AckStatus.ALREADY_TERMINAL:
            seen = ack.worker is not None and ack.exit is not None
            how = f"; its worker {exit_words(ack.exit)}" if seen else ""
            return f"{subject} had already ended{how}"
        case AckStatus.TERMINATION_UNCONFIRMED | AckStatus.DEADLINE_EXCEEDED_UNCONFIRMED:
            sent = f" after {' and '.join(ack.signals)}" if ack.signals else ""
            pid = f" {ack.worker.pid}" if ack.worker else ""
            return (
                f"not confirmed: the exit of worker{pid} was not seen within "
                f"{duration(ack.elapsed_ms / 1000)}{sent}; its memory stays charged"
            )
    return _confirmed_text(ack)


def _confirmed_text(ack: Ack) -> str:
    word = _DONE_WORDS[ack.status]
    if ack.worker is None:
        subject = f": inference {ack.inference_id}" if ack.inference_id else ""
        return f"{word}{subject}, before a worker ran it"
    model = f" of {ack.model}" if ack.model else ""
    parts = [
        (
            f"{word}: worker {ack.worker.pid}{model} {exit_words(ack.exit)} "
            f"in {duration(ack.elapsed_ms / 1000)}"
        )
    ]
    if ack.memory_returned_bytes is not None:
        parts.append(f"{size(ack.memory_returned_bytes)} back")
    if ack.generation_after != ack.generation_before:
        parts.append(f"generation {ack.generation_before} → {ack.generation_after}")
    return "; ".join(parts)


# --- progress -------------------------------------------------------------------------------


class ProgressLine:
    """One rewritten line on a terminal's standard error; nothing anywhere else."""

    def __init__(self, settings: Settings) -> None:
        self._shown = False
        self._enabled = (
            not settings.quiet and os.isatty(STDERR) and os.environ.get("TERM", "dumb") != "dumb"
        )
        self._not_before = time.monotonic() + 0.3

    def show(self, text: str) -> None:
        """Put ``text`` where the last one was. A wait too short to notice shows nothing."""
        if not self._enabled or time.monotonic() < self._not_before:
            return
        width = max(os.get_terminal_size(STDERR).columns - 1, 1)
        self._send(f"\r{plain(text)[:width]}\x1b[K")
        self._shown = True

    def erase(self) -> None:
        """The line is gone and the cursor is at its beginning."""
        if self._shown:
            self._send("\r\x1b[K")
            self._shown = False

    def stop(self) -> None:
        """Erase, and show no more: the answer has begun."""
        self.erase()
        self._enabled = False

    def _send(self, text: str) -> None:
        try:
            os.write(STDERR, text.encode("utf-8", "replace"))
        except OSError:
            self._enabled = False
