"""Many at once: one turn at a time, in order of arrival, none forgotten, none run for nobody."""

import os
import subprocess

from raw import Raw
from rig import MODELD, Rig, wait_until


def test_xargs_gets_all_answers(rig: Rig) -> None:
    model = rig.echo_model(tok_sleep=0.01)
    done = subprocess.run(
        ["xargs", "-P8", "-I{}", MODELD, "gen", "-m", model, "answer {}"],
        input="\n".join(str(n) for n in range(40)),
        env=rig.env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"answer {n}" for n in range(40))


def test_turns_run_one_at_a_time_in_order_of_arrival(rig: Rig) -> None:
    model = rig.echo_model(tok_sleep=0.02)
    assert rig.modeld("load", model).status == 0
    with Raw(rig.root) as raw:
        ids = [
            raw.send(
                "generate",
                model={"name": model},
                task={"prompt": f"{n} b c"},
                stream=True,
                inference_id=f"i{n}",
            )
            for n in range(8)
        ]
        seen, ended = [], []
        while len(ended) < len(ids):
            reply = raw.receive()
            if reply["type"] == "token":
                seen.append(reply["id"])
            elif reply["type"] == "result":
                ended.append(reply["id"])
    assert ended == ids
    assert seen == sorted(seen, key=ids.index), "turns overlapped"


def test_queue_shows_positions_and_no_wait_fails_at_once(rig: Rig) -> None:
    model = rig.echo_model(tokens=1000, tok_sleep=0.01)
    assert rig.modeld("load", model).status == 0
    with Raw(rig.root) as raw:
        raw.stream(model)
        for n in range(3):
            raw.send("generate", model={}, task={"prompt": "x"}, inference_id=f"q{n}")
        status = raw.ps()
        assert [(w["id"], w["position"]) for w in status["queue"]] == [
            ("q0", 1),
            ("q1", 2),
            ("q2", 3),
        ]
        assert [i["kind"] for i in status["inflight"]] == ["stream"]
        done = rig.modeld("gen", "--no-wait", "--json", "x")
        assert (done.status, done.json["error"]["code"]) == (5, "model_busy")
        over = rig.modeld("gen", "--wait", "200ms", "x")
        assert over.status == 5
        assert "200ms" in over.err or "0.2 s" in over.err
        assert raw.ask("kill")["ack"]["status"] == "cancelled_confirmed"


def test_queued_client_that_dies_is_never_run(rig: Rig) -> None:
    """G4, B14, B34."""
    starts = os.path.join(rig.base, "starts")
    model = rig.echo_model(tokens=250, tok_sleep=0.01, starts_file=starts)
    first = rig.spawn("gen", "-m", model, "first")
    wait_until(lambda: rig.ps()["state"] == "Busy")
    doomed = rig.spawn("gen", "-m", model, "--id", "doomed", "doomed")
    wait_until(lambda: rig.ps()["queue"])
    doomed.kill()
    wait_until(lambda: not rig.ps()["queue"], timeout=4)
    assert rig.modeld("kill", "doomed", "--json").json["status"] == "already_terminal"
    assert rig.finish(first).status == 0
    assert rig.modeld("gen", "-m", model, "--max-tokens", "2", "last").status == 0
    with open(starts, encoding="utf-8") as file:
        assert len(file.readlines()) == 2


def test_queued_client_that_dies_right_before_its_turn_is_never_run(rig: Rig) -> None:
    starts = os.path.join(rig.base, "starts")
    model = rig.echo_model(tokens=1000, tok_sleep=0.01, starts_file=starts)
    assert rig.modeld("load", model).status == 0
    with Raw(rig.root) as raw:
        raw.stream(model)
        doomed = rig.spawn("gen", "-m", model, "doomed")
        wait_until(lambda: raw.ps()["queue"])
        doomed.kill()
        doomed.wait()
        raw.ask("kill")
        wait_until(lambda: not raw.ps()["queue"] and not raw.ps()["inflight"])
    with open(starts, encoding="utf-8") as file:
        assert len(file.readlines()) == 1


def test_queue_is_bounded_and_the_refusal_typed(rig: Rig) -> None:
    rig.env |= {"MODELD_QUEUE_LIMIT": "3"}
    model = rig.echo_model(tokens=1000, tok_sleep=0.01)
    assert rig.modeld("load", model).status == 0
    with Raw(rig.root) as raw:
        raw.stream(model)
        for _ in range(3):
            raw.send("generate", model={}, task={"prompt": "x"})
        full = raw.ask("generate", model={}, task={"prompt": "x"})
        assert full["error"]["code"] == "active_limit_reached"
        raw.ask("kill")


def test_second_use_of_a_live_id_is_refused(rig: Rig) -> None:
    model = rig.echo_model(tokens=1000, tok_sleep=0.01)
    assert rig.modeld("load", model).status == 0
    with Raw(rig.root) as raw:
        raw.stream(model, inference_id="X")
        done = rig.modeld("gen", "--id", "X", "--json", "x")
        assert (done.status, done.json["error"]["code"]) == (2, "duplicate_inference_id")
        raw.ask("kill", inference_id="X")
        assert rig.modeld("gen", "-m", model, "--id", "X", "--max-tokens", "1", "x").status == 0


def test_refused_second_use_of_an_id_leaves_the_first_its_deadline(rig: Rig) -> None:
    """The refusal once disarmed whatever went by the id."""
    model = rig.echo_model(tokens=1000, tok_sleep=0.01)
    assert rig.modeld("load", model).status == 0
    first = rig.spawn("stream", "--id", "X", "--deadline", "2s", "x")
    wait_until(lambda: rig.ps()["state"] == "Busy")
    assert rig.modeld("gen", "--id", "X", "x").status == 2
    done = rig.finish(first)
    assert done.status == 12
    assert "deadline" in done.err


def test_queue_of_two_models_serves_both_and_leaves_nobody(rig: Rig) -> None:
    """A queue that offers its first again and again once kept the daemon spinning for ever."""
    models = [rig.echo_model("one", tok_sleep=0.01), rig.echo_model("two", tok_sleep=0.01)]
    clients = [rig.spawn("gen", "-m", models[n % 2], f"answer {n}") for n in range(8)]
    for n, client in enumerate(clients):
        done = rig.finish(client, timeout=60)
        assert (done.status, done.out) == (0, f"answer {n}\n")
    status = rig.ps()
    assert (status["queue"], status["inflight"]) == ([], [])


def test_slow_reader_stops_neither_the_worker_nor_others(rig: Rig) -> None:
    """L4: with the reader's pipe full, the daemon answers, and the text is whole in the end."""
    model = rig.echo_model(tokens=40000)
    reader = rig.spawn("stream", "-m", model, "--max-tokens", "40000", "x")
    wait_until(lambda: (i := rig.ps()["inflight"]) and i[0]["tokens"] > 5000)
    for _ in range(3):
        assert rig.modeld("ps", "--timeout", "5s").status == 0
    done = rig.finish(reader, timeout=90)
    assert done.status == 0
    assert done.out.split() == [f"w{n}" for n in range(40000)]
