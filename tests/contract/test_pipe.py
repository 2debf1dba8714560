"""The worker's pipe: framing at any split, and no message but the protocol's."""

import struct
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeld.daemon.contract import pipe
from modeld.daemon.contract.errors import ErrorBody, ErrorCode
from modeld.daemon.contract.model import Adapter, Config, Plan
from modeld.daemon.contract.task import Message, Task
from modeld.daemon.contract.wire import Usage

CONFIG = Config(
    ctx=1, gpu_layers=2, threads=3, batch=4, kv_type="f16", flash_attn=True, chat_template="/t"
)
PLAN = Plan(
    model="m",
    backend="echo",
    path="/m",
    file_id="f",
    config=CONFIG,
    adapters=(Adapter(path="/a", scale=2.0),),
    digest="d",
    required_bytes=5,
    notes=("n",),
)
ERROR = ErrorBody(code=ErrorCode.INTERNAL, message="m", details={"a": 1}, retryable=True)
ORDERS: list[pipe.Order] = [
    pipe.LoadModel(plan=PLAN, safe_mode=True),
    pipe.RunTurn(
        turn="t",
        task=Task(messages=(Message("user", "é"),)),
        seed=5,
        exact=True,
        stream=True,
    ),
    pipe.CancelTurn(turn="t"),
    pipe.Leave(),
]
REPORTS: list[pipe.Report] = [
    pipe.LoadProgress(fraction=0.5),
    pipe.Ready(config=CONFIG, engine="e", degraded=("d",)),
    pipe.LoadFailed(error=ERROR),
    pipe.Prefill(turn="t", done=1, total=2),
    pipe.Piece(turn="t", text="é", tokens=3),
    pipe.TurnDone(
        turn="t",
        stop_reason="stop_text",
        usage=Usage(prompt_tokens=1, reused_tokens=2, completion_tokens=3),
        prefill_ms=4,
        decode_ms=5,
        template="x",
        thinking="h",
        truncated_tokens=6,
    ),
    pipe.TurnFailed(turn="t", error=ERROR, fatal=True),
]


def name_of(value: object) -> str:
    return type(value).__name__


def body_of(message: pipe.Order | pipe.Report) -> bytes:
    (body,) = pipe.Frames().feed(pipe.encode(message))
    return body


def test_the_examples_are_every_message_there_is() -> None:
    assert {type(o) for o in ORDERS} == set(get_args(pipe.Order))
    assert {type(r) for r in REPORTS} == set(get_args(pipe.Report))


@pytest.mark.parametrize("message", [PLAN, *REPORTS], ids=name_of)
def test_an_example_leaves_no_field_at_its_default(message: msgspec.Struct) -> None:
    for field in msgspec.structs.fields(message):
        assert field.required or getattr(message, field.name) != field.default, field.name


@pytest.mark.parametrize("order", ORDERS, ids=name_of)
def test_an_order_comes_through_whole(order: pipe.Order) -> None:
    assert pipe.decode_order(body_of(order)) == order


@pytest.mark.parametrize("report", REPORTS, ids=name_of)
def test_a_report_comes_through_whole(report: pipe.Report) -> None:
    assert pipe.decode_report(body_of(report)) == report


def test_frames_split_at_any_byte_come_out_the_same() -> None:
    stream = b"".join(pipe.encode(report) for report in REPORTS)
    for at in range(len(stream) + 1):
        frames = pipe.Frames()
        bodies = frames.feed(stream[:at]) + frames.feed(stream[at:])
        assert [pipe.decode_report(body) for body in bodies] == REPORTS


def test_frames_fed_byte_by_byte_come_out_the_same() -> None:
    frames = pipe.Frames()
    stream = b"".join(pipe.encode(report) for report in REPORTS)
    bodies = [body for byte in stream for body in frames.feed(bytes([byte]))]
    assert [pipe.decode_report(body) for body in bodies] == REPORTS


def test_an_empty_frame_is_a_frame() -> None:
    assert pipe.Frames().feed(struct.pack(">II", 0, 0)) == [b"", b""]


def test_a_length_at_the_limit_is_awaited_and_one_over_it_refused() -> None:
    assert pipe.Frames().feed(struct.pack(">I", pipe.MAX_FRAME_BYTES)) == []
    with pytest.raises(pipe.PipeError, match=str(pipe.MAX_FRAME_BYTES + 1)):
        pipe.Frames().feed(struct.pack(">I", pipe.MAX_FRAME_BYTES + 1))


@pytest.mark.parametrize(
    "body", [b"", b"null", b'{"type":"dance"}', b'{"type":"run"}', b"\xff\x00", b"[" * 100_000]
)
def test_a_body_that_is_no_message_is_a_pipe_error(body: bytes) -> None:
    with pytest.raises(pipe.PipeError):
        pipe.decode_order(body)
    with pytest.raises(pipe.PipeError):
        pipe.decode_report(body)


@pytest.mark.parametrize("report", REPORTS, ids=name_of)
def test_a_report_is_no_order(report: pipe.Report) -> None:
    with pytest.raises(pipe.PipeError):
        pipe.decode_order(body_of(report))


@settings(deadline=None, max_examples=300)
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_bytes_make_the_pipe_raise_anything_else(chunks: list[bytes]) -> None:
    frames = pipe.Frames()
    for chunk in chunks:
        try:
            for body in frames.feed(chunk):
                pipe.decode_report(body)
        except pipe.PipeError:
            return


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(REPORTS), st.integers(0, 2000), st.integers(0, 255))
def test_a_damaged_body_is_a_report_or_a_pipe_error(
    report: pipe.Report, at: int, byte: int
) -> None:
    body = bytearray(body_of(report))
    body[at % len(body)] = byte
    try:
        pipe.decode_report(bytes(body))
    except pipe.PipeError as error:
        assert str(error).startswith("not a report")  # noqa: PT017  (either is right)
