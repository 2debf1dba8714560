"""The main job on the real small model: one answer on stdout, the same worker twice, cut pipes."""

import subprocess

import pytest
from raw import ENDLESS
from rig import MODELD, Rig, alive, smollm2_path, wait_until

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(smollm2_path() is None, reason="the smollm2 extra is not installed"),
]


def test_echo_say_hi_prints_one_answer_cold_and_warm_from_the_same_worker(rig: Rig) -> None:
    cold = rig.modeld("gen", "--max-tokens", "12", input="Say hi.\n", timeout=100)
    assert cold.status == 0
    assert cold.out.strip()
    assert cold.out.endswith("\n")
    active = rig.ps()["active"]
    worker = active["worker"]
    # On a CPU with AMX the engine may need its safe mode, which is said once.
    assert bool(active["degraded"]) == ("safe" in cold.err)
    assert len(cold.err.splitlines()) <= 1
    warm = rig.modeld("gen", "--max-tokens", "12", input="Say hi.\n", timeout=60)
    assert (warm.status, warm.err) == (0, "")
    assert warm.out.strip()
    assert rig.ps()["active"]["worker"]["pid"] == worker["pid"]


def test_gen_json_tells_of_the_run_and_the_daemon_holds_no_native_code(rig: Rig) -> None:
    """Requirements A1, A5, A30."""
    done = rig.modeld("gen", "--json", "--max-tokens", "8", "Count to three.", timeout=100)
    assert done.status == 0
    result, status = done.json, rig.ps()
    assert result["model"] == "smollm2"
    assert result["backend"] == "llama"
    assert result["stop_reason"] in {"length", "stop"}
    assert 0 < result["usage"]["completion_tokens"] <= 8
    assert result["residency"]["retained"]
    assert result["residency"]["allocation_id"] == status["active"]["allocation_id"]
    assert result["worker"]["pid"] == status["active"]["worker"]["pid"]
    assert result["worker"]["pid"] != status["daemon"]["pid"]
    with open(f"/proc/{status['daemon']['pid']}/maps", encoding="utf-8") as maps:
        mapped = maps.read()
    assert "libllama" not in mapped
    assert "libggml" not in mapped


def test_gen_and_stream_print_the_same_bytes_for_a_seed(rig: Rig) -> None:
    prompt = ("--seed", "7", "--max-tokens", "24", "Greet me with emoji, in Chinese: 你好 👋🏽")
    whole = rig.modeld("gen", *prompt, timeout=100)
    pieces = rig.modeld("stream", *prompt, timeout=60)
    assert whole.status == pieces.status == 0
    assert whole.out == pieces.out


def test_stream_into_head_ends_at_once_with_141_and_the_worker_rests(rig: Rig) -> None:
    assert rig.modeld("load", "smollm2", timeout=100).status == 0
    script = '"$M" stream --raw --temp 0 --max-tokens 2000 "$P" | head -1; echo ${PIPESTATUS[0]}'
    prompt = ENDLESS["prompt"]
    pipeline = subprocess.run(
        ["bash", "-c", script],
        env={**rig.env, "M": MODELD, "P": prompt},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert pipeline.stdout.split()[-1] == b"141"
    assert b"Traceback" not in pipeline.stderr
    status = wait_until(lambda: (s := rig.ps())["state"] == "Ready" and s)
    assert status["inflight"] == []
    worker = status["active"]["worker"]
    assert alive(worker["pid"], worker["start_time"])
    before = cpu_seconds(worker["pid"])
    for _ in range(5):
        rig.ps()
    assert cpu_seconds(worker["pid"]) - before <= 0.05, "the worker goes on for nobody"


def cpu_seconds(pid: int) -> float:
    """CPU time of a process as the kernel counts it."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100
