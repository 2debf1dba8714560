"""The messages between a command and the daemon, with the one pair that encodes and decodes them.

A command's DEALER sends one :data:`Request` a frame and reads :data:`Reply` frames. Every request
ends in exactly one terminal reply (W3): any reply but Start, Progress and Token is terminal.
"""

from typing import Annotated, Any, Literal

import msgspec

from modeld.daemon.contract.errors import ErrorBody, ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, WorkerId
from modeld.daemon.contract.model import BackendName, Config, ModelChoice
from modeld.daemon.contract.status import Status
from modeld.daemon.contract.task import Task

MAX_REQUEST_BYTES = 32 * 1024 * 1024
"""A prompt is text for one context window; the largest windows are a few MiB."""

MAX_DEADLINE_S = 600.0

InferenceId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._:-]{1,64}\Z")]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


# --- requests -------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first message of a conversation; answered by Welcome, or refused with both numbers.

    ``protocol`` is the only field that a future version may rely on.
    """

    id: str = "hello"
    protocol: int
    version: str


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """Every request but Hello: ``id`` is the client's own, ``owner`` the fence (C9)."""

    id: str
    owner: str
    client_pid: int


class Load(_Request, frozen=True, kw_only=True, tag="load"):
    """Make a model resident, explicitly. ``wait_s`` 0 fails at once on a busy slot.

    ``ttl_s``: ``None`` keeps the daemon's, 0 is off. ``inference_id`` names the load for ``kill``.
    """

    model: ModelChoice
    switch: bool = True
    ttl_s: Seconds | None = None
    pin: bool = False
    wait_s: Seconds = 0.0
    if_generation: int | None = None
    inference_id: InferenceId | None = None


class Generate(_Request, frozen=True, kw_only=True, tag="generate"):
    """One turn. ``stream`` asks for Token replies; the terminal reply is Result either way.

    ``switch``: ``None`` replaces only an idle implicit resident, ``True`` also an explicit one,
    ``False`` none. ``transient``: the worker is gone when the terminal reply comes.
    """

    model: ModelChoice
    task: Task
    stream: bool = False
    switch: bool | None = None
    transient: bool = False
    wait_s: Seconds = 300.0
    deadline_s: Annotated[float, msgspec.Meta(ge=0.001, le=MAX_DEADLINE_S)] | None = None
    inference_id: InferenceId | None = None


class Cancel(_Request, frozen=True, kw_only=True, tag="cancel"):
    """Give up the same client's request ``target``, which then ends in its own terminal reply.

    Cancel itself is not answered.
    """

    target: str


class GetStatus(_Request, frozen=True, kw_only=True, tag="status"):
    """Answered by Status. Never counts as use."""


class Kill(_Request, frozen=True, kw_only=True, tag="kill"):
    """Kill the process that runs ``inference_id``, or the slot's worker, and wait for its exit."""

    inference_id: str | None = None
    if_generation: int | None = None


class Unload(_Request, frozen=True, kw_only=True, tag="unload"):
    """Release the slot; ``force`` does not spare a turn."""

    force: bool = False
    wait_s: Seconds = 0.0
    if_generation: int | None = None


class Reap(_Request, frozen=True, kw_only=True, tag="reap"):
    """Release a resident that has been idle for ``idle_for_s`` since its last completed use.

    ``None``: for its time to live.
    """

    idle_for_s: Seconds | None = None
    if_generation: int | None = None


class Stop(_Request, frozen=True, kw_only=True, tag="stop"):
    """End the daemon; ``force`` does not ask the worker first."""

    force: bool = False


Request = Hello | Load | Generate | Cancel | GetStatus | Kill | Unload | Reap | Stop


