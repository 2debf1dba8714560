"""A backend without a model that misbehaves on request: self-checks, and the proofs of the tests.

Its model file is a JSON or TOML table of the switches of :class:`Script`.
"""

import ctypes
import os
import signal
import sys
import time
import tomllib
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.model import Plan
from modeld.daemon.contract.task import Task
from modeld.daemon.contract.version import VERSION
from modeld.daemon.contract.wire import StopReason
from modeld.daemon.worker.backends.base import LoadCancelled, Loaded, Outcome, Turn
from modeld.daemon.worker.backends.cancellation import Cancellation
from modeld.daemon.worker.backends.window import check_fits, prompt_budget

_PROGRESS_S = 0.1


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The switches. ``*_at`` counts the tokens of a turn that come before it."""

    load_sleep: float = 0.0
    """Seconds that a load takes."""
    rss_mb: int = 0
    """MiB of memory, really touched."""
    open_error: str | None = None
    """The load fails, in an orderly way, for this reason."""
    warmup_crash_unless_safe: bool = False
    """SIGSEGV in the warm-up, without safe mode."""
    fork_child: bool = False
    """A grandchild that holds the pipe and sleeps."""
    ignore_term: bool = False
    """SIGTERM does nothing."""
    close_hang: bool = False
    """Closing never ends."""

    tokens: int | None = None
    """The length of every answer, w0 w1 w2 …; without it the prompt's words come back."""
    tok_sleep: float = 0.0
    """Seconds that a token takes."""
    cancel_cooperative: bool = True
    """Cancels are heeded."""
    usage: bool = True
    """Tokens are counted."""
    starts_file: str | None = None
    """A line is added here for each turn that starts."""

    hang_in: Literal["load", "prefill", "decode"] | None = None
    """A native call there never returns."""
    hang_at: int | None = None
    """The same in decode, after so many tokens."""
    hang_gil: bool = True
    """That native call holds the interpreter's lock: no other thread runs."""
    abort_at: int | None = None
    """SIGABRT."""
    segv_at: int | None = None
    """SIGSEGV."""
    exit_at: int | None = None
    """Exit code 0 without a word."""
    fatal_at: int | None = None
    """An exception that nobody foresaw."""
    garbage_at: int | None = None
    """Bytes in the pipe that are no frame."""


