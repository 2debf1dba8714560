"""Commands in a real shell's conditions: pipes, signals, full disks, daemons that come and go."""

import json
import os
import signal
import subprocess
import time

import psutil
import pytest
from rig import Rig, alive, wait_until


def first_byte(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.read(1)


def test_gen_and_stream_print_the_same_bytes(rig: Rig) -> None:
    model = rig.echo_model(tokens=5)
    whole = rig.modeld("gen", "-m", model, "hi")
    assert whole.status == 0
    assert whole.out.endswith("\n")
    assert not whole.out.endswith("\n\n")
    assert rig.modeld("stream", "hi") == whole


def test_events_of_a_stream(rig: Rig) -> None:
    model = rig.echo_model(tokens=5)
    events = rig.modeld("stream", "--json", "-m", model, "hi").events
    kinds = [event["type"] for event in events if event["type"] != "progress"]
    assert kinds == ["start", *["token"] * 5, "end"]
    assert [event["seq"] for event in events if event["type"] == "token"] == list(range(5))
    assert all("id" not in event for event in events)
    assert events[-1]["residency"]["retained"] is True


def test_an_error_ends_the_events(rig: Rig) -> None:
    model = rig.echo_model(tokens=9, abort_at=3)
    done = rig.modeld("stream", "--json", "-m", model, "hi")
    assert done.status == 8
    assert done.events[-1]["type"] == "error"
    assert done.events[-1]["error"]["code"] == "worker_died"


def test_gen_prints_nothing_if_it_fails(rig: Rig) -> None:
    done = rig.modeld("gen", "-m", rig.echo_model(tokens=9, abort_at=3), "hi")
    assert (done.status, done.out) == (8, "")
    assert "Traceback" not in done.err


def test_a_full_disk(rig: Rig) -> None:
    model = rig.echo_model(tokens=5)
    for verb in ("gen", "stream"):
        with open("/dev/full", "wb") as full:
            done = rig.finish(rig.spawn(verb, "-m", model, "hi", stdout=full))
        assert done.status == 1
        assert done.err == "modeld: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("verb", ["gen", "stream"])
def test_a_reader_that_leaves_cancels_the_turn(rig: Rig, verb: str) -> None:
    """B44, also while no text comes."""
    model = rig.echo_model(tokens=500, tok_sleep=0.1)
    rig.modeld("load", model)
    process = rig.spawn(verb, "hi", bufsize=0)
    wait_until(lambda: rig.ps()["inflight"])
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    done = rig.finish(process)
    assert (done.status, done.err) == (141, "")
    wait_until(lambda: not rig.ps()["inflight"])


def test_an_interrupt_keeps_daemon_and_model(rig: Rig) -> None:
    """B42."""
    rig.modeld("load", rig.echo_model(tokens=500, tok_sleep=0.05, cancel_cooperative=True))
    before = rig.ps()
    process = rig.spawn("stream", "hi", bufsize=0)
    first = first_byte(process)
    process.send_signal(signal.SIGINT)
    done = rig.finish(process)
    assert (done.status, done.err) == (130, "")
    assert (first.decode() + done.out).endswith("\n")
    after = rig.ps()
    assert after["daemon"]["pid"] == before["daemon"]["pid"]
    assert after["inflight"] == []


def test_a_second_interrupt_kills_the_worker(rig: Rig) -> None:
    rig.modeld("load", rig.echo_model(tokens=500, tok_sleep=0.05, hang_at=3))
    worker = rig.ps()["active"]["worker"]
    process = rig.spawn("stream", "hi", bufsize=0)
    first_byte(process)
    wait_until(lambda: rig.ps()["inflight"][0]["tokens"] >= 2)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert rig.finish(process).status == 130
    wait_until(lambda: not alive(worker["pid"], worker["start_time"]))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_the_client_ends_the_turn(
    rig: Rig, number: signal.Signals, status: int
) -> None:
    rig.modeld("load", rig.echo_model(tokens=500, tok_sleep=0.05))
    process = rig.spawn("stream", "hi", bufsize=0)
    first_byte(process)
    process.send_signal(number)
    assert rig.finish(process, timeout=5).status == status
    wait_until(lambda: not rig.ps()["inflight"])


def test_a_reader_that_stops_reading_does_not_hold_an_interrupt_up(rig: Rig) -> None:
    """G3: the pipe is full, and the command still ends, as does the turn."""
    rig.modeld("load", rig.echo_model(tokens=1_000_000))
    reading, writing = os.pipe()
    process = rig.spawn("stream", "--max-tokens", "1000000", "hi", stdout=writing)
    os.close(writing)
    wait_until(lambda: rig.ps()["inflight"])
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert rig.finish(process, timeout=10).status in {130, 12}
    wait_until(lambda: not rig.ps()["inflight"])
    os.close(reading)


def test_the_daemon_holds_nothing_of_its_starter(rig: Rig) -> None:
    """H12, trap 50: a pipeline ends when the command does."""
    rig.modeld("ps")
    daemon = psutil.Process(rig.ps()["daemon"]["pid"])
    assert daemon.cwd() == "/"
    assert os.getsid(daemon.pid) == daemon.pid
    paths = {os.readlink(f"/proc/{daemon.pid}/fd/{fd}") for fd in (0, 1, 2)}
    assert paths == {"/dev/null", os.path.join(rig.root, "daemon.log")}
    locks = os.listdir(f"/proc/{daemon.pid}/fd")
    held = {os.readlink(f"/proc/{daemon.pid}/fd/{fd}") for fd in locks if fd.isdigit()}
    assert os.path.join(rig.root, "start.lock") not in held


def test_twenty_commands_start_one_daemon(rig: Rig) -> None:
    """H1."""
    running = [rig.spawn("ps", "--json") for _ in range(20)]
    done = [rig.finish(process, timeout=60) for process in running]
    assert {one.status for one in done} == {0}
    assert len({json.loads(one.out)["owner"] for one in done}) == 1


def test_a_daemon_that_cannot_start_says_why(rig: Rig) -> None:
    """H11: the reason, not a time-out."""
    os.makedirs(os.path.join(rig.base, "config", "modeld"))
    with open(os.path.join(rig.base, "config", "modeld", "config.toml"), "w") as file:
        file.write("idle_ttl = ")
    done = rig.modeld("ps")
    assert done.status in {2, 4}
    assert "config.toml" in done.err
    assert "Traceback" not in done.err


def test_a_mute_daemon_is_named_and_can_be_ended_by_force(rig: Rig) -> None:
    """H11: no rival, no take-over; ``stop --force`` kills exactly it."""
    rig.modeld("load", rig.echo_model(tokens=5))
    status = rig.ps()
    daemon, worker = status["daemon"], status["active"]["worker"]
    os.kill(daemon["pid"], signal.SIGSTOP)
    done = rig.modeld("ps")
    assert done.status == 4
    assert f"pid {daemon['pid']}" in done.err
    assert "modeld stop --force" in done.err
    assert len({p.pid for p in rig.processes()}) == 2
    stopped = rig.modeld("stop", "--force", "--json")
    assert stopped.status == 0
    assert not alive(daemon["pid"], daemon["start_time"])
    assert not alive(worker["pid"], worker["start_time"])
    assert rig.ps()["owner"] != status["owner"]


def test_the_daemons_death_is_noticed_at_once(rig: Rig) -> None:
    rig.modeld("load", rig.echo_model(tokens=500, tok_sleep=0.05))
    process = rig.spawn("gen", "--json", "hi")
    wait_until(lambda: rig.ps()["inflight"])
    begun = time.monotonic()
    os.kill(rig.ps()["daemon"]["pid"], signal.SIGKILL)
    done = rig.finish(process)
    assert done.status == 4
    assert done.json["error"]["code"] == "outcome_unknown"
    assert time.monotonic() - begun < 5


def test_a_command_right_after_stop_gets_a_new_daemon(rig: Rig) -> None:
    """B25."""
    owners = set()
    for _ in range(3):
        owners.add(rig.ps()["owner"])
        assert rig.modeld("stop").status == 0
        assert rig.processes() == []
    assert len(owners) == 3


def test_an_interrupt_while_the_daemon_starts_leaves_nothing_broken(rig: Rig) -> None:
    """Trap 52."""
    process = rig.spawn("ps")
    wait_until(lambda: os.path.exists(os.path.join(rig.root, "start.lock")))
    process.send_signal(signal.SIGINT)
    done = rig.finish(process)
    assert done.status in {0, 130}
    assert done.err == ""
    assert rig.ps()["state"] == "Empty"


def test_a_closed_terminal_output(rig: Rig) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" gen -m "$1" hi >&-', rig_command(), rig.echo_model(tokens=2)],
        env=rig.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "modeld: standard output cannot be written: it is closed\n"


def rig_command() -> str:
    from rig import MODELD  # noqa: PLC0415

    return MODELD


def test_log_shows_and_follows(rig: Rig) -> None:
    rig.modeld("load", rig.echo_model(tokens=2))
    rig.modeld("unload")
    shown = rig.modeld("log")
    assert "unload: released: worker" in shown.out
    raw = rig.modeld("log", "--json", "-n", "2").events
    assert len(raw) == 2
    process = rig.spawn("log", "-f", "-n", "0", bufsize=0)
    time.sleep(0.3)
    rig.modeld("load", rig.echo_model(tokens=2))
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert rig.finish(process).status == 130
