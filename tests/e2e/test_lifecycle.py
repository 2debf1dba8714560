"""The daemon's own life: started by need, detached, reaping, leaving, and never two of it."""

import contextlib
import os
import signal
import subprocess

import psutil
import pytest
from raw import Raw
from rig import MODELD, Rig, alive, wait_until


def daemons(rig: Rig) -> list[psutil.Process]:
    found = []
    for process in rig.processes():
        with contextlib.suppress(psutil.Error):
            if "modeld.daemon" in process.cmdline():
                found.append(process)
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("stale", [False, True], ids=["cold", "stale-record"])
def test_20_clients_on_a_cold_root_make_one_owner(rig: Rig, stale: bool) -> None:
    """H1, H3: 25 rounds each, with nothing there and with what a killed daemon left."""
    for _ in range(25):
        clients = [rig.spawn("ps", "--json") for _ in range(20)]
        done = [rig.finish(client, timeout=60) for client in clients]
        assert [d.status for d in done] == [0] * 20, done
        assert len({d.json["owner"] for d in done}) == 1
        running = daemons(rig)
        assert len(running) == 1
        if stale:
            running[0].kill()
            psutil.wait_procs(running, timeout=10)
        else:
            assert rig.modeld("stop").status == 0
            assert not running[0].is_running() or running[0].status() == psutil.STATUS_ZOMBIE


def test_20_gens_on_a_cold_root_get_20_answers(rig: Rig) -> None:
    model = rig.echo_model()
    clients = [rig.spawn("gen", "-m", model, f"hello {n}") for n in range(20)]
    for n, client in enumerate(clients):
        done = rig.finish(client, timeout=60)
        assert (done.status, done.out) == (0, f"hello {n}\n"), done
    assert len(daemons(rig)) == 1


def test_daemon_is_detached_and_holds_nothing_of_its_starter(rig: Rig) -> None:
    """H12: a pipe to cat ends, though the daemon that the command started lives on."""
    subprocess.run(
        ["sh", "-c", f'"{MODELD}" load "{rig.echo_model()}" 2>&1 9</dev/zero | cat'],
        env=rig.env,
        timeout=30,
        check=True,
    )
    (daemon,) = daemons(rig)
    assert os.getsid(daemon.pid) == daemon.pid
    assert daemon.cwd() == "/"
    targets = {os.readlink(f"/proc/{daemon.pid}/fd/{n}") for n in (0, 1, 2)}
    assert targets == {"/dev/null", os.path.join(rig.root, "daemon.log")}
    everything = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{daemon.pid}/fd")}
    assert "/dev/zero" not in everything
    assert os.path.join(rig.root, "start.lock") not in everything
    worker = psutil.Process(rig.ps()["active"]["worker"]["pid"])
    assert os.getsid(worker.pid) == worker.pid
    assert worker.ppid() == daemon.pid


def test_sigterm_confirms_the_worker_then_frees_lock_and_socket(rig: Rig) -> None:
    """H7: a successor starts at once."""
    assert rig.modeld("load", rig.echo_model()).status == 0
    status = rig.ps()
    worker = status["active"]["worker"]
    (daemon,) = daemons(rig)
    daemon.terminate()
    wait_until(lambda: not os.path.exists(os.path.join(rig.root, "owner.json")))
    assert not alive(worker["pid"], worker["start_time"])
    assert not os.path.exists(os.path.join(rig.root, "modeld.sock"))
    after = rig.ps()
    assert after["owner"] != status["owner"]
    assert (after["state"], after["generation"]) == ("Empty", 0)


def test_stop_replies_when_everything_is_gone(rig: Rig) -> None:
    """B09, B25."""
    assert rig.modeld("load", rig.echo_model()).status == 0
    worker = rig.ps()["active"]["worker"]
    done = rig.modeld("stop", "--json")
    assert (done.status, done.json["status"]) == (0, "released_confirmed")
    assert not alive(worker["pid"], worker["start_time"])
    for name in ("owner.json", "modeld.sock", "worker.json"):
        assert not os.path.exists(os.path.join(rig.root, name))
    assert rig.modeld("stop").status == 0
    assert rig.modeld("ps", "--no-start").status == 3


