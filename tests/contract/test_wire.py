"""Every message survives the wire, and nothing else gets through it."""

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorBody, ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, AckStatus, Cause, Exit, ExitKind, WorkerId
from modeld.daemon.contract.model import Adapter, Config, ModelChoice
from modeld.daemon.contract.status import (
    Active,
    DaemonInfo,
    Idle,
    Inflight,
    Memory,
    Status,
    Waiting,
    WorkerInfo,
)
from modeld.daemon.contract.task import Message, Sampling, Task

FENCE: dict[str, Any] = {"id": "1", "owner": "o", "client_pid": 7}
CHOICE = ModelChoice(
    name="/é.gguf",
    backend="llama",
    ctx=1,
    gpu_layers=2,
    threads=3,
    batch=4,
    kv_type="q8_0",
    flash_attn=True,
    adapters=(Adapter(path="/a", scale=0.5),),
    chat_template="/t",
)
TASK = Task(
    messages=(Message("user", "día"),),
    system="s",
    raw=True,
    sampling=Sampling(temp=0.1, top_p=0.2, top_k=3, min_p=0.4, repeat_penalty=1.5, seed=6),
    max_tokens=9,
    stop=("a", "b"),
    truncate="head",
)
CONFIG = Config(
    ctx=1, gpu_layers=2, threads=3, batch=4, kv_type="f16", flash_attn=True, chat_template="/t"
)
WORKER = WorkerId(pid=4, start_time=5.5, allocation_id="a")
ACK = Ack(
    status=AckStatus.CANCELLED_CONFIRMED,
    cause=Cause.KILL,
    inference_id="i",
    model="m",
    worker=WORKER,
    exit=Exit(ExitKind.SIGNAL, 9),
    evidence="waited",
    allocation_retired=True,
    generation_before=1,
    generation_after=2,
    signals=("TERM", "KILL"),
    elapsed_ms=1.5,
    memory_returned_bytes=8,
    late=True,
)

REQUESTS: list[wire.Request] = [
    wire.Hello(id="h", protocol=3, version="v"),
    wire.Load(
        **FENCE,
        model=CHOICE,
        switch=False,
        ttl_s=1.0,
        pin=True,
        wait_s=2.0,
        if_generation=3,
        inference_id="i",
    ),
    wire.Generate(
        **FENCE,
        model=CHOICE,
        task=TASK,
        stream=True,
        switch=True,
        transient=True,
        wait_s=0.5,
        deadline_s=2.0,
        inference_id="a.B-c_d:9",
    ),
    wire.Cancel(**FENCE, target="0"),
    wire.GetStatus(**FENCE),
    wire.Kill(**FENCE, inference_id="i", if_generation=3),
    wire.Unload(**FENCE, force=True, wait_s=1.0, if_generation=3),
    wire.Reap(**FENCE, idle_for_s=1.0, if_generation=3),
    wire.Stop(**FENCE, force=True),
]
REPLIES: list[wire.Reply] = [
    wire.Welcome(id="1", owner="o", protocol=1, version="v", pid=2, closing=True),
    wire.Start(
        id="1",
        inference_id="i",
        model="m",
        backend="echo",
        generation=2,
        allocation_id="a",
        worker=WORKER,
        degraded=("d",),
    ),
    wire.Progress(
        id="1", inference_id="i", phase="prefill", age_s=1.5, position=2, done=3, total=4
    ),
    wire.Token(id="1", seq=3, text="é\u2028\x00"),
    wire.Result(
        id="1",
        text="t",
        thinking="h",
        model="m",
        backend="llama",
        inference_id="i",
        stop_reason="length",
        seed=5,
        usage=wire.Usage(prompt_tokens=1, reused_tokens=2, completion_tokens=3),
        timings=wire.Timings(queue_ms=1, load_ms=2, prefill_ms=3, decode_ms=4, total_ms=5),
        residency=wire.Residency(retained=True, allocation_id="a", generation=3, explicit=True),
        worker=WORKER,
        template="t",
        degraded=("d",),
        truncated_tokens=6,
    ),
    wire.Loaded(
        id="1",
        model="m",
        backend="echo",
        path="/m",
        config=CONFIG,
        generation=1,
        explicit=True,
        pinned=True,
        already=True,
        allocation_id="a",
        worker=WORKER,
        load_ms=1.5,
        degraded=("d",),
    ),
    wire.Ended(id="1", ack=ACK),
    wire.Failed(
        id="1",
        error=ErrorBody(
            code=ErrorCode.MODEL_BUSY, message="m", details={"a": [1, None]}, retryable=True
        ),
    ),
    Status(
        id="1",
        owner="o",
        daemon=DaemonInfo(pid=1, start_time=2.5, version="v", protocol=1, uptime_s=3.5),
        state="Busy",
        generation=4,
        busy_operation="decode",
        last_error="e",
        backend="echo",
        active=Active(
            model="m",
            backend="echo",
            digest="d",
            path="/m",
            config=CONFIG,
            adapters=({"path": "/a", "scale": 1.0},),
            generation=4,
            explicit=True,
            pinned=True,
            allocation_id="a",
            degraded=("d",),
            worker=WorkerInfo(pid=1, start_time=2.5, rss_bytes=3),
        ),
        inflight=(
            Inflight(
                id="i",
                kind="gen",
                model="m",
                phase="decode",
                client_pid=1,
                age_s=2.5,
                tokens=3,
                tokens_per_s=4.5,
            ),
        ),
        queue=(Waiting(id="q", position=1, client_pid=2, age_s=3.5),),
        memory=Memory(total=1, free=2, reserve=3, usable=4, charged=5),
        policy_generation=6,
        idle=Idle(ttl_s=1.5, source="env", idle_for_s=2.5, reap_in_s=3.5),
        last_exit=ACK,
    ),
]


