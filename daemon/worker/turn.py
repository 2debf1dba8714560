"""What every backend shares in a turn: tokens' bytes go in, whole pieces of the answer come out."""

import codecs
import time
from collections.abc import Callable

from modeld.daemon.contract.pipe import Piece, Prefill, Report, RunTurn, TurnDone
from modeld.daemon.contract.wire import StopReason, Usage
from modeld.daemon.worker.backends.base import Outcome
from modeld.daemon.worker.backends.cancellation import Cancellation

PIECE_INTERVAL_S = 0.25
"""For a turn that nobody watches: often enough for counters, seldom enough to cost nothing."""


class Characters:
    """Bytes in, whole characters out; what is no UTF-8 becomes U+FFFD.

    A character that its turn ends in the middle of never comes out (pain B62).
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """The characters that ``data`` completes; the start of one that it does not is kept."""
        return self._decoder.decode(data)


class StopTexts:
    """Text in, text up to the first stop text out, however the text is cut into pieces.

    Of two stop texts the one that ends first counts, so that the cuts do not matter.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.hit = False

    def feed(self, text: str) -> str:
        """What can go out now: no part of a stop text, and nothing that may become one."""
        if self.hit:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        found = [
            (start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0
        ]
        if found:
            self.hit = True
            self._held = ""
            return text[: min(found)[1]]
        keep = self._possible_start(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back and did not become a stop text."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, text: str) -> int:
        """How many characters at the end of ``text`` may be the start of a stop text."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0


class Turn:
    """One turn: counts and times its tokens, and sends its text through ``send``.

    The path of the text is characters → (reasoning, once it is told apart) → stop texts → pieces.
    """

    def __init__(
        self,
        order: RunTurn,
        cancellation: Cancellation,
        send: Callable[[Report], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = order.turn
        self.task = order.task
        self.seed = order.seed
        self.exact = order.exact
        self.cancellation = cancellation
        self.tokens = 0
        self._send = send
        self._clock = clock
        self._interval = 0.0 if order.stream else PIECE_INTERVAL_S
        self._characters = Characters()
        self._stops = StopTexts(order.task.stop)
        self._pending = ""
        self._started = clock()
        self._decoding: float | None = None
        self._sent = self._started

    def prefilled(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` prompt tokens are in the context."""
        self._send(Prefill(turn=self.name, done=done, total=total))

    def decoding(self) -> None:
        """The prompt is in the context; what takes time from now on is the answer."""
        self._decoding = self._clock()

    def feed(self, token: bytes) -> StopReason | None:
        """Take one token's bytes; a reason means that no further token is wanted.

        A stop text that the last allowed token completes is a stop text, not a length.
        """
        self.tokens += 1
        self._put(self._characters.feed(token))
        if self._stops.hit:
            return "stop_text"
        if self.tokens >= self.task.max_tokens:
            return "length"
        return None

    def flush(self) -> None:
        """All text of the turn has been sent when this returns."""
        self._pending += self._stops.flush()
        self._send_pending()

    def finish(self, outcome: Outcome) -> TurnDone:
        """All text has been sent; the report that ends the turn."""
        self.flush()
        ended = self._clock()
        decoding = ended if self._decoding is None else self._decoding
        return TurnDone(
            turn=self.name,
            stop_reason=outcome.stop_reason,
            usage=self._usage(outcome),
            prefill_ms=(decoding - self._started) * 1000,
            decode_ms=(ended - decoding) * 1000,
            template=outcome.template,
            truncated_tokens=outcome.truncated_tokens,
        )

    def _usage(self, outcome: Outcome) -> Usage | None:
        if outcome.prompt_tokens is None:
            return None
        return Usage(
            prompt_tokens=outcome.prompt_tokens,
            reused_tokens=outcome.reused_tokens,
            completion_tokens=self.tokens,
        )

    def _put(self, text: str) -> None:
        # Reasoning is told apart here, before stop texts see it: they end the answer.
        self._pending += self._stops.feed(text)
        if self._pending and self._clock() - self._sent >= self._interval:
            self._send_pending()

    def _send_pending(self) -> None:
        if self._pending:
            self._send(Piece(turn=self.name, text=self._pending, tokens=self.tokens))
            self._pending = ""
            self._sent = self._clock()
