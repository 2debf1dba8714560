"""From a client's words to a plan: which file, which identity, which numbers."""

import json
import os
from pathlib import Path

import gguf as reference
import numpy as np
import pytest

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.model import Adapter, Config, ModelChoice, Plan
from modeld.daemon.runtime.catalog import (
    DEFAULT_BATCH,
    ECHO_OVERHEAD,
    LLAMA_OVERHEAD,
    MIN_CONTEXT,
    UNKNOWN_CONTEXT,
    Catalog,
)

AMPLE = 2**50
LAYERS, WIDTH, HEADS, KV_HEADS, TRAINED = 6, 64, 8, 2, 2048
PER_TOKEN = 2 * LAYERS * KV_HEADS * (WIDTH // HEADS) * 2
"""Bytes of KV for a token, in f16."""


def write_gguf(path: Path, **changes: int | None) -> Path:
    """A GGUF of a tiny llama; a change of ``None`` leaves the number out."""
    numbers: dict[str, int | None] = {
        "context_length": TRAINED,
        "block_count": LAYERS,
        "embedding_length": WIDTH,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        **changes,
    }
    writer = reference.GGUFWriter(str(path), "llama")
    for key, number in numbers.items():
        if number is not None:
            writer.add_uint32(f"llama.{key}", number)
    writer.add_tensor("t", np.zeros((8, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_echo(path: Path, text: str = "tokens = 3\n") -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    return path


@pytest.fixture
def catalog(models: Path) -> Catalog:
    return Catalog(str(models), None)


def plan_of(catalog: Catalog, name: object, budget: int = AMPLE, **choice: object) -> Plan:
    named = ModelChoice(name=str(name), **choice)  # type: ignore[arg-type]
    return catalog.plan(named, None, budget)


def refusal_of(catalog: Catalog, name: object, **choice: object) -> ModeldError:
    with pytest.raises(ModeldError) as caught:
        plan_of(catalog, name, **choice)
    return caught.value


# --- names and files ------------------------------------------------------------------------


def test_a_name_is_looked_up_in_the_models_directory(catalog: Catalog, models: Path) -> None:
    write_gguf(models / "flat.gguf")
    (models / "nested").mkdir()
    write_gguf(models / "nested" / "model.gguf")
    write_echo(models / "echo.toml")
    assert catalog.locate("flat") == str(models / "flat.gguf")
    assert catalog.locate("nested") == str(models / "nested" / "model.gguf")
    assert catalog.locate("echo") == str(models / "echo.toml")
    assert [plan_of(catalog, n).model for n in ("flat", "nested", "echo")] == [
        "flat",
        "nested",
        "echo",
    ]
    assert [plan_of(catalog, n).backend for n in ("flat", "echo")] == ["llama", "echo"]


def test_an_absolute_path_is_the_file_itself(catalog: Catalog, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "some.gguf")
    plan = plan_of(catalog, path)
    assert (plan.path, plan.model, plan.backend) == (str(path), "some", "llama")


def test_the_label_of_a_path_is_its_files_name(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    assert plan_of(catalog, write_gguf(tmp_path / "big" / "model.gguf")).model == "big"
    assert plan_of(catalog, write_gguf(tmp_path / "weights.bin")).model == "weights.bin"
    assert plan_of(catalog, write_echo(tmp_path / "e.json", "{}")).model == "e"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../m",
        "sub/m",
        "./m",
        "missing",
        "m\x00",
        "/missing.gguf",
        "/\x00",
        "n" * 999,
    ],
)
def test_what_is_no_model_is_not_found(catalog: Catalog, models: Path, name: str) -> None:
    """Trap 32: no way out of the models directory by a name."""
    write_echo(models.parent / "m.toml")
    (models / "sub").mkdir()
    write_echo(models / "sub" / "m.toml")
    assert refusal_of(catalog, name).code is ErrorCode.MODEL_NOT_FOUND


def test_a_refusal_says_where_to_put_a_model(catalog: Catalog, models: Path) -> None:
    error = refusal_of(catalog, "missing")
    assert error.details["models_dir"] == str(models)
    assert str(models) in error.details["recovery"]


def test_without_a_name_it_is_the_resident_then_the_default(models: Path) -> None:
    write_echo(models / "default.toml")
    resident = plan_of(Catalog(str(models), None), write_echo(models / "resident.toml"))
    catalog = Catalog(str(models), "default")
    assert catalog.plan(ModelChoice(), resident, AMPLE).path == resident.path
    assert catalog.plan(ModelChoice(), None, AMPLE).model == "default"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.gguf", b"", "no GGUF"),
        ("m.gguf", b"PK\x03\x04", "no GGUF"),
        ("m.bin", b"\x00" * 99, "no GGUF"),
        ("m.gguf", b"GGUF\x03\x00", "not a whole GGUF"),
        ("m.toml", b"tokens =", "no echo model"),
        ("m.toml", b"\xff", "no echo model"),
        ("m.json", b"[]", "not a table"),
        ("m.json", b"[" * 100_000, "no echo model"),
        ("m.toml", b"a = " + b"[" * 100_000, "no echo model"),
    ],
)
def test_a_file_that_is_no_model_fails_to_load(
    catalog: Catalog, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    error = refusal_of(catalog, tmp_path / name)
    assert error.code is ErrorCode.MODEL_LOAD_FAILED
    assert words in error.message


def test_a_file_that_is_too_short_fails_to_load(catalog: Catalog, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-200])
    assert "cut short" in refusal_of(catalog, path).message


@pytest.mark.parametrize("name", ["fifo", "fifo.toml"])
def test_a_fifo_is_refused_and_does_not_block(catalog: Catalog, tmp_path: Path, name: str) -> None:
    """Opening it would have stopped the daemon's one thread."""
    os.mkfifo(tmp_path / name)
    assert refusal_of(catalog, tmp_path / name).code is ErrorCode.MODEL_LOAD_FAILED


def test_directories_are_judged_by_what_is_in_them(catalog: Catalog, tmp_path: Path) -> None:
    assert refusal_of(catalog, tmp_path).code is ErrorCode.MODEL_LOAD_FAILED
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("")
    error = refusal_of(catalog, tmp_path)
    assert (error.code, error.details["backend"]) == (ErrorCode.BACKEND_MISMATCH, "mlx")


def test_another_backend_than_the_files_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    error = refusal_of(catalog, write_echo(tmp_path / "m.toml"), backend="llama")
    assert (error.code, error.details["backend"]) == (ErrorCode.BACKEND_MISMATCH, "echo")


def test_a_missing_adapter_is_not_found(catalog: Catalog, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    error = refusal_of(catalog, path, adapters=(Adapter(path="/missing"),))
    assert (error.code, error.details["path"]) == (ErrorCode.MODEL_NOT_FOUND, "/missing")


# --- identity -------------------------------------------------------------------------------


def test_the_same_file_by_any_way_is_the_same_model(catalog: Catalog, models: Path) -> None:
    """Traps 4 and 31."""
    path = write_gguf(models / "m.gguf")
    (models / "link.gguf").symlink_to(path)
    os.link(path, models / "hard.gguf")
    ways = ["m", "link", path, models / "hard.gguf", models / "." / ".." / "models" / "m.gguf"]
    identities = {plan_of(catalog, way).identity() for way in ways}
    assert len(identities) == 1


def test_a_file_that_was_replaced_is_another_model(catalog: Catalog, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    before = plan_of(catalog, path)
    os.utime(path, ns=(1, 1))
    changed = plan_of(catalog, path)
    write_gguf(tmp_path / "new.gguf", context_length=99).replace(path)
    replaced = plan_of(catalog, path)
    assert len({before.identity(), changed.identity(), replaced.identity()}) == 3
    assert replaced.config.ctx == 99


@pytest.mark.parametrize("write", [write_gguf, write_echo])
def test_what_is_left_open_is_as_in_the_resident(
    catalog: Catalog, tmp_path: Path, write: object
) -> None:
    """C1: a plain gen after `load --ctx 100 …` is served by what was loaded."""
    ending = "gguf" if write is write_gguf else "toml"
    path = write(tmp_path / f"m.{ending}")  # type: ignore[operator]
    adapter = tmp_path / "adapter"
    adapter.write_bytes(bytes(10))
    resident = plan_of(
        catalog,
        path,
        ctx=100,
        gpu_layers=3,
        threads=7,
        batch=8,
        kv_type="q8_0",
        flash_attn=False,
        adapters=(Adapter(path=str(adapter)),),
        chat_template="/t",
    )
    again = catalog.plan(ModelChoice(name=str(path)), resident, AMPLE)
    assert again == resident
    other = catalog.plan(ModelChoice(name=str(path), threads=2, adapters=()), resident, AMPLE)
    assert (other.config.ctx, other.config.threads, other.adapters) == (100, 2, ())


def test_nothing_is_inherited_from_another_file(catalog: Catalog, tmp_path: Path) -> None:
    resident = plan_of(catalog, write_gguf(tmp_path / "a.gguf"), ctx=100, threads=7)
    other = write_gguf(tmp_path / "b.gguf")
    plan = catalog.plan(ModelChoice(name=str(other)), resident, AMPLE)
    assert plan == plan_of(catalog, other)


def test_a_resident_by_its_path_keeps_its_name(catalog: Catalog, models: Path) -> None:
    path = write_gguf(models / "m.gguf")
    resident = plan_of(catalog, "m")
    (models / "alias.gguf").symlink_to(path)
    assert catalog.plan(ModelChoice(name="alias"), resident, AMPLE).model == "m"


# --- numbers --------------------------------------------------------------------------------


def test_every_value_is_concrete(catalog: Catalog, tmp_path: Path) -> None:
    """A4."""
    plan = plan_of(catalog, write_gguf(tmp_path / "m.gguf"))
    assert plan.config == Config(
        ctx=TRAINED,
        gpu_layers=0,
        threads=plan.config.threads,
        batch=DEFAULT_BATCH,
        kv_type="f16",
        flash_attn=True,
    )
    assert 1 <= plan.config.threads <= (os.cpu_count() or 1)


def test_required_is_weights_and_overhead_and_kv(catalog: Catalog, tmp_path: Path) -> None:
    """E7."""
    path = write_gguf(tmp_path / "m.gguf")
    fixed = path.stat().st_size + LLAMA_OVERHEAD
    assert plan_of(catalog, path).required_bytes == fixed + TRAINED * PER_TOKEN
    assert plan_of(catalog, path, ctx=10).required_bytes == fixed + 10 * PER_TOKEN
    adapter = tmp_path / "adapter"
    adapter.write_bytes(bytes(1000))
    adapted = plan_of(catalog, path, ctx=10, adapters=(Adapter(path=str(adapter)),))
    assert adapted.required_bytes == fixed + 1000 + 10 * PER_TOKEN


@pytest.mark.parametrize(
    ("kv_type", "bits"),
    [
        ("f32", 32),
        ("f16", 16),
        ("bf16", 16),
        ("q8_0", 8.5),
        ("q5_1", 6),
        ("q5_0", 5.5),
        ("q4_1", 5),
        ("q4_0", 4.5),
    ],
)
def test_kv_of_a_type_costs_its_blocks(
    catalog: Catalog, tmp_path: Path, kv_type: str, bits: float
) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    plan = plan_of(catalog, path, ctx=1, kv_type=kv_type)
    kv = plan.required_bytes - path.stat().st_size - LLAMA_OVERHEAD
    assert kv == PER_TOKEN * bits / 16


@pytest.mark.parametrize(
    ("changes", "per_token"),
    [
        ({"attention.head_count_kv": None}, PER_TOKEN * HEADS // KV_HEADS),
        ({"attention.key_length": 16}, PER_TOKEN * 3 // 2),
        ({"attention.value_length": 16}, PER_TOKEN * 3 // 2),
        ({"attention.head_count": 0}, 0),
        ({"attention.head_count": None}, 0),
        ({"block_count": None}, 0),
        ({"embedding_length": None}, 0),
    ],
)
def test_kv_follows_the_metadata_and_is_0_if_they_do_not_say(
    catalog: Catalog, tmp_path: Path, changes: dict[str, int | None], per_token: int
) -> None:
    path = write_gguf(tmp_path / "m.gguf", **changes)
    plan = plan_of(catalog, path, ctx=10)
    assert plan.required_bytes == path.stat().st_size + LLAMA_OVERHEAD + 10 * per_token


def test_the_context_is_what_the_budget_allows(catalog: Catalog, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    fixed = path.stat().st_size + LLAMA_OVERHEAD
    assert plan_of(catalog, path, fixed + 1000 * PER_TOKEN).config.ctx == 1000
    assert plan_of(catalog, path, fixed + 1001 * PER_TOKEN - 1).config.ctx == 1000
    assert plan_of(catalog, path, AMPLE).config.ctx == TRAINED


@pytest.mark.parametrize("budget", [0, 1, LLAMA_OVERHEAD])
def test_too_small_a_budget_plans_the_least_context_and_revives_nothing(
    catalog: Catalog, tmp_path: Path, budget: int
) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    plan = plan_of(catalog, path, budget)
    assert plan.config.ctx == MIN_CONTEXT
    assert plan.required_bytes > budget


def test_a_model_trained_for_less_than_the_least_context_gets_what_it_knows(
    catalog: Catalog, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", context_length=100)
    assert plan_of(catalog, path, 0).config.ctx == 100


def test_an_unknown_training_length_is_assumed(catalog: Catalog, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", context_length=None)
    assert plan_of(catalog, path).config.ctx == UNKNOWN_CONTEXT


def test_a_context_that_was_asked_for_is_planned_whatever_the_budget(
    catalog: Catalog, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    plan = plan_of(catalog, path, 0, ctx=10**6)
    assert plan.config.ctx == 10**6
    assert plan.required_bytes > 10**6 * PER_TOKEN


@pytest.mark.parametrize(
    ("switches", "extra"),
    [({}, 0), ({"rss_mb": 5}, 5 * 1024**2), ({"rss_mb": "x"}, 0), ({"rss_mb": 1e400}, 0)],
)
def test_an_echo_model_requires_what_it_will_touch(
    catalog: Catalog, tmp_path: Path, switches: dict[str, object], extra: int
) -> None:
    path = write_echo(tmp_path / "m.json", json.dumps(switches))
    assert plan_of(catalog, path).required_bytes == ECHO_OVERHEAD + extra
