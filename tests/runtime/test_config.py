"""Each setting from each source, what wins, and what is said of a bad one."""

import os
from pathlib import Path

import pytest

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.runtime.config import (
    KEYS,
    Settings,
    parse_duration,
    parse_size,
    read_settings,
)

GIB = 1024**3
EXAMPLES: dict[str, tuple[str, object, str, object]] = {
    "model.default": ('"a"', "a", "b", "b"),
    "idle.ttl": ('"2m"', 120.0, "off", 0.0),
    "idle.daemon": ("30", 30.0, "1h", 3600.0),
    "grace.leave": ('"500ms"', 0.5, "", None),
    "grace.term": ("1.5", 1.5, "", None),
    "grace.kill": ('"7s"', 7.0, "", None),
    "grace.cancel": ('"3s"', 3.0, "", None),
    "queue.limit": ("3", 3, "4", 4),
    "memory.max": ('"8GiB"', 8 * GIB, "2GB", 2 * 10**9),
    "memory.reserve": ("1024", 1024, "512Mi", 512 * 1024**2),
    "memory.free": ('"1.5GiB"', 1610612736, "0", 0),
}
BAD = {
    "idle.ttl": ("soon", "MODELD_IDLE_TTL"),
    "idle.daemon": ("-1", "MODELD_DAEMON_IDLE"),
    "grace.leave": ("1d", None),
    "grace.term": ("", None),
    "grace.kill": ("nan", None),
    "grace.cancel": ("inf", None),
    "queue.limit": ("0", "MODELD_QUEUE_LIMIT"),
    "memory.max": ("8GBB", "MODELD_MEM_MAX"),
    "memory.reserve": ("-5", "MODELD_MEM_RESERVE"),
    "memory.free": ("9" * 400, "MODELD_MEMORY_FREE"),
}


class Home:
    """A user's configuration directory."""

    def __init__(self, path: Path) -> None:
        self.file = path / "modeld" / "config.toml"
        self.file.parent.mkdir()
        self.environ = {"XDG_CONFIG_HOME": str(path), "HOME": "/nowhere"}

    def read(self, text: str | bytes | None = None, **environ: str) -> Settings:
        if text is not None:
            self.file.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_settings({**self.environ, **environ})

    def refusal(self, text: str | bytes | None = None, **environ: str) -> ModeldError:
        with pytest.raises(ModeldError) as caught:
            self.read(text, **environ)
        assert caught.value.code is ErrorCode.CONFIG_INVALID
        return caught.value


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_the_examples_are_every_setting_there_is() -> None:
    assert set(EXAMPLES) == {key.file for key in KEYS}
    assert {k for k, (_, _, env, _) in EXAMPLES.items() if env} == {
        key.file for key in KEYS if key.environ is not None
    }


def test_without_any_source_the_defaults_hold(home: Home) -> None:
    assert home.read() == Settings()


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.file)
def test_a_setting_comes_from_the_file_and_the_environment_wins(home: Home, key: object) -> None:
    name, field, environ = key.file, key.field, key.environ  # type: ignore[attr-defined]
    in_file, from_file, in_environ, from_environ = EXAMPLES[name]
    table, _, short = name.partition(".")
    text = f"[{table}]\n{short} = {in_file}\n"
    assert getattr(home.read(text), field) == from_file
    if environ is not None:
        assert getattr(home.read(text, **{environ: in_environ}), field) == from_environ
        home.file.unlink()
        assert getattr(home.read(**{environ: in_environ}), field) == from_environ


def test_an_empty_variable_is_no_setting(home: Home) -> None:
    assert home.read("[idle]\nttl = 7", MODELD_IDLE_TTL="").idle_ttl_s == 7.0


def test_the_time_to_live_tells_its_source(home: Home) -> None:
    assert home.read().idle_ttl_source == "default"
    assert home.read("[idle]\nttl = 7").idle_ttl_source == "config"
    assert home.read("[idle]\nttl = 7", MODELD_IDLE_TTL="8").idle_ttl_source == "env"


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_value_names_its_source_its_setting_and_itself(home: Home, name: str) -> None:
    """E15, trap 18: never silently the default."""
    value, environ = BAD[name]
    table, _, short = name.partition(".")
    said = home.refusal(f'[{table}]\n{short} = "{value}"\n').message
    assert str(home.file) in said
    assert name in said
    assert repr(value) in said
    home.file.unlink()
    if environ is not None:
        said = home.refusal(**{environ: value}).message
        assert "the environment" in said
        assert environ in said
        assert repr(value) in said


@pytest.mark.parametrize("value", ["true", "[1]", "{ a = 1 }", "1979-05-27"])
def test_a_value_of_another_kind_is_refused(home: Home, value: str) -> None:
    home.refusal(f"[idle]\nttl = {value}\n")


@pytest.mark.parametrize("text", ["[idle]\nttll = 1", "idle = 1", "[a.b.c]\nd = 1", "x = 1"])
def test_an_unknown_setting_is_refused_and_the_known_ones_named(home: Home, text: str) -> None:
    said = home.refusal(text).message
    assert "no such setting" in said
    assert "idle.ttl" in said


@pytest.mark.parametrize("text", ["[idle", b"\xff\xfe", "a = 1\na = 2"])
def test_a_file_that_is_no_toml_is_refused_by_name(home: Home, text: str | bytes) -> None:
    assert str(home.file) in home.refusal(text).message


def test_a_file_that_cannot_be_read_is_refused_by_name(home: Home) -> None:
    os.mkdir(home.file)
    assert str(home.file) in home.refusal().message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10),
        ("5m", 300),
        ("2h", 7200),
        ("7", 7),
        ("1.5m", 90),
        ("off", 0),
        ("OFF", 0),
        (" 3s ", 3),
        ("0", 0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1 h 2", "-1s", "1e3", "5 min", "ms"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 * GIB),
        ("2GB", 2 * 10**9),
        ("512Mi", 512 * 1024**2),
        ("1.5GiB", 1610612736),
        ("0", 0),
        ("77", 77),
        ("77b", 77),
        ("1k", 1000),
        ("1 KiB", 1024),
        ("2TiB", 2 * 1024**4),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "8GBB", "1e9", "one", "1.GiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        parse_size(text)