class Echo:
    """Says the prompt's words back, one token a word, and does what its script says."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._script = Script()
        self._safe_mode = False
        self._window = 0
        self._ballast = b""

    def load(
        self,
        plan: Plan,
        *,
        safe_mode: bool,
        cancellation: Cancellation,
        progress: Callable[[float], None],
    ) -> Loaded:
        """Read the script, and do what it wants done in a load."""
        self._script = script = read_script(plan.path)
        self._safe_mode = safe_mode
        self._window = plan.config.ctx
        if script.ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if script.fork_child:
            _fork_sleeper()
        self._sleep_loading(cancellation, progress)
        if script.hang_in == "load":
            self._hang()
        if script.open_error is not None:
            raise ModeldError(
                ErrorCode.MODEL_LOAD_FAILED,
                f"{plan.path} could not be loaded: {script.open_error}",
                cause={"code": "open_error", "message": script.open_error},
            )
        self._ballast = b"\x01" * (script.rss_mb << 20)
        degraded = ("safe mode: asked for by the daemon",) if safe_mode else ()
        return Loaded(plan.config, f"echo {VERSION}", degraded)

    def warm_up(self) -> None:
        """Crash, if the script wants it and safe mode does not prevent it."""
        if self._script.warmup_crash_unless_safe and not self._safe_mode:
            ctypes.string_at(0)

    def run(self, turn: Turn) -> Outcome:
        """Answer, or misbehave at the token that the script names."""
        script = self._script
        if script.starts_file is not None:
            with open(script.starts_file, "a", encoding="utf-8") as file:
                file.write(f"{turn.name}\n")
        words = prompt_of(turn.task).split()
        kept = self._fit(words, turn.task)
        if script.hang_in == "prefill":
            self._hang()
        turn.prefilled(len(kept), len(kept))
        turn.decoding()
        return Outcome(
            self._answer(kept, turn),
            prompt_tokens=len(kept) if script.usage else None,
            truncated_tokens=len(words) - len(kept),
        )

    def close(self) -> None:
        """Forget the ballast, or never return."""
        self._ballast = b""
        while self._script.close_hang:
            time.sleep(_PROGRESS_S)

    def _fit(self, words: list[str], task: Task) -> list[str]:
        if len(words) >= self._window and task.truncate is not None:
            budget = prompt_budget(task.max_tokens, self._window)
            return words[-budget:] if task.truncate == "head" else words[:budget]
        check_fits(len(words), task.max_tokens, self._window)
        return words

    def _answer(self, prompt: list[str], turn: Turn) -> StopReason:
        script = self._script
        count = len(prompt) if script.tokens is None else script.tokens
        for number in range(count):
            self._misbehave(number)
            if self._sleep(script.tok_sleep, turn.cancellation):
                return "cancelled"
            word = prompt[number] if script.tokens is None else f"w{number}"
            reason = turn.feed((word if number == 0 else f" {word}").encode())
            if reason is not None:
                return reason
        self._misbehave(count)
        return "stop"

    def _misbehave(self, tokens: int) -> None:
        script = self._script
        hang_at = 0 if script.hang_in == "decode" and script.hang_at is None else script.hang_at
        if tokens == hang_at:
            self._hang()
        if tokens == script.abort_at:
            os.abort()
        if tokens == script.segv_at:
            ctypes.string_at(0)
        if tokens == script.exit_at:
            os._exit(0)
        if tokens == script.garbage_at:
            self._write(b"\xff" * 64)
        if tokens == script.fatal_at:
            raise RuntimeError(f"the script wants a failure after {tokens} tokens")

    def _sleep(self, seconds: float, cancellation: Cancellation) -> bool:
        """Sleep; whether a cancel came that the script heeds."""
        if not self._script.cancel_cooperative:
            time.sleep(seconds)
            return False
        return cancellation.wait(seconds) if seconds else cancellation.is_set()

    def _sleep_loading(self, cancellation: Cancellation, progress: Callable[[float], None]) -> None:
        total = self._script.load_sleep
        started = time.monotonic()
        while (passed := time.monotonic() - started) < total:
            progress(passed / total)
            if self._sleep(min(_PROGRESS_S, total - passed), cancellation):
                raise LoadCancelled
        progress(1.0)

    def _hang(self) -> None:
        libc = ctypes.PyDLL(None) if self._script.hang_gil else ctypes.CDLL(None)
        while True:
            libc.pause()


def read_script(path: str) -> Script:
    """The script at ``path``. Raises ModeldError(model_load_failed), naming a key it cannot use."""
    try:
        with open(path, "rb") as file:
            text = file.read().decode()
        found: Any = msgspec.json.decode(text) if text.lstrip()[:1] == "{" else tomllib.loads(text)
        return msgspec.convert(found, Script)
    except (OSError, ValueError, msgspec.MsgspecError) as exc:
        raise ModeldError(
            ErrorCode.MODEL_LOAD_FAILED,
            f"{path} is no script for the echo backend: {exc}",
            cause={"code": type(exc).__name__, "message": str(exc)},
        ) from exc


def prompt_of(task: Task) -> str:
    """The prompt, or what the user said last."""
    if task.prompt is not None:
        return task.prompt
    said = [message.content for message in task.messages or () if message.role == "user"]
    return said[-1] if said else ""


def _fork_sleeper() -> None:
    """Leave a grandchild behind that holds all descriptors, the pipe's among them."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # Bounded, in case nobody ends the group.
            time.sleep(600)
        finally:
            os._exit(0)
    sys.stderr.write(f"echo: grandchild {pid}\n")
