"""The native library behind the llama backend, whichever of its versions is installed."""

import collections
import ctypes
import importlib.metadata
import importlib.util
import os
import sys
import types
from typing import Any

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.model import Config, KvType

DISTRIBUTION = "llama-cpp-python"

# ggml.h; part of the file format, so they do not change.
_KV_TYPES: dict[KvType, int] = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "bf16": 30,
}

# ggml.h, not the bindings' own table, which is an older one.
_LOG_DEBUG = 1
_LOG_CONTINUED = 5
_LOG_LINES_KEPT = 12

_SPIN_COUNT = "1000"
"""How often an OpenMP thread looks for the others before it sleeps; GNU's own number for a crowd.

Its default is for a machine of one's own: beside one busy process on 2 cores it made 1 token/s of
90, and 1000 made 20, at no cost that could be measured alone.
"""


def bindings() -> Any:
    """The module with the C functions, without the rest of its package.

    The package's own ``__init__`` imports numpy and a web of helpers, 0.3 s of every cold start,
    for a class that is not used here.
    """
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.submodule_search_locations is None:
        raise ModeldError(
            ErrorCode.UNSUPPORTED_FEATURE,
            f"the llama backend needs the package {DISTRIBUTION}, which is not installed",
            recovery=f"pip install {DISTRIBUTION}",
        )
    if "OMP_WAIT_POLICY" not in os.environ:
        # Read when the library is loaded; a user's own choice stays.
        os.environ.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)
    if "llama_cpp" not in sys.modules:
        package = types.ModuleType("llama_cpp")
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules["llama_cpp"] = package
    return importlib.import_module("llama_cpp.llama_cpp")


def engine(api: Any) -> str:
    """The build in one line: what a known defect, or its absence, can be tied to."""
    version = importlib.metadata.version(DISTRIBUTION)
    library = ""
    if hasattr(api, "llama_version"):
        library = f", llama.cpp {api.llama_version().decode()}"
    system = " ".join(api.llama_print_system_info().decode().split())
    return f"{DISTRIBUTION} {version}{library}, {system.rstrip(' |')}"


def model_params(api: Any, config: Config, *, safe_mode: bool) -> Any:
    """The parameters of a load; ``safe_mode`` does without repacked weights."""
    params = api.llama_model_default_params()
    _set(params, "n_gpu_layers", config.gpu_layers)
    mapped = bool(api.llama_supports_mmap())
    if _has(params, "load_mode"):
        mode = api.LLAMA_LOAD_MODE_MMAP if mapped else api.LLAMA_LOAD_MODE_NONE
        _set(params, "load_mode", mode)
    else:
        _set(params, "use_mmap", mapped)
    if safe_mode:
        _set(params, "use_extra_bufts", False)
    return params


def context_params(api: Any, config: Config) -> Any:
    """The parameters of a context for one sequence."""
    params = api.llama_context_default_params()
    _set(params, "n_ctx", config.ctx)
    _set(params, "n_batch", config.batch)
    _set(params, "n_ubatch", min(config.batch, params.n_ubatch))
    _set(params, "n_seq_max", 1)
    _set(params, "n_threads", config.threads)
    _set(params, "n_threads_batch", config.threads)
    _set(params, "type_k", _KV_TYPES[config.kv_type])
    _set(params, "type_v", _KV_TYPES[config.kv_type])
    if _has(params, "flash_attn_type"):
        _set(params, "flash_attn_type", int(config.flash_attn))
    else:
        _set(params, "flash_attn", config.flash_attn)
    return params


def abort_callback(api: Any) -> Any:
    """A callback that says whether the C string it is given is not empty: ``strlen`` itself.

    The library asks before each of some hundred operations a token. A callback in Python would
    take the interpreter's lock each time; this one does not know that there is an interpreter.
    """
    address = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
    return api.ggml_abort_callback(address)


class NativeLog:
    """Sends the library's log to standard error, and keeps the last lines that matter."""

    def __init__(self, api: Any) -> None:
        self._kept: collections.deque[str] = collections.deque(maxlen=_LOG_LINES_KEPT)
        self._level = 0
        # The library keeps the pointer: the callback has to live as long as it does.
        self._callback = api.llama_log_callback(self._take)
        api.llama_log_set(self._callback, None)

    def tail(self) -> list[str]:
        """The last lines, oldest first."""
        return list(self._kept)

    def _take(self, level: int, text: bytes, _data: int | None) -> None:
        if level != _LOG_CONTINUED:
            self._level = level
        if self._level <= _LOG_DEBUG:
            return
        os.write(2, text)
        line = text.decode("utf-8", "replace").strip()
        if len(line) > 1:
            self._kept.append(line)


def _has(params: Any, name: str) -> bool:
    return any(field[0] == name for field in params._fields_)


def _set(params: Any, name: str, value: object) -> None:
    """Set a field that exists: ctypes takes any other name too, without effect (pain B52)."""
    if not _has(params, name):
        raise ModeldError(
            ErrorCode.UNSUPPORTED_FEATURE,
            f"the installed {DISTRIBUTION} has no parameter {name}",
            recovery=f"pip install --upgrade {DISTRIBUTION}",
        )
    setattr(params, name, value)
