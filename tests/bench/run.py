"""Measures modeld beside what it could be compared with, in turns within one run; prints a table.

``python tests/bench/run.py [--rounds N]``. Ratios count: a machine's speed changes by the hour.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

sys.path.insert(0, os.path.dirname(os.path.dirname(__file__)))

from raw import Raw
from rig import MODELD, Rig, smollm2_path

ENGINES = os.path.join(os.path.dirname(__file__), "engines.py")
TOKENS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="pairs of each kind (default 9)")
    rounds = parser.parse_args().rounds
    path = smollm2_path()
    if path is None:
        sys.exit("the smollm2 extra is not installed")
    rig = Rig()
    try:
        rows = [*start_up(rig, rounds), *gen_overhead(rig, rounds), *decode(rig, path, rounds)]
        rows += kills(rig, rounds * 5)
    finally:
        rig.close()
    print(f"\n{platform.machine()}, {os.cpu_count()} CPUs, {platform.system()}, {cpu()}\n")
    print("| what | median | beside | median | ratio |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def start_up(rig: Rig, rounds: int) -> list[tuple[str, ...]]:
    """Commands that ask a running daemon, beside the imports they cannot do without."""
    rig.modeld("ps")
    return [
        compare(f"`modeld {name}`", run(rig, MODELD, name), IMPORTS, imports(rig), rounds)
        for name in ("--help", "ps")
    ]


def gen_overhead(rig: Rig, rounds: int) -> list[tuple[str, ...]]:
    """The whole command's time, less what the engine says it took."""
    rig.modeld("load", "smollm2", timeout=100)

    def overhead() -> float:
        begun = time.perf_counter()
        done = rig.modeld("gen", "--json", "--max-tokens", "16", "Say hi.", timeout=60)
        spent = time.perf_counter() - begun
        timings = done.json["timings"]
        return spent - (timings["prefill_ms"] + timings["decode_ms"]) / 1000

    name = "warm `modeld gen --max-tokens 16`, less engine time"
    return [compare(name, overhead, IMPORTS, imports(rig), rounds)]


def decode(rig: Rig, path: str, rounds: int) -> list[tuple[str, ...]]:
    """Tokens a second as a client of the daemon sees them arrive, beside one process alone."""
    rig.modeld("unload")
    rig.modeld("load", "smollm2", "--ctx", "2048", timeout=100)
    daemon, own, peer = [], [], []
    for _ in range(max(3, rounds // 2)):
        daemon.append(statistics.median(through_daemon(rig, path) for _ in range(2)))
        own.append(alone("own", path))
        peer.append(alone("peer", path))
    rig.modeld("unload")
    name = "decode through the daemon, tokens/s"
    return [
        speed_row(name, daemon, "the same loop in one process", own),
        speed_row(name, daemon, "`llama_cpp.Llama` in one process", peer),
    ]


def through_daemon(rig: Rig, path: str) -> float:
    task = {
        "prompt": "Write a long story about a fox, a river and a bridge.",
        "sampling": {"temp": 0, "seed": 1},
        "max_tokens": TOKENS,
    }
    with Raw(rig.root) as raw:
        request = raw.send("generate", model={"name": path}, task=task, stream=True)
        times = [time.monotonic() for r in raw.replies(request) if r["type"] == "token"]
    return (len(times) - 1) / (times[-1] - times[0])


def alone(kind: str, path: str) -> float:
    out = subprocess.run(
        [sys.executable, ENGINES, kind, path, str(TOKENS), "2"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return statistics.median(map(float, out.split()))


def kills(rig: Rig, count: int) -> list[tuple[str, ...]]:
    """From the request to the confirmed ack, by the daemon's own count."""
    model = rig.echo_model(tokens=100000, tok_sleep=0.005)
    rig.modeld("load", model)
    name = rig.ps()["active"]["path"]
    taken = []
    with Raw(rig.root) as raw:
        for _ in range(count):
            raw.stream(name)
            begun = time.monotonic()
            assert raw.ask("kill")["ack"]["status"] == "cancelled_confirmed"
            taken.append(time.monotonic() - begun)
    taken.sort()
    p99 = taken[int(len(taken) * 0.99)]
    return [
        (f"kill → confirmed ack, {count} times", ms(statistics.median(taken)), "p99", ms(p99), "")
    ]


IMPORTS = '`python -c "import click, zmq"`'


def imports(rig: Rig) -> Callable[[], float]:
    return run(rig, sys.executable, "-c", "import click, zmq")


def run(rig: Rig, *command: str) -> Callable[[], float]:
    def timed() -> float:
        begun = time.perf_counter()
        subprocess.run(
            command,
            env=rig.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return time.perf_counter() - begun

    return timed


def compare(
    name: str, ours: Callable[[], float], other: str, theirs: Callable[[], float], rounds: int
) -> tuple[str, ...]:
    """Medians of both, taken in turns after a warm-up, and the median of the pairs' ratios."""
    ours()
    theirs()
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    ratio = statistics.median(a / b for a, b in pairs)
    a, b = (statistics.median(side) for side in zip(*pairs, strict=True))
    return name, ms(a), other, ms(b), f"{ratio:.2f}"


def speed_row(name: str, ours: list[float], other: str, theirs: list[float]) -> tuple[str, ...]:
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    a, b = statistics.median(ours), statistics.median(theirs)
    return name, f"{a:.1f}", other, f"{b:.1f}", f"{ratio:.2f}"


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(
                line.partition(":")[2].strip() for line in file if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor() or "unknown CPU"


if __name__ == "__main__":
    main()
