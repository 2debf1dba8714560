"""The messages between the daemon and its worker, and their framing on one stream socket.

A frame is a 4-byte big-endian length and that many bytes of JSON. Orders go to the worker,
reports come back.
"""

import struct

import msgspec

from modeld.daemon.contract.errors import ErrorBody
from modeld.daemon.contract.model import Config, Plan
from modeld.daemon.contract.task import Task
from modeld.daemon.contract.wire import MAX_REQUEST_BYTES, StopReason, Usage

MAX_FRAME_BYTES = MAX_REQUEST_BYTES + 64 * 1024
"""An order carries a whole request's prompt and a little around it."""

_HEADER = struct.Struct(">I")


# --- orders ---------------------------------------------------------------------------------


class LoadModel(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """Load, warm up, answer Ready or LoadFailed.

    ``safe_mode``: do without what is known to crash.
    """

    plan: Plan
    safe_mode: bool


class RunTurn(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """Run one turn. ``seed`` is always concrete; ``stream`` wants each piece at once.

    ``exact``: the user gave the seed, so the text must not depend on what ran before.
    """

    turn: str
    task: Task
    seed: int
    exact: bool
    stream: bool


class CancelTurn(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Stop the turn at the next safe point and end it with ``stop_reason`` ``cancelled``."""

    turn: str


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """Cancel what runs, close everything, exit with code 0."""


Order = LoadModel | RunTurn | CancelTurn | Leave


# --- reports --------------------------------------------------------------------------------


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True, tag="load_progress"):
    """How far the load is, 0 to 1."""

    fraction: float


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """Loaded and warmed up.

    ``config`` is what was really used; ``engine`` names build and version.
    """

    config: Config
    engine: str
    degraded: tuple[str, ...] = ()


class LoadFailed(msgspec.Struct, frozen=True, kw_only=True, tag="load_failed"):
    """The load failed in an orderly way; the worker exits next."""

    error: ErrorBody


class Prefill(msgspec.Struct, frozen=True, kw_only=True, tag="prefill"):
    """``done`` of ``total`` prompt tokens are in the context."""

    turn: str
    done: int
    total: int


class Piece(msgspec.Struct, frozen=True, kw_only=True, tag="piece"):
    """The next whole characters of the answer, and how many tokens there are so far."""

    turn: str
    text: str
    tokens: int


class TurnDone(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The turn's end; all its text has gone out in pieces. ``thinking`` was kept out of them."""

    turn: str
    stop_reason: StopReason
    usage: Usage | None
    prefill_ms: float
    decode_ms: float
    template: str | None
    thinking: str | None = None
    truncated_tokens: int = 0


class TurnFailed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The turn failed; the worker is fit for the next one, unless ``fatal``: then it exits."""

    turn: str
    error: ErrorBody
    fatal: bool = False


Report = LoadProgress | Ready | LoadFailed | Prefill | Piece | TurnDone | TurnFailed


# --- framing --------------------------------------------------------------------------------


class PipeError(Exception):
    """The other end sent something that is no frame, or no message, of this protocol."""


_encoder = msgspec.json.Encoder()
_order_decoder = msgspec.json.Decoder(Order)
_report_decoder = msgspec.json.Decoder(Report)


def encode(message: Order | Report) -> bytes:
    """One message as one frame, header included."""
    body = _encoder.encode(message)
    return _HEADER.pack(len(body)) + body


class Frames:
    """Bytes in, whole frame bodies out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that ``data`` completes. Raises PipeError on a length over the limit."""
        self._buffer += data
        bodies = []
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise PipeError(f"a frame of {length} bytes is over the limit of {MAX_FRAME_BYTES}")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[_HEADER.size : end]))
            del self._buffer[:end]
        return bodies


def decode_order(body: bytes) -> Order:
    """The daemon's order in a frame body. Raises PipeError."""
    try:
        return _order_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise PipeError(f"not an order: {exc}") from exc


def decode_report(body: bytes) -> Report:
    """The worker's report in a frame body. Raises PipeError."""
    try:
        return _report_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise PipeError(f"not a report: {exc}") from exc
