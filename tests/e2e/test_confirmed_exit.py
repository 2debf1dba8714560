"""The guarantee: when modeld says that a worker is gone, the kernel has said so first."""

import os
import signal
from typing import Any

import psutil
import pytest
from raw import Raw
from rig import Finished, Rig, alive, smollm2_path, wait_until

GIB = 1024**3


def assert_confirmed(rig: Rig, done: Finished, status: str = "cancelled_confirmed") -> Any:
    """What must be true at the instant that a confirmed ack is there."""
    assert done.status == 0, done
    ack = done.json
    assert ack["status"] == status
    assert ack["evidence"] == "waited"
    assert ack["allocation_retired"]
    assert ack["exit"]["kind"] in {"signal", "code"}
    assert ack["generation_after"] == ack["generation_before"] + 1
    worker = ack["worker"]
    assert not alive(worker["pid"], worker["start_time"])
    state = rig.ps()
    assert (state["memory"]["charged"], state["active"]) == (0, None)
    children = psutil.Process(state["daemon"]["pid"]).children()
    assert [c for c in children if c.status() == psutil.STATUS_ZOMBIE] == []
    return ack


def streaming(rig: Rig, *args: str) -> Any:
    """A stream that has given its first token, and the inference's id."""
    process = rig.spawn("stream", "--json", *args)
    assert process.stdout is not None
    for line in process.stdout:
        if b'"token"' in line:
            break
    else:
        raise AssertionError(rig.finish(process))
    return process, rig.ps()["inflight"][0]["id"]


def kill_in_the_middle(rig: Rig, model: str, rounds: int) -> None:
    """A load that needs all the memory fits each time, so the charge was really dropped."""
    assert rig.modeld("load", model, timeout=100).status == 0
    name = rig.ps()["active"]["path"]
    with Raw(rig.root) as raw:
        daemon = psutil.Process(raw.record["pid"])
        for number in range(rounds):
            stream = raw.stream(name, inference_id=f"i{number}")
            done = rig.modeld("kill", f"i{number}", "--json")
            # From here on everything must be true already: nothing is waited for.
            ack = done.json
            assert not alive(ack["worker"]["pid"], ack["worker"]["start_time"])
            assert [c for c in daemon.children() if c.status() == psutil.STATUS_ZOMBIE] == []
            ended = list(raw.replies(stream))[-1]
            assert ended["error"]["code"] == "controlled_termination"
            state = raw.ps()
            assert (state["memory"]["charged"], state["active"]) == (0, None)
            assert (done.status, ack["status"]) == (0, "cancelled_confirmed")
            assert (ack["evidence"], ack["allocation_retired"]) == ("waited", True)
            assert (ack["inference_id"], ack["signals"]) == (f"i{number}", ["TERM"])
            assert ack["generation_after"] == ack["generation_before"] + 1


@pytest.mark.timeout(600)
def test_kill_200_times_in_the_middle_of_a_stream(rig: Rig) -> None:
    rig.env |= {"MODELD_MEM_MAX": str(int(0.075 * GIB))}
    kill_in_the_middle(rig, rig.echo_model(tokens=100000, tok_sleep=0.005, rss_mb=32), 200)


@pytest.mark.model
@pytest.mark.timeout(400)
@pytest.mark.skipif(smollm2_path() is None, reason="the smollm2 extra is not installed")
def test_kill_20_times_in_the_middle_of_a_real_stream(rig: Rig) -> None:
    rig.env |= {"MODELD_MEM_MAX": str(int(0.45 * GIB))}
    kill_in_the_middle(rig, "smollm2", 20)


def test_second_model_is_refused_while_the_first_is_charged_and_fits_after_the_kill(
    rig: Rig,
) -> None:
    rig.env |= {"MODELD_MEM_MAX": str(int(0.1 * GIB))}
    first = rig.echo_model("first", rss_mb=40)
    huge = rig.echo_model("huge", rss_mb=400)
    assert rig.modeld("load", first).status == 0
    refused = rig.modeld("load", huge, "--json")
    assert refused.status == 6
    details = refused.json["error"]["details"]
    assert details["required_bytes"] > details["usable_bytes"]
    assert details["recovery"]
    assert rig.ps()["active"]["model"] == "first"
    assert_confirmed(rig, rig.modeld("kill", "--json"), "released_confirmed")
    second = rig.echo_model("second", rss_mb=44)
    assert rig.modeld("load", second).status == 0


def test_stopped_worker_is_killed_and_confirmed(rig: Rig) -> None:
    model = rig.echo_model(tokens=1000, tok_sleep=0.01)
    process, id_ = streaming(rig, "-m", model, "go on")
    worker = rig.ps()["active"]["worker"]
    os.kill(worker["pid"], signal.SIGSTOP)
    ack = assert_confirmed(rig, rig.modeld("kill", id_, "--json"))
    assert ack["signals"] == ["TERM", "KILL"]
    assert ack["exit"] == {"kind": "signal", "value": 9}
    assert rig.finish(process).status == 12


def test_worker_that_ignores_sigterm_gets_sigkill_and_the_ack_says_so(rig: Rig) -> None:
    model = rig.echo_model(ignore_term=True)
    assert rig.modeld("load", model).status == 0
    ack = assert_confirmed(rig, rig.modeld("kill", "--json"), "released_confirmed")
    assert ack["signals"] == ["TERM", "KILL"]