def name_of(value: object) -> str:
    return type(value).__name__


def differs_from_its_default(message: msgspec.Struct, field: msgspec.structs.FieldInfo) -> bool:
    return field.required or bool(getattr(message, field.name) != field.default)


def test_the_examples_are_every_message_there_is() -> None:
    assert {type(r) for r in REQUESTS} == set(get_args(wire.Request))
    assert {type(r) for r in REPLIES} == set(get_args(wire.Reply))


@pytest.mark.parametrize("message", [*REQUESTS, *REPLIES, TASK, CHOICE, ACK], ids=name_of)
def test_an_example_leaves_no_field_at_its_default(message: msgspec.Struct) -> None:
    """Requirements 3.1, trap 13: a field at its default could be lost unnoticed.

    A task has messages or a prompt, never both; the prompts are in the test of any turn.
    """
    for field in msgspec.structs.fields(message):
        if isinstance(message, Task) and field.name == "prompt":
            continue
        assert differs_from_its_default(message, field), field.name


@pytest.mark.parametrize("request_", REQUESTS, ids=name_of)
def test_a_request_comes_back_whole(request_: wire.Request) -> None:
    assert wire.decode_request(wire.encode(request_)) == request_


@pytest.mark.parametrize("reply", REPLIES, ids=name_of)
def test_a_reply_comes_back_whole(reply: wire.Reply) -> None:
    assert wire.decode_reply(wire.encode(reply)) == reply


@settings(deadline=None, max_examples=100)
@given(
    st.builds(
        wire.Generate,
        model=st.just(CHOICE),
        task=st.builds(
            Task, prompt=st.text(), max_tokens=st.integers(1, 2**40), sampling=st.builds(Sampling)
        ),
        inference_id=st.from_regex(r"\A[A-Za-z0-9._:-]{1,64}\Z"),
        wait_s=st.floats(0, 1e6),
    )
)
def test_any_turn_comes_back_whole(turn: wire.Generate) -> None:
    assert wire.decode_request(wire.encode(turn)) == turn


@pytest.mark.parametrize("request_", REQUESTS, ids=name_of)
def test_fields_of_a_later_version_are_ignored(request_: wire.Request) -> None:
    sent = json.loads(wire.encode(request_)) | {"from_the_future": {"a": [1]}}
    assert wire.decode_request(json.dumps(sent).encode()) == request_


@pytest.mark.parametrize(
    ("frame", "id_"),
    [
        (b'{"type":"dance","id":"7"}', "7"),
        (b'{"id":"7"}', "7"),
        (b'{"type":"load","id":"7","owner":3}', "7"),
        (b'{"type":"kill","id":7,"owner":"o","client_pid":1}', ""),
        (b'{"type":"stop"}', ""),
        (b"", ""),
        (b"null", ""),
        (b"[]", ""),
        (b'"text"', ""),
        (b"\x00\xff", ""),
        (b'{"type":"kill","id":"\xff"}', ""),
        (b"[" * 100_000, ""),
        (b'{"id":"7","x":' + b"[" * 100_000, ""),
        (b'{"type":"welcome","id":"7"}', "7"),
    ],
)
def test_what_is_no_request_is_refused_with_the_id_that_could_be_read(
    frame: bytes, id_: str
) -> None:
    with pytest.raises(ModeldError) as caught:
        wire.decode_request(frame)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert caught.value.details["id"] == id_


