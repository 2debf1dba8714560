"""Deaths that nobody ordered: of the worker, of the daemon, of a client."""

import os
import signal

import psutil
import pytest
from raw import Raw
from rig import Rig, alive, smollm2_path, wait_until

MODELS = [
    "echo",
    pytest.param(
        "llama",
        marks=[
            pytest.mark.model,
            pytest.mark.skipif(smollm2_path() is None, reason="the smollm2 extra is missing"),
        ],
    ),
]


def long_model(rig: Rig, backend: str) -> str:
    """A model that is long at its answer."""
    if backend == "llama":
        return "smollm2"
    return rig.echo_model("long", tokens=100000, tok_sleep=0.01)


def resident(rig: Rig, backend: str) -> tuple[str, psutil.Process, float]:
    """A loaded model's path, its worker, and the worker's start time."""
    assert rig.modeld("load", long_model(rig, backend), timeout=100).status == 0
    active = rig.ps()["active"]
    worker = active["worker"]
    return active["path"], psutil.Process(worker["pid"]), worker["start_time"]


@pytest.mark.parametrize("backend", MODELS)
def test_killed_worker_is_seen_at_once_fails_its_request_and_is_replaced(
    rig: Rig, backend: str
) -> None:
    """A3, A10, F9."""
    model, worker, _ = resident(rig, backend)
    with Raw(rig.root) as raw:
        stream = raw.stream(model)
        daemon = raw.ps()["daemon"]
        worker.kill()
        failed = list(raw.replies(stream))[-1]["error"]
        assert (failed["code"], failed["details"]["signal"]) == ("worker_died", 9)
        assert failed["details"]["partial_text"]
        status = raw.ps()
        assert (status["state"], status["active"], status["memory"]["charged"]) == (
            "Failed",
            None,
            0,
        )
        assert "signal 9" in status["last_error"]
        assert status["last_exit"]["cause"] == "crash"
        assert status["generation"] == 2
    again = rig.modeld("gen", "-m", model, "--max-tokens", "3", "--json", "hello", timeout=60)
    assert again.status == 0
    assert again.json["worker"]["pid"] != worker.pid
    assert rig.ps()["daemon"]["pid"] == daemon["pid"]


@pytest.mark.parametrize("backend", MODELS)
def test_worker_killed_while_idle_is_noticed_unasked(rig: Rig, backend: str) -> None:
    """F7."""
    _, worker, start_time = resident(rig, backend)
    worker.kill()
    wait_until(lambda: rig.ps()["active"] is None, timeout=2)
    status = rig.ps()
    assert status["last_exit"]["worker"]["start_time"] == start_time
    assert status["last_exit"]["exit"] == {"kind": "signal", "value": 9}
    assert (status["state"], status["generation"], status["inflight"]) == ("Failed", 2, [])


def test_gen_whose_worker_dies_exits_8_with_nothing_on_stdout(rig: Rig) -> None:
    """B65g: an error after partial output is an error."""
    model = rig.echo_model(tokens=10, abort_at=3)
    done = rig.modeld("gen", "-m", model, "x")
    assert (done.status, done.out) == (8, "")
    assert "signal 6" in done.err
    assert "Traceback" not in done.err
    streamed = rig.modeld("stream", "-m", model, "--json", "x")
    assert streamed.status == 8
    kinds = [event["type"] for event in streamed.events]
    assert kinds.count("token") == 3
    assert kinds[-1] == "error"


@pytest.mark.parametrize(
    ("switches", "said"),
    [
        ({"abort_at": 0}, "signal 6"),
        ({"segv_at": 2}, "signal 11"),
        ({"exit_at": 2}, "code 0"),
        ({"fatal_at": 2}, ""),
        ({"garbage_at": 2}, ""),
    ],
)
def test_each_way_to_break_is_one_failed_request_and_the_daemon_lives(
    rig: Rig, switches: dict[str, int], said: str
) -> None:
    good = rig.echo_model("good")
    assert rig.modeld("gen", "-m", good, "hello").out == "hello\n"
    daemon = rig.ps()["daemon"]
    done = rig.modeld("gen", "-m", rig.echo_model("bad", tokens=9, **switches), "x", "--json")
    assert done.status == 8
    assert done.json["error"]["code"] in {"worker_died", "session_fatal"}
    assert said in done.json["error"]["message"]
    assert rig.modeld("gen", "-m", good, "hello").out == "hello\n"
    assert rig.ps()["daemon"] | {"uptime_s": 0} == daemon | {"uptime_s": 0}


