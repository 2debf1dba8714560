"""The owner's settings: the configuration file, then the environment over it, all validated."""

import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.paths import config_file

Source = Literal["flag", "env", "config", "default"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting, concrete. Times are seconds (0 is off where that makes sense), sizes bytes.

    ``memory_max`` ``None`` is 80 % of what is free; ``memory_reserve`` ``None`` the larger of 2 GiB
    and 10 % of all memory; ``memory_free`` replaces the measurement, for tests.
    """

    default_model: str | None = None
    idle_ttl_s: float = 300.0
    idle_ttl_source: Source = "default"
    daemon_idle_s: float = 600.0
    leave_grace_s: float = 5.0
    term_grace_s: float = 2.0
    kill_grace_s: float = 5.0
    cancel_grace_s: float = 2.0
    queue_limit: int = 64
    memory_max: int | None = None
    memory_reserve: int | None = None
    memory_free: int | None = None


def parse_duration(text: str) -> float:
    """``500ms``, ``10s``, ``5m``, ``2h``, plain seconds, or ``off``: seconds. Raises ValueError."""
    word = text.strip().lower()
    if word in {"off", "none"}:
        return 0.0
    match = _DURATION.fullmatch(word)
    if match is None:
        raise ValueError("expected a duration such as 500ms, 10s, 5m, 2h or off")
    return float(match[1]) * _DURATION_S[match[2]]


def parse_size(text: str) -> int:
    """``8GiB``, ``2GB``, ``512Mi`` or plain bytes: bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("expected a size such as 8GiB, 2GB, 512Mi or bytes")
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def _parse_count(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise ValueError("expected a whole number above 0")
    return int(text)


class _Key(msgspec.Struct, frozen=True):
    """One setting's name in the file, in the environment, and in :class:`Settings`."""

    file: str
    environ: str | None
    field: str
    parse: Any


KEYS = (
    _Key("model.default", "MODELD_MODEL", "default_model", str),
    _Key("idle.ttl", "MODELD_IDLE_TTL", "idle_ttl_s", parse_duration),
    _Key("idle.daemon", "MODELD_DAEMON_IDLE", "daemon_idle_s", parse_duration),
    _Key("grace.leave", None, "leave_grace_s", parse_duration),
    _Key("grace.term", None, "term_grace_s", parse_duration),
    _Key("grace.kill", None, "kill_grace_s", parse_duration),
    _Key("grace.cancel", None, "cancel_grace_s", parse_duration),
    _Key("queue.limit", "MODELD_QUEUE_LIMIT", "queue_limit", _parse_count),
    _Key("memory.max", "MODELD_MEM_MAX", "memory_max", parse_size),
    _Key("memory.reserve", "MODELD_MEM_RESERVE", "memory_reserve", parse_size),
    _Key("memory.free", "MODELD_MEMORY_FREE", "memory_free", parse_size),
)


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings in force for a daemon with this environment.

    Raises ModeldError(config_invalid) naming the source, the setting and the value.
    """
    path = config_file(environ)
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    in_file = _flatten(_read_file(path))
    known = {key.file for key in KEYS}
    for name in in_file:
        if name not in known:
            raise _invalid(
                path, name, "there is no such setting; known are " + ", ".join(sorted(known))
            )
    for key in KEYS:
        if key.file in in_file:
            values[key.field] = _parsed(key, str(in_file[key.file]), path, key.file)
            sources[key.field] = "config"
        if key.environ is not None and environ.get(key.environ):
            values[key.field] = _parsed(key, environ[key.environ], "the environment", key.environ)
            sources[key.field] = "env"
    return Settings(**values, idle_ttl_source=sources.get("idle_ttl_s", "default"))


def _parsed(key: _Key, text: str, source: str, name: str) -> Any:
    try:
        return key.parse(text)
    except (ValueError, OverflowError) as exc:
        raise _invalid(source, f"{name} = {text!r}", str(exc)) from exc


def _invalid(source: str, seen: str, expected: str) -> ModeldError:
    return ModeldError(
        ErrorCode.CONFIG_INVALID, f"{source}: {seen}: {expected}", source=source, seen=seen
    )


def _read_file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise _invalid(path, os.path.basename(path), f"cannot be read: {exc}") from exc


def _flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