def test_grandchild_that_holds_the_pipe_delays_nothing_and_goes_too(rig: Rig) -> None:
    model = rig.echo_model(fork_child=True)
    assert rig.modeld("load", model).status == 0
    pid = rig.ps()["active"]["worker"]["pid"]
    grandchildren = psutil.Process(pid).children()
    assert len(grandchildren) == 1
    ack = assert_confirmed(rig, rig.modeld("kill", "--json"), "released_confirmed")
    assert ack["signals"] == ["TERM"]
    assert wait_until(lambda: not grandchildren[0].is_running())


@pytest.mark.parametrize("switch", ["close_hang", "ignore_term"])
def test_unload_that_meets_a_deaf_worker_escalates(rig: Rig, switch: str) -> None:
    """B01, B13: it has a deadline, and says which step ended the worker."""
    os.makedirs(f"{rig.env['XDG_CONFIG_HOME']}/modeld")
    with open(f"{rig.env['XDG_CONFIG_HOME']}/modeld/config.toml", "w", encoding="utf-8") as file:
        file.write('[grace]\nleave = "300ms"\nterm = "300ms"\n')
    switches = {"close_hang": True, switch: True}
    assert rig.modeld("load", rig.echo_model(**switches)).status == 0
    ack = assert_confirmed(rig, rig.modeld("unload", "--json"), "released_confirmed")
    assert ack["signals"] == (["TERM", "KILL"] if switch == "ignore_term" else ["TERM"])


def test_unload_is_polite_idempotent_and_spares_a_turn(rig: Rig) -> None:
    """B6, B02, B05."""
    model = rig.echo_model(tokens=1000, tok_sleep=0.01)
    process, _ = streaming(rig, "-m", model, "go on")
    busy = rig.modeld("unload", "--json")
    assert busy.status == 5
    assert busy.json["error"]["code"] == "model_busy"
    assert busy.json["error"]["details"]["busy_operation"] == "decode"
    process.send_signal(signal.SIGINT)
    assert rig.finish(process).status == 130
    wait_until(lambda: rig.ps()["state"] == "Ready")
    ack = assert_confirmed(rig, rig.modeld("unload", "--json"), "released_confirmed")
    assert (ack["signals"], ack["exit"]) == ([], {"kind": "code", "value": 0})
    again = rig.modeld("unload", "--json")
    assert (again.status, again.json["status"]) == (0, "nothing_resident")


def test_kill_names_are_exact(rig: Rig) -> None:
    """A17: a finished id takes down nothing, a waiting one only itself."""
    model = rig.echo_model(tokens=60, tok_sleep=0.02)
    first = rig.modeld("gen", "-m", rig.echo_model("quick"), "--id", "A", "hello")
    assert first.status == 0
    process, running = streaming(rig, "-m", model, "--id", "B", "go on")
    assert running == "B"
    waiting = rig.spawn("gen", "-m", model, "--id", "C", "later")
    wait_until(lambda: rig.ps()["queue"])
    finished = rig.modeld("kill", "A", "--json")
    assert (finished.status, finished.json["status"]) == (0, "already_terminal")
    queued = rig.modeld("kill", "C", "--json")
    assert (queued.json["status"], queued.json["evidence"]) == (
        "cancelled_confirmed",
        "not_started",
    )
    assert rig.finish(waiting).status == 12
    unknown = rig.modeld("kill", "nosuch", "--json")
    assert (unknown.status, unknown.json["status"]) == (3, "unknown")
    assert rig.finish(process).status == 0


def test_kill_of_an_empty_slot_says_that_there_is_nothing(rig: Rig) -> None:
    done = rig.modeld("kill", "--json")
    assert (done.status, done.json["status"]) == (3, "nothing_resident")


def test_kill_ends_a_load_in_progress(rig: Rig) -> None:
    """G8, F4."""
    loading = rig.spawn("load", rig.echo_model(load_sleep=60), "--json")
    wait_until(lambda: rig.ps()["state"] == "Loading")
    done = rig.modeld("kill", "--json")
    assert (done.status, done.json["evidence"]) == (0, "waited")
    assert not alive(done.json["worker"]["pid"], done.json["worker"]["start_time"])
    assert rig.finish(loading).status == 12
    state = rig.ps()
    assert (state["state"], state["memory"]["charged"]) == ("Empty", 0)


def test_deadline_kills_and_confirms_and_keeps_the_text(rig: Rig) -> None:
    """A22."""
    model = rig.echo_model(tokens=1000, tok_sleep=0.05)
    assert rig.modeld("load", model).status == 0
    done = rig.modeld("gen", "-m", model, "--deadline", "500ms", "--json", "go")
    assert done.status == 12
    error = done.json["error"]
    assert error["code"] == "deadline_exceeded"
    assert error["details"]["applied_ms"] == 500
    assert error["details"]["partial_text"].startswith("w0")
    assert error["details"]["ack"]["status"] == "deadline_exceeded_confirmed"
    assert rig.ps()["active"] is None


def test_transient_gen_leaves_nothing(rig: Rig) -> None:
    """A5."""
    done = rig.modeld("gen", "-m", rig.echo_model(), "--transient", "--json", "hello")
    assert done.status == 0
    assert done.json["residency"] == {
        "retained": False,
        "allocation_id": None,
        "generation": 2,
        "explicit": False,
    }
    assert not alive(done.json["worker"]["pid"], done.json["worker"]["start_time"])
    assert rig.ps()["state"] == "Empty"
