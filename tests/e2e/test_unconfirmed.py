"""What is not proven is not claimed: exits that are not seen in time, and the rows beside them."""

import fcntl
import json
import os
import threading
from collections.abc import Callable

import pytest
import zmq
from raw import Raw
from rig import Finished, Rig, smollm2_path, wait_until


def impatient(rig: Rig) -> None:
    """A configuration that gives the kernel no time at all to end a process."""
    folder = os.path.join(rig.env["XDG_CONFIG_HOME"], "modeld")
    os.makedirs(folder)
    with open(os.path.join(folder, "config.toml"), "w", encoding="utf-8") as file:
        file.write('[grace]\nterm = "0"\nkill = "0"\n')


def test_exit_that_is_not_seen_in_time_is_unconfirmed_charged_and_resolves_itself(
    rig: Rig,
) -> None:
    """A13, A20, A21, F8: a process with much memory takes a moment to go."""
    impatient(rig)
    assert rig.modeld("load", rig.echo_model(rss_mb=1500), timeout=60).status == 0
    with Raw(rig.root) as raw:
        id_ = raw.send("kill")
        status_id = raw.send("status")
        replies = {r["id"]: r for r in (raw.receive(), raw.receive())}
        ack = replies[id_]["ack"]
        if ack["status"] != "termination_unconfirmed":
            pytest.skip("this kernel was faster than no time at all")
        assert (ack["evidence"], ack["allocation_retired"]) == ("none", False)
        status = replies[status_id]
        if status["state"] == "Unconfirmed":
            assert status["memory"]["charged"] > 1500 * 1024**2
        after = wait_until(lambda: (s := raw.ps())["state"] == "Empty" and s)
    assert after["memory"]["charged"] == 0
    assert (after["last_exit"]["evidence"], after["last_exit"]["late"]) == ("waited", True)
    assert rig.modeld("gen", "-m", rig.echo_model("next"), "hello").out == "hello\n"
    assert rig.modeld("unload").status == 0


def test_unconfirmed_kill_exits_9(rig: Rig) -> None:
    impatient(rig)
    assert rig.modeld("load", rig.echo_model(rss_mb=1500), timeout=60).status == 0
    done = rig.modeld("kill", "--json")
    if done.json["status"] == "termination_unconfirmed":
        assert done.status == 9
    wait_until(lambda: rig.ps()["state"] == "Empty")


@pytest.mark.model
@pytest.mark.skipif(smollm2_path() is None, reason="the smollm2 extra is not installed")
def test_prompt_that_does_not_fit_exits_11_with_the_numbers(rig: Rig) -> None:
    """B65, B65b, E17."""
    prompt = "word " * 600
    done = rig.modeld("gen", "--ctx", "256", "--json", input=prompt, timeout=100)
    assert done.status == 11
    error = done.json["error"]
    assert error["code"] == "context_overflow"
    assert error["details"]["ctx"] == 256
    assert error["details"]["prompt_tokens"] > 600
    cut = rig.modeld(
        "gen", "--truncate", "head", "--max-tokens", "4", "--json", input=prompt, timeout=60
    )
    assert cut.status == 0
    assert cut.json["truncated_tokens"] > 300


@pytest.mark.model
@pytest.mark.skipif(smollm2_path() is None, reason="the smollm2 extra is not installed")
def test_context_that_memory_makes_smaller_is_said_once(rig: Rig) -> None:
    """Nothing is cut silently: not the context either."""
    rig.env |= {"MODELD_MEM_MAX": "300M"}
    first = rig.modeld("gen", "--max-tokens", "2", "hi", timeout=100)
    assert first.status == 0
    assert "of 8192 tokens" in first.err
    assert rig.ps()["active"]["config"]["ctx"] < 8192
    again = rig.modeld("gen", "--max-tokens", "2", "hi", timeout=60)
    assert (again.status, again.err) == (0, "")


def test_daemon_of_another_protocol_exits_10(rig: Rig, pretender: Callable[[], str]) -> None:
    done: Finished = rig.modeld("ps", "--root", pretender())
    assert done.status == 10
    assert "stop --force" in done.err


@pytest.fixture
def pretender(rig: Rig):
    """A process that holds a root's lock and answers hello as a daemon of protocol 99 would."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    root = os.path.join(rig.base, "p")
    os.mkdir(root, 0o700)
    endpoint = f"ipc://{root}/modeld.sock"
    router.bind(endpoint)
    lock = os.open(os.path.join(root, "owner.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    record = {
        "owner": "o",
        "pid": os.getpid(),
        "birth": "0",
        "start_time": 0.0,
        "boot_id": "b",
        "host": "h",
        "endpoint": endpoint,
        "protocol": 99,
        "version": "99",
    }

    def answer() -> None:
        while router.poll(10_000):
            route, frame = router.recv_multipart()
            if frame == b"end":
                return
            error = {"code": "protocol_mismatch", "message": "I speak 99", "details": {}}
            error["details"] = {"recovery": "modeld stop --force, then try again"}
            reply = {"type": "error", "id": json.loads(frame)["id"], "error": error}
            router.send_multipart([route, json.dumps(reply).encode()])

    def begin() -> str:
        with open(os.path.join(root, "owner.json"), "w", encoding="utf-8") as file:
            json.dump(record, file)
        return root

    thread = threading.Thread(target=answer)
    thread.start()
    yield begin
    end = context.socket(zmq.DEALER)
    end.connect(endpoint)
    end.send(b"end")
    thread.join()
    end.close()
    router.close()
    os.close(lock)
    context.term()
