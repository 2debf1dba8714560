"""What a user gets wrong: one or two lines, a status, and never a traceback."""

import pytest
from rig import Rig

WRONG = [
    ([], 2, "Usage: modeld"),
    (["lod"], 2, "did you mean load or"),
    (["--nonsense"], 2, "No such option"),
    (["load"], 2, "Missing argument 'MODEL'"),
    (["load", ""], 2, "an empty name"),
    (["load", "m", "--ttl", "soon"], 2, "is not a duration"),
    (["gen", "--deadline", "0", "x"], 2, "is not from 1ms to 10m"),
    (["gen", "--deadline", "700s", "x"], 2, "is not from 1ms to 10m"),
    (["gen", "--max-tokens", "0", "x"], 2, "--max-tokens"),
    (["gen", "--temp", "hot", "x"], 2, "--temp"),
    (["gen", "--id", "a b", "x"], 2, "is not an id"),
    (["gen", "--wait", "1s", "--no-wait", "x"], 2, "exclude each other"),
    (["gen", "--messages", "-", "x"], 2, "--messages replaces the prompt"),
    (["gen", "--raw", "-s", "x", "y"], 2, "--raw leaves out"),
    (["gen", "--stop", "", "x"], 2, "empty --stop"),
    (["gen", ""], 2, "the prompt is empty"),
    (["gen"], 2, "the prompt is empty (standard input was empty)"),
    (["gen", "-f", "missing.txt"], 2, "missing.txt cannot be read: No such file"),
    (["kill", ""], 2, "names no inference"),
    (["--root", "", "ps"], 2, "an empty name is not a directory"),
    (["--root", "/dev/null", "ps"], 2, "is not a directory"),
    (["--timeout", "0", "ps"], 2, "is not longer than nothing"),
    (["ps", "extra"], 2, "extra"),
]


@pytest.mark.parametrize(("args", "status", "expected"), WRONG, ids=lambda v: str(v)[:40])
def test_a_mistake(rig: Rig, args: list[str], status: int, expected: str) -> None:
    done = rig.modeld("--no-start", *args) if args else rig.modeld()
    assert (done.status, done.out) == (status, "")
    assert expected in done.err
    assert "Traceback" not in done.err
    assert not args or len(done.err.splitlines()) <= 2


def test_a_mistake_as_json(rig: Rig) -> None:
    done = rig.modeld("gen", "--json", "--no-such-option")
    assert done.status == 2
    assert done.json["error"]["code"] == "bad_request"
    assert done.err == ""


@pytest.mark.parametrize(
    ("args", "status", "err"),
    [
        (["ps"], 3, "modeld: no daemon is running for {root}\n"),
        (["kill"], 3, "modeld: no daemon is running for {root}\n"),
        (["reap"], 0, ""),
        (["stop"], 0, "modeld: not running\n"),
    ],
)
def test_without_a_daemon(rig: Rig, args: list[str], status: int, err: str) -> None:
    done = rig.modeld("--no-start", *args)
    assert done == (status, "", err.format(root=rig.root))
    assert rig.processes() == []


def test_unload_without_a_daemon_is_done(rig: Rig) -> None:
    assert rig.modeld("unload", env={"MODELD_NO_START": "1"}) == (0, "nothing is resident\n", "")


def test_a_worker_may_not_use_modeld(rig: Rig) -> None:
    """A27."""
    done = rig.modeld("gen", "x", "--json", env={"MODELD_WORKER": "1"})
    assert done.status == 2
    assert done.json["error"]["code"] == "not_allowed_in_worker"


@pytest.mark.parametrize("args", [("--version",), ("ps", "--version")])
def test_version(rig: Rig, args: tuple[str, ...]) -> None:
    assert rig.modeld(*args).out.startswith("modeld ")


@pytest.mark.parametrize("command", ["load", "gen", "ps", "kill", "unload", "reap", "stop", "log"])
def test_help_of_a_command_fits_and_lists_the_shared_options(rig: Rig, command: str) -> None:
    done = rig.modeld(command, "-h")
    assert done.status == 0
    assert "--no-start" in done.out
    assert all(len(line) <= 80 for line in done.out.splitlines())
