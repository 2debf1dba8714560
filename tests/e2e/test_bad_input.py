"""Each row of the exit table: its status, one or two lines, never a traceback."""

import json
import os

import pytest
from raw import Raw
from rig import Finished, Rig


def assert_refused(done: Finished, status: int, *words: str) -> None:
    assert done.status == status, done
    assert done.out == ""
    assert 1 <= len(done.err.splitlines()) <= 2, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"caf\xe9 ole", "3"),
        (b"ab\x00cd", "2"),
    ],
    ids=["empty", "blank", "latin-1", "nul"],
)
def test_prompts_that_are_none_are_refused(rig: Rig, data: bytes, word: str) -> None:
    """B63, B65f."""
    assert_refused(rig.modeld("gen", "-m", rig.echo_model(), input=data), 2, word)


@pytest.mark.parametrize(
    "args",
    [
        ("gen", "--max-tokens", "0", "x"),
        ("gen", "--temp", "-1", "x"),
        ("gen", "--deadline", "0", "x"),
        ("gen", "--deadline", "700s", "x"),
        ("gen", "--wait", "soon", "x"),
        ("gen", "--id", "no blanks", "x"),
        ("gen", "--messages", "/nonexistent", "x"),
        ("load",),
        ("lod", "x"),
        ("kill", "a", "b"),
        ("ps", "--nonsense"),
    ],
)
def test_usage_errors_exit_2_without_a_daemon(rig: Rig, args: tuple[str, ...]) -> None:
    done = rig.modeld(*args)
    assert done.status == 2
    assert "Traceback" not in done.err
    assert not os.path.exists(os.path.join(rig.root, "owner.json"))


@pytest.mark.parametrize("args", [("ps",), ("kill",), ("gen", "x"), ("load", "m")])
def test_no_daemon_and_no_start_exits_3(rig: Rig, args: tuple[str, ...]) -> None:
    done = rig.modeld(*args, "--no-start")
    assert_refused(done, 3)
    done = rig.modeld("--json", "--no-start", *args)
    assert done.status == 3
    assert done.json["error"]["code"] == "not_running"


@pytest.mark.parametrize("verb", ["unload", "reap"])
def test_nothing_to_release_without_a_daemon_is_success(rig: Rig, verb: str) -> None:
    assert rig.modeld(verb, env={"MODELD_NO_START": "1"}).status == 0


def test_models_that_cannot_be_exit_7(rig: Rig) -> None:
    nothing = os.path.join(rig.base, "nothing.gguf")
    assert_refused(rig.modeld("gen", "-m", nothing, "x"), 7, nothing)
    assert_refused(rig.modeld("gen", "-m", "no-such-name", "x"), 7, "no-such-name")
    assert_refused(rig.modeld("load", "../../etc"), 7)
    for name, content in {
        "text.gguf": b"this is no model",
        "short.gguf": b"GGUF\x03\0\0\0",
        "empty.gguf": b"",
        "bad.toml": b"= =",
    }.items():
        path = os.path.join(rig.base, name)
        with open(path, "wb") as file:
            file.write(content)
        assert_refused(rig.modeld("gen", "-m", path, "x"), 7, name)
    assert_refused(rig.modeld("load", rig.echo_model("odd", nonsense=1)), 7, "nonsense")
    assert_refused(rig.modeld("load", rig.echo_model(), "--backend", "llama"), 7, "llama")


def test_explicit_resident_is_not_switched_away_unasked(rig: Rig) -> None:
    """B4, C1."""
    a, b = rig.echo_model("a"), rig.echo_model("b")
    assert rig.modeld("load", a).status == 0
    worker = rig.ps()["active"]["worker"]["pid"]
    assert_refused(rig.modeld("gen", "-m", b, "x"), 5, "--switch")
    assert_refused(rig.modeld("gen", "-m", a, "--ctx", "1024", "x"), 5, "--switch")
    assert rig.ps()["active"]["worker"]["pid"] == worker
    done = rig.modeld("gen", "-m", b, "--switch", "--json", "x")
    assert (done.status, done.json["residency"]["explicit"]) == (0, False)
    assert rig.ps()["generation"] == 3


def test_stale_generation_exits_5(rig: Rig) -> None:
    model = rig.echo_model()
    assert rig.modeld("load", model).status == 0
    assert_refused(rig.modeld("load", model, "--if-generation", "99"), 5, "generation")
    assert rig.modeld("load", model, "--if-generation", "1").status == 0


def test_requests_of_strangers_are_typed_refusals_and_change_nothing(rig: Rig) -> None:
    """C9, C11, W2, W4."""
    assert rig.modeld("load", rig.echo_model()).status == 0
    with Raw(rig.root) as raw:
        before = raw.ps()
        for frame in (b"", b"\xff\xfe", b"{", b"[]", b'{"type":"nonsense","id":"n"}', b"x" * 5000):
            raw.socket.send(frame)
            assert raw.receive()["error"]["code"] == "bad_request"
        assert raw.ask("unload", owner="")["error"]["code"] == "stale_fence"
        assert raw.ask("unload", owner="0" * 32)["error"]["code"] == "stale_fence"
        raw.socket.send(json.dumps({"type": "hello", "protocol": 99, "version": "9"}).encode())
        mismatch = raw.receive()["error"]
        assert mismatch["code"] == "protocol_mismatch"
        assert (mismatch["details"]["min"], mismatch["details"]["max"]) == (1, 1)
        raw.socket.send_multipart([b"a", b"b"])
        after = raw.ps()
        assert after["generation"] == before["generation"]
        assert after["active"]["worker"]["pid"] == before["active"]["worker"]["pid"]


def test_reading_never_counts_as_use(rig: Rig) -> None:
    """B7, B30."""
    assert rig.modeld("load", rig.echo_model()).status == 0
    with Raw(rig.root) as raw:
        first = raw.ps()
        for _ in range(1000):
            last = raw.ps()
        assert last["idle"]["idle_for_s"] > first["idle"]["idle_for_s"]
        assert last["generation"] == first["generation"]
