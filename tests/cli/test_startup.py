"""What a command imports before it does anything: names, since seconds differ between machines."""

import subprocess
import sys

import pytest
from rig import Rig

HEAVY = {
    *("asyncio", "numpy", "psutil", "logging", "tomllib", "subprocess", "tempfile", "pathlib"),
    *("ssl", "http", "email", "urllib", "multiprocessing", "concurrent", "dataclasses"),
    *("llama_cpp", "mlx", "jinja2", "difflib", "traceback", "unittest", "selectors"),
}
STANDARD = set(sys.stdlib_module_names) - HEAVY
ALLOWED = STANDARD | {"modeld", "click", "msgspec", "zmq", "typing_extensions"}
CYTHON = {"cython_runtime"}

PROGRAM = """
import sys
before = set(sys.modules)
from modeld.cli.__main__ import main
try:
    main(sys.argv[1:])
finally:
    print("IMPORTED", *sorted(set(sys.modules) - before), file=sys.stderr)
"""


def imported(rig: Rig, *args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, *args],
        env=rig.env,
        cwd=rig.base,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("IMPORTED"), done
    return set(last.split()[1:])


def top_level(names: set[str]) -> set[str]:
    tops = {name.partition(".")[0] for name in names} - CYTHON
    return {name for name in tops if not name.startswith("_cython")}


@pytest.mark.parametrize(
    "args",
    [("--help",), ("ps", "--no-start"), ("gen", "--no-start", "x"), ("stream", "--no-start", "x")],
)
def test_only_light_modules_are_imported(rig: Rig, args: tuple[str, ...]) -> None:
    names = imported(rig, *args)
    assert top_level(names) - ALLOWED == set()
    assert "importlib.metadata" not in names


def test_help_needs_no_command_and_no_wire(rig: Rig) -> None:
    names = imported(rig, "--help")
    assert top_level(names) & {"zmq", "msgspec"} == set()
    assert {name for name in names if name.startswith("modeld.cli.commands.")} == set()


def test_of_the_daemon_only_the_contract_is_imported(rig: Rig) -> None:
    names = imported(rig, "gen", "--no-start", "x")
    daemon = {name for name in names if name.startswith("modeld.daemon.")}
    assert {name for name in daemon if not name.startswith("modeld.daemon.contract")} == set()


def test_a_warm_ps_is_as_light(rig: Rig) -> None:
    rig.ps()
    assert top_level(imported(rig, "ps")) - ALLOWED == set()