# --- replies --------------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """The daemon is there; ``owner`` is the fence for what follows."""

    id: str
    owner: str
    protocol: int
    version: str
    pid: int
    closing: bool


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """The turn has begun on a worker."""

    id: str
    inference_id: str
    model: str
    backend: BackendName
    generation: int
    allocation_id: str | None
    worker: WorkerId
    degraded: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """A sign of life, at least each second.

    ``done`` and ``total`` are tokens or bytes, if known.
    """

    id: str
    inference_id: str | None
    phase: Literal["queued", "loading", "prefill", "decode", "stopping"]
    age_s: float
    position: int | None = None
    done: int | None = None
    total: int | None = None


class Token(msgspec.Struct, frozen=True, kw_only=True, tag="token"):
    """A piece of text, whole characters only. ``seq`` counts from 0 without gaps."""

    id: str
    seq: int
    text: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of one turn; ``prompt_tokens`` includes the ``reused_tokens``."""

    prompt_tokens: int
    reused_tokens: int
    completion_tokens: int


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one turn went, in milliseconds."""

    queue_ms: float
    load_ms: float
    prefill_ms: float
    decode_ms: float
    total_ms: float


class Residency(msgspec.Struct, frozen=True, kw_only=True):
    """What is left in the slot after a turn. ``allocation_id`` is null unless ``retained``."""

    retained: bool
    allocation_id: str | None
    generation: int
    explicit: bool


StopReason = Literal["stop", "length", "stop_text", "deadline", "cancelled"]


class Result(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """A turn, done. ``truncated_tokens`` counts prompt tokens dropped on the user's request."""

    id: str
    text: str
    thinking: str | None
    model: str
    backend: BackendName
    inference_id: str
    stop_reason: StopReason
    seed: int
    usage: Usage | None
    timings: Timings
    residency: Residency
    worker: WorkerId
    template: str | None
    degraded: tuple[str, ...] = ()
    truncated_tokens: int = 0


class Loaded(msgspec.Struct, frozen=True, kw_only=True, tag="loaded"):
    """A model is resident. ``already``: it was before, and nothing was loaded."""

    id: str
    model: str
    backend: BackendName
    path: str
    config: Config
    generation: int
    explicit: bool
    pinned: bool
    already: bool
    allocation_id: str
    worker: WorkerId
    load_ms: float
    degraded: tuple[str, ...] = ()


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The reply to kill, unload, reap and stop."""

    id: str
    ack: Ack


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """The terminal reply of a request that failed."""

    id: str
    error: ErrorBody


Reply = Welcome | Start | Progress | Token | Result | Loaded | Ended | Failed | Status


# --- the one pair ---------------------------------------------------------------------------

_encoder = msgspec.json.Encoder()
_request_decoder = msgspec.json.Decoder(Request)
_reply_decoder = msgspec.json.Decoder(Reply)


class _Envelope(msgspec.Struct):
    """What can be answered even if the rest of a frame makes no sense."""

    id: str = ""


_envelope_decoder = msgspec.json.Decoder(_Envelope)


def encode(message: Request | Reply) -> bytes:
    """One message as one frame. Text that is no Unicode, as in odd paths, arrives escaped."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(_printable(msgspec.to_builtins(message)))


def _printable(value: Any) -> Any:
    """``value`` with every lone surrogate escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value


def decode_request(frame: bytes) -> Request:
    """The request in a frame.

    Raises ModeldError(bad_request) for anything else; its details hold the ``id``, if one was read.
    """
    if len(frame) > MAX_REQUEST_BYTES:
        raise ModeldError(
            ErrorCode.BAD_REQUEST,
            f"a request of {len(frame)} bytes is over the limit of {MAX_REQUEST_BYTES}",
            id="",
        )
    try:
        return _request_decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ModeldError(ErrorCode.BAD_REQUEST, f"not a request: {exc}", id=_id_of(frame)) from exc


def decode_reply(frame: bytes) -> Reply:
    """The reply in a frame. Raises ModeldError(protocol_mismatch) for anything else."""
    try:
        return _reply_decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ModeldError(
            ErrorCode.PROTOCOL_MISMATCH, f"not a reply of this version: {exc}"
        ) from exc


def _id_of(frame: bytes) -> str:
    try:
        return _envelope_decoder.decode(frame).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
