"""The arrows between modules point down only; this table is the law, the code its subject."""

import ast
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SOURCES = {"modeld.cli": PROJECT / "cli", "modeld.daemon": PROJECT / "daemon"}

DOWN: dict[str, set[str]] = {
    "modeld.cli.commands": {"modeld.cli", "modeld.daemon.contract"},
    "modeld.cli": {"modeld.cli", "modeld.daemon.contract"},
    "modeld.daemon.__main__": {
        "modeld.daemon.runtime",
        "modeld.daemon.core",
        "modeld.daemon.contract",
    },
    "modeld.daemon.runtime": {
        "modeld.daemon.runtime",
        "modeld.daemon.core",
        "modeld.daemon.contract",
    },
    "modeld.daemon.core": {"modeld.daemon.core", "modeld.daemon.contract"},
    "modeld.daemon.worker": {"modeld.daemon.worker", "modeld.daemon.contract"},
    "modeld.daemon.contract": {"modeld.daemon.contract"},
}
"""Which packages a package's modules may import; the longest matching key counts."""

FOREIGN: dict[str, set[str]] = {
    "modeld.daemon.core": {"collections", "dataclasses", "enum", "typing"},
    "modeld.daemon.contract": {
        "collections",
        "contextlib",
        "enum",
        "fcntl",
        "hashlib",
        "msgspec",
        "os",
        "pwd",
        "signal",
        "stat",
        "struct",
        "sys",
        "psutil",  # where the kernel's own number is not to be had
        "types",
        "typing",
    },
}
"""What else the pure and the light packages may import (S1, start-up)."""

NATIVE = {"llama_cpp", "mlx", "mlx_lm", "numpy"}


def modules() -> dict[str, Path]:
    found = {}
    for name, folder in SOURCES.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if "build" not in parts and parts[-1] != "__init__":
                found[".".join((name, *parts))] = path
    return found


def imports(path: Path) -> set[str]:
    """Every module that the file names in an import, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def matching(table: dict[str, set[str]], name: str) -> set[str] | None:
    keys = [key for key in table if name == key or name.startswith(f"{key}.")]
    return table[max(keys, key=len)] if keys else None


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_point_down(name: str) -> None:
    allowed = matching(DOWN, name)
    assert allowed is not None, f"{name} has no place in the table"
    ours = {n for n in imports(modules()[name]) if n.startswith("modeld.")}
    up = {n for n in ours if not any(n == a or n.startswith(f"{a}.") for a in allowed)}
    assert not up


@pytest.mark.parametrize("name", sorted(modules()))
def test_foreign_imports_stay_where_they_belong(name: str) -> None:
    tops = {n.partition(".")[0] for n in imports(modules()[name])} - {"modeld"}
    allowed = matching(FOREIGN, name)
    if allowed is not None:
        assert tops <= allowed
    if not name.startswith("modeld.daemon.worker.backends"):
        assert not tops & NATIVE


def test_no_cycles() -> None:
    graph = {
        name: {n for n in imports(path) if n in modules() and n != name}
        for name, path in modules().items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for below in graph[name]:
                visit(below, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_every_folder_with_code_is_a_listed_package() -> None:
    config = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {
        ".".join((name, *path.parent.relative_to(folder).parts))
        for name, folder in SOURCES.items()
        for path in folder.rglob("*.py")
    }
    assert set(config["tool"]["setuptools"]["packages"]) == folders


def test_init_files_are_empty() -> None:
    for folder in SOURCES.values():
        for path in folder.rglob("__init__.py"):
            assert path.read_text(encoding="utf-8") == "", path


def test_no_module_is_longer_than_one_sitting() -> None:
    """House style: stop at 400 lines."""
    lengths = {
        name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules().items()
    }
    assert not {name: length for name, length in lengths.items() if length > 400}