def test_stop_during_a_stream_ends_the_stream_with_a_reason(rig: Rig) -> None:
    """B02, B03."""
    client = rig.spawn("stream", "-m", rig.echo_model(tokens=1000, tok_sleep=0.01), "x")
    wait_until(lambda: rig.ps()["state"] == "Busy")
    assert rig.modeld("stop").status == 0
    done = rig.finish(client)
    assert done.status == 12
    assert "stopped" in done.err


def test_unreachable_daemon_is_named_never_rivalled_and_stopped_by_force(rig: Rig) -> None:
    """H11."""
    assert rig.modeld("load", rig.echo_model()).status == 0
    worker = rig.ps()["active"]["worker"]
    (daemon,) = daemons(rig)
    daemon.suspend()
    done = rig.modeld("ps", "--timeout", "1s")
    assert done.status == 4
    assert str(daemon.pid) in done.err
    assert "stop --force" in done.err
    assert len(daemons(rig)) == 1
    assert rig.modeld("stop", "--force").status == 0
    assert not alive(worker["pid"], worker["start_time"])
    assert rig.ps()["daemon"]["pid"] != daemon.pid


def test_idle_resident_is_reaped_by_the_timer_and_reopened_by_need(rig: Rig) -> None:
    """D5, D8: reads do not count as use."""
    rig.env |= {"MODELD_IDLE_TTL": "1s"}
    model = rig.echo_model()
    assert rig.modeld("gen", "-m", model, "x").status == 0
    status = rig.ps()
    assert (status["idle"]["ttl_s"], status["idle"]["source"]) == (1.0, "env")
    worker = status["active"]["worker"]
    status = wait_until(lambda: (s := rig.ps())["state"] == "Idle" and s, timeout=5)
    assert not alive(worker["pid"], worker["start_time"])
    assert status["last_exit"]["cause"] == "reap"
    assert status["last_exit"]["status"] == "released_confirmed"
    assert rig.modeld("gen", "-m", model, "hello").out == "hello\n"


def test_pinned_resident_and_its_own_ttl(rig: Rig) -> None:
    rig.env |= {"MODELD_IDLE_TTL": "1s"}
    model = rig.echo_model()
    assert rig.modeld("load", model, "--ttl", "90s").status == 0
    idle = rig.ps()["idle"]
    assert (idle["ttl_s"], idle["source"]) == (90.0, "flag")
    assert rig.modeld("load", model, "--pin").status == 0
    status = rig.ps()
    assert (status["active"]["pinned"], status["idle"]["reap_in_s"]) == (True, None)
    assert rig.modeld("reap", "--idle-for", "0").status == 0
    assert rig.ps()["active"] is not None


def test_reap_for_cron_is_silent_unless_it_released(rig: Rig) -> None:
    """D11."""
    nothing = rig.modeld("reap", "--no-start")
    assert (nothing.status, nothing.out, nothing.err) == (0, "", "")
    assert not os.path.exists(os.path.join(rig.root, "owner.json"))
    assert rig.modeld("load", rig.echo_model()).status == 0
    young = rig.modeld("reap", "--idle-for", "1h")
    assert (young.status, young.out, young.err) == (0, "", "")
    assert rig.modeld("reap", "--idle-for", "1h", "--json").json["status"] == "not_idle"
    old = rig.modeld("reap", "--idle-for", "0")
    assert old.status == 0
    assert "echo" in old.out + old.err
    assert rig.ps()["state"] == "Idle"


def test_reap_spares_a_running_turn(rig: Rig) -> None:
    model = rig.echo_model(tokens=1000, tok_sleep=0.01)
    assert rig.modeld("load", model).status == 0
    with Raw(rig.root) as raw:
        raw.stream(model)
        assert rig.modeld("reap", "--idle-for", "0", "--json").json["status"] == "not_idle"
        assert raw.ps()["state"] == "Busy"
        raw.ask("kill")