@pytest.mark.parametrize(
    "wrong",
    [
        {"inference_id": "a b"},
        {"inference_id": ""},
        {"inference_id": "x" * 65},
        {"inference_id": "x\n"},
        {"deadline_s": 0},
        {"deadline_s": 600.5},
        {"wait_s": -1},
        {"task": {"max_tokens": 0}},
        {"task": {"sampling": {"temp": -1}}},
        {"task": {"sampling": {"seed": 2**32 - 1}}},
        {"task": {"truncate": "middle"}},
        {"model": {"kv_type": "f8"}},
    ],
)
def test_values_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    good = {"type": "generate", **FENCE, "model": {}, "task": {"prompt": "p"}}
    wire.decode_request(json.dumps(good).encode())
    with pytest.raises(ModeldError) as caught:
        wire.decode_request(json.dumps(good | wrong).encode())
    assert caught.value.details["id"] == "1"


def test_a_request_over_the_limit_is_refused_with_both_numbers() -> None:
    frame = b" " * (wire.MAX_REQUEST_BYTES + 1)
    with pytest.raises(ModeldError, match=rf"{len(frame)} .* {wire.MAX_REQUEST_BYTES}") as caught:
        wire.decode_request(frame)
    assert (caught.value.code, caught.value.details["id"]) == (ErrorCode.BAD_REQUEST, "")


@pytest.mark.parametrize(
    "frame", [b"", b"{}", b'{"type":"load"}', b"\xff", b'{"type":"token","id":"' + b"[" * 100_000]
)
def test_what_is_no_reply_is_a_mismatch(frame: bytes) -> None:
    with pytest.raises(ModeldError) as caught:
        wire.decode_reply(frame)
    assert caught.value.code is ErrorCode.PROTOCOL_MISMATCH


FRAMES = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda message, at, byte: (
            (frame := wire.encode(message))[: at % len(frame)]
            + bytes([byte])
            + frame[at % len(frame) + 1 :]
        ),
        st.sampled_from([*REQUESTS, *REPLIES]),
        st.integers(0, 10_000),
        st.integers(0, 255),
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=10,
    ).map(lambda value: json.dumps(value).encode()),
)


@settings(deadline=None, max_examples=500)
@given(FRAMES)
def test_no_bytes_make_decoding_raise_anything_else(frame: bytes) -> None:
    """W4: what comes out is a message or a ModeldError."""
    for decode in (wire.decode_request, wire.decode_reply):
        try:
            decode(frame)
        except ModeldError as error:
            assert error.body().message  # noqa: PT017  (raised or not, both are right)


def test_text_that_is_no_unicode_arrives_escaped() -> None:
    """A path need not be UTF-8; once, naming one in an error ended the daemon."""
    odd = b"/models/\xff".decode("utf-8", "surrogateescape")
    error = ModeldError(ErrorCode.MODEL_NOT_FOUND, f"no {odd}", path=odd, more=[{odd: 1}])
    reply = wire.decode_reply(wire.encode(wire.Failed(id="x", error=error.body())))
    assert isinstance(reply, wire.Failed)
    assert reply.error.details == {"path": "/models/\\udcff", "more": [{"/models/\\udcff": 1}]}


@pytest.mark.parametrize(
    "fields",
    [
        '"task":{}',
        '"task":{"prompt":"x","messages":[]}',
        '"task":{"prompt":"x"},"model":{"ctx":-5}',
        '"task":{"prompt":"x"},"model":{"ctx":0}',
        '"task":{"prompt":"x"},"model":{"threads":0}',
        '"task":{"prompt":"x"},"model":{"batch":0}',
        '"task":{"prompt":"x"},"wait_s":-1',
        '"task":{"prompt":"x"},"deadline_s":601',
        '"task":{"prompt":"x","max_tokens":0}',
        '"task":{"prompt":"x","sampling":{"temp":-1}}',
    ],
)
def test_values_that_make_no_sense_are_refused_as_they_come(fields: str) -> None:
    model = "" if '"model"' in fields else ',"model":{}'
    frame = f'{{"type":"generate","id":"g","owner":"o","client_pid":1,{fields}{model}}}'
    with pytest.raises(ModeldError) as caught:
        wire.decode_request(frame.encode())
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert caught.value.details == {"id": "g"}