def test_load_that_fails_says_why_and_is_not_sticky(rig: Rig) -> None:
    """F2, F3, F5."""
    good, bad = rig.echo_model("good"), rig.echo_model("bad", open_error="no such tensor")
    assert rig.modeld("load", good).status == 0
    done = rig.modeld("load", bad, "--json")
    assert done.status == 7
    assert done.json["error"]["code"] == "model_load_failed"
    status = rig.ps()
    assert (status["state"], status["active"], status["memory"]["charged"]) == ("Failed", None, 0)
    assert rig.modeld("load", good).status == 0
    status = rig.ps()
    assert (status["state"], status["last_error"]) == ("Ready", None)


def test_crash_in_warm_up_comes_up_in_safe_mode_and_says_so(rig: Rig) -> None:
    model = rig.echo_model(warmup_crash_unless_safe=True)
    done = rig.modeld("load", model)
    assert done.status == 0
    assert "safe mode" in done.err or "safe_mode" in done.err
    status = rig.ps()
    assert status["active"]["degraded"]
    assert status["last_exit"]["exit"] == {"kind": "signal", "value": 11}
    assert rig.modeld("gen", "hello").out == "hello\n"


@pytest.mark.parametrize("backend", MODELS)
def test_killed_daemon_takes_its_worker_along_and_is_replaced_by_exactly_one(
    rig: Rig, backend: str
) -> None:
    """H14, B06, B07, C10."""
    model, worker, start_time = resident(rig, backend)
    with Raw(rig.root) as raw:
        raw.stream(model)
        old = raw.record
        os.kill(old["pid"], signal.SIGKILL)
    wait_until(lambda: not alive(worker.pid, start_time), timeout=2)
    done = rig.modeld("gen", "-m", model, "--max-tokens", "3", "hello", timeout=60)
    assert done.status == 0
    assert rig.ps()["owner"] != old["owner"]
    daemons = [p for p in rig.processes() if "modeld.daemon" in p.cmdline()]
    assert len(daemons) == 1


def test_killed_daemon_takes_even_a_worker_along_that_hangs_in_native_code(rig: Rig) -> None:
    hanging = rig.echo_model(tokens=5, hang_at=2)
    client = rig.spawn("stream", "-m", hanging, "x")
    worker = wait_until(lambda: (a := rig.ps()["active"]) and a["worker"])
    wait_until(lambda: rig.ps()["inflight"][0]["tokens"] == 2)
    os.kill(rig.ps()["daemon"]["pid"], signal.SIGKILL)
    wait_until(lambda: not alive(worker["pid"], worker["start_time"]), timeout=2)
    assert rig.finish(client).status in {4, 8}


def test_killed_client_frees_the_slot(rig: Rig) -> None:
    """G3, G6, B33: the generation does not go on for nobody."""
    model = rig.echo_model(tokens=100000, tok_sleep=0.01)
    client = rig.spawn("stream", "-m", model, "x")
    wait_until(lambda: rig.ps()["state"] == "Busy")
    client.kill()
    status = wait_until(lambda: (s := rig.ps())["state"] == "Ready" and s, timeout=4)
    assert status["inflight"] == []


def test_killed_client_of_a_deaf_worker_costs_the_worker(rig: Rig) -> None:
    """G2: never ready without the worker's own word."""
    client = rig.spawn("stream", "-m", rig.echo_model(tokens=9, hang_at=3), "x")
    worker = wait_until(lambda: (a := rig.ps()["active"]) and a["worker"])
    wait_until(lambda: rig.ps()["inflight"][0]["tokens"] == 3)
    client.kill()
    wait_until(lambda: rig.ps()["state"] == "Empty")
    assert not alive(worker["pid"], worker["start_time"])
    assert rig.ps()["last_exit"]["cause"] == "cancel"
