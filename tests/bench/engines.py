"""The same greedy answer from one process: by modeld's own loop, or by the bindings' Llama class.

Prints the decode speed in tokens/s, a line a round; ``engines.py own|peer GGUF TOKENS ROUNDS``.
"""

import sys
import time
from typing import Any

PROMPT = "Write a long story about a fox, a river and a bridge."
CONTEXT = 2048


def own(path: str, tokens: int, rounds: int) -> list[float]:
    """The worker's backend, without a worker."""
    from modeld.daemon.contract.model import Config, Plan
    from modeld.daemon.contract.pipe import RunTurn
    from modeld.daemon.contract.task import Sampling, Task
    from modeld.daemon.worker.backends.cancellation import Cancellation
    from modeld.daemon.worker.backends.llama import Llama
    from modeld.daemon.worker.turn import Turn

    config = Config(
        ctx=CONTEXT, gpu_layers=0, threads=threads(), batch=512, kv_type="f16", flash_attn=True
    )
    backend = Llama()
    backend.load(
        Plan(model="m", backend="llama", path=path, file_id="", config=config),
        safe_mode=has_amx(),
        cancellation=Cancellation(),
        progress=lambda _fraction: None,
    )
    backend.warm_up()
    task = Task(prompt=PROMPT, sampling=Sampling(temp=0), max_tokens=tokens)
    speeds = []
    for _ in range(rounds):
        order = RunTurn(turn="t", task=task, seed=1, exact=True, stream=True)
        turn = Turn(order, Cancellation(), lambda _report: None)
        done = turn.finish(backend.run(turn))
        speeds.append(turn.tokens / done.decode_ms * 1000)
    backend.close()
    return speeds


def peer(path: str, tokens: int, rounds: int) -> list[float]:
    """llama_cpp.Llama, streaming; its first token ends its prefill, as ours does."""
    import llama_cpp

    if has_amx():
        default = llama_cpp.llama_cpp.llama_model_default_params

        def without_repacking() -> Any:
            params = default()
            params.use_extra_bufts = False
            return params

        llama_cpp.llama_cpp.llama_model_default_params = without_repacking
    model = llama_cpp.Llama(
        path, n_ctx=CONTEXT, n_threads=threads(), n_threads_batch=threads(), verbose=False
    )
    speeds = []
    for _ in range(rounds + 1):
        model.reset()
        pieces = model.create_chat_completion(
            [{"role": "user", "content": PROMPT}], temperature=0, max_tokens=tokens, stream=True
        )
        times = [time.monotonic() for piece in pieces if "content" in piece["choices"][0]["delta"]]
        speeds.append((len(times) - 1) / (times[-1] - times[0]))
    model.close()
    return speeds[1:]


def threads() -> int:
    """As many as the daemon gives."""
    from modeld.daemon.runtime.catalog import _physical_cores

    return _physical_cores()


def has_amx() -> bool:
    """Whether this CPU has what default builds crash on."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return "amx_int8" in file.read()
    except OSError:
        return False


if __name__ == "__main__":
    kind, path, tokens, rounds = sys.argv[1:]
    for speed in {"own": own, "peer": peer}[kind](path, int(tokens), int(rounds)):
        print(f"{speed:.2f}", flush=True)