def test_ttl_off_leaves_nothing_after_a_gen_and_keeps_a_load(rig: Rig) -> None:
    """D1, D3."""
    rig.env |= {"MODELD_IDLE_TTL": "off"}
    model = rig.echo_model()
    assert rig.modeld("gen", "-m", model, "x").status == 0
    assert rig.ps()["state"] == "Empty"
    assert rig.modeld("load", model).status == 0
    assert rig.modeld("gen", "x").status == 0
    assert rig.ps()["state"] == "Ready"


def test_daemon_with_nothing_to_do_leaves(rig: Rig) -> None:
    """H19."""
    rig.env |= {"MODELD_DAEMON_IDLE": "500ms"}
    assert rig.ps()["state"] == "Empty"
    (daemon,) = daemons(rig)
    wait_until(lambda: not alive(daemon.pid, daemon.create_time()) if daemon.is_running() else True)
    assert not os.path.exists(os.path.join(rig.root, "owner.json"))


def test_removed_root_ends_daemon_and_worker(rig: Rig) -> None:
    """H4."""
    assert rig.modeld("load", rig.echo_model()).status == 0
    worker = rig.ps()["active"]["worker"]
    (daemon,) = daemons(rig)
    subprocess.run(["rm", "-rf", rig.root], check=True)
    wait_until(lambda: not daemon.is_running() or daemon.status() == psutil.STATUS_ZOMBIE)
    assert not alive(worker["pid"], worker["start_time"])
    assert rig.ps()["daemon"]["pid"] != daemon.pid


def test_broken_configuration_is_named_by_the_command_that_meets_it(rig: Rig) -> None:
    os.makedirs(f"{rig.env['XDG_CONFIG_HOME']}/modeld")
    path = f"{rig.env['XDG_CONFIG_HOME']}/modeld/config.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write('[idle]\nttl = "soon"\n')
    done = rig.modeld("ps")
    assert done.status == 2
    assert "soon" in done.err
    assert path in done.err


def test_client_that_was_interrupted_while_the_daemon_starts_breaks_nothing(rig: Rig) -> None:
    for _ in range(5):
        client = rig.spawn("ps")
        client.send_signal(signal.SIGINT)
        rig.finish(client)
    assert rig.modeld("ps").status == 0
    assert len(daemons(rig)) == 1


def test_requests_that_come_with_a_stop_are_all_answered(rig: Rig) -> None:
    """W3: what came too late is refused, and not left without a word."""
    assert rig.modeld("load", rig.echo_model()).status == 0
    with Raw(rig.root) as raw:
        ids = [raw.send("stop")]
        ids += [raw.send("generate", model={}, task={"prompt": "x"}) for _ in range(80)]
        answers = {}
        while len(answers) < len(ids):
            reply = raw.receive()
            if reply["type"] in {"ended", "error", "result"}:
                answers[reply["id"]] = reply
    assert answers[ids[0]]["ack"]["status"] == "released_confirmed"
    assert {answers[id_]["error"]["code"] for id_ in ids[1:]} == {"not_owner"}


def test_ttl_of_one_resident_does_not_count_for_another(rig: Rig) -> None:
    a, b = rig.echo_model("a"), rig.echo_model("b")
    assert rig.modeld("load", a, "--ttl", "off").status == 0
    assert rig.modeld("gen", "-m", b, "--switch", "x").status == 0
    assert rig.ps()["active"]["model"] == "b"


def test_kill_during_a_switch_leaves_nothing(rig: Rig) -> None:
    a, b = rig.echo_model("a", close_hang=True), rig.echo_model("b", load_sleep=60)
    assert rig.modeld("load", a).status == 0
    switching = rig.spawn("gen", "-m", b, "--switch", "x")
    wait_until(lambda: rig.ps()["state"] == "Switching")
    assert rig.modeld("kill", "--json").json["allocation_retired"]
    status = rig.ps()
    assert (status["state"], status["memory"]["charged"]) == ("Empty", 0)
    assert rig.finish(switching).status == 12
