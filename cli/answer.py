"""A turn's answer on its way to standard output: whole, piece by piece, or as events."""

from typing import Any, Literal

import msgspec

from modeld.cli import exits, render
from modeld.cli.output import Output
from modeld.cli.settings import Settings
from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorCode, ModeldError


class Text:
    """Text that ends in exactly one newline, whatever the model wrote at its end."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._held = 0
        self._begun = False

    def put(self, piece: str) -> None:
        """Send ``piece``; newlines at its end wait until something follows them."""
        if not piece:
            return
        body = piece.rstrip("\n")
        if body:
            self._begun = True
            self._output.put(("\n" * self._held + body).encode("utf-8", "replace"))
            self._held = 0
        self._held += len(piece) - len(body)

    def end(self, *, whole: bool = True, patience_s: float | None = None) -> None:
        """Close the text with its newline. One that failed before its first character has none."""
        if whole or self._begun:
            self._output.put(b"\n")
        self._output.finish(patience_s)


class Watcher:
    """Looks at the replies of one turn: progress to a terminal, text or events to the output."""

    def __init__(
        self, settings: Settings, output: Output, form: Literal["whole", "text", "events"]
    ) -> None:
        self._settings = settings
        self._form = form
        self._output = output
        self.text = Text(output)
        self._progress = render.ProgressLine(settings)
        self._next_seq = 0

    def __call__(self, reply: wire.Reply) -> None:
        """Show what ``reply``, which is not the last one, is worth showing."""
        match reply:
            case wire.Progress():
                self._progress.show(progress_text(reply))
            case wire.Token():
                self._check_order(reply)
                self._progress.stop()
                if self._form == "text":
                    self.text.put(reply.text)
        if self._form == "events":
            self.put_event(type(reply).__struct_config__.tag, reply)

    def put_event(self, kind: Any, reply: msgspec.Struct) -> None:
        """One event as one line."""
        event = {"type": kind, **render.without_envelope(reply)}
        self._output.put(msgspec.json.encode(event) + b"\n")

    def stop(self) -> None:
        """No progress on the terminal any more."""
        self._progress.stop()

    def _check_order(self, token: wire.Token) -> None:
        if token.seq != self._next_seq:
            raise ModeldError(
                ErrorCode.PROTOCOL_MISMATCH,
                f"piece {token.seq} of the answer came where piece {self._next_seq} was due",
            )
        self._next_seq += 1


def progress_text(progress: wire.Progress) -> str:
    """A wait for a person: what it is for, how far it is, how long it has lasted."""
    parts: list[str] = [progress.phase]
    if progress.position is not None:
        parts.append(f"position {progress.position}")
    if progress.done is not None and progress.total:
        share = min(max(progress.done / progress.total, 0.0), 1.0)
        parts.append(f"[{'#' * round(20 * share):<20}] {share:4.0%}")
    elif progress.done is not None and progress.phase == "decode":
        parts.append(f"{progress.done} tokens")
    parts.append(render.duration(progress.age_s))
    return "  ".join(parts)


def status_of(result: wire.Result) -> int:
    """The exit status of a turn that came to an end."""
    if result.stop_reason == "deadline":
        return exits.ENDED_EARLY
    return exits.INTERRUPTED if result.stop_reason == "cancelled" else exits.DONE


def remarks(result: wire.Result, settings: Settings) -> None:
    """What a user has to know about an answer besides the answer."""
    if result.truncated_tokens:
        render.remark(
            f"{result.truncated_tokens} tokens of the prompt were dropped to make it fit "
            f"(--truncate); {result.usage.prompt_tokens} were read"
            if result.usage
            else f"{result.truncated_tokens} tokens of the prompt were dropped to make it fit",
            settings,
        )
    if result.degraded and result.timings.load_ms > 0:
        degraded(result.model, result.degraded, settings)
    if not settings.verbose:
        return
    if result.timings.load_ms > 0:
        render.remark(
            f"{result.model} was loaded for this (generation {result.residency.generation}) "
            f"in {render.duration(result.timings.load_ms / 1000)}",
            settings,
        )
    if result.stop_reason == "length":
        render.remark("the answer ends at its limit (--max-tokens or the context)", settings)


def degraded(model: str, how: tuple[str, ...], settings: Settings) -> None:
    """Said once, by the command that loaded the worker."""
    render.remark(f"{model} runs with less than it could: {'; '.join(how)}", settings)
