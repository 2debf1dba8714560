"""Where modeld is run from: cron's empty environment, odd roots, closed streams, loops."""

import os
import shlex
import subprocess

import pytest
from rig import MODELD, Rig


def bash(rig: Rig, script: str, **env: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        ["bash", "-c", script],
        env={**rig.env, "M": MODELD, **env},
        cwd=rig.base,
        capture_output=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_while_read_loop_keeps_its_input(rig: Rig) -> None:
    """With a prompt as an argument, standard input belongs to somebody else."""
    model = rig.echo_model()
    script = 'printf "one\\ntwo\\nthree\\n" | while read -r l; do "$M" gen -m "$E" "$l"; done'
    done = bash(rig, script, E=model)
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\nthree\n")


def test_env_i_works_as_cron_does(rig: Rig) -> None:
    script = f'env -i MODELD_ROOT={shlex.quote(rig.root)} "$M" ps'
    done = bash(rig, script)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name",
    ["with spaces and 🦊", "x" * 150, "ünïcödé/深い/根" * 6],
    ids=["spaces-emoji", "150-bytes", "deep-unicode"],
)
def test_odd_roots_work(rig: Rig, name: str) -> None:
    """B67: a path beyond the socket's limit moves to a short one, the same at both ends."""
    root = os.path.join(rig.base, name)
    env = {"MODELD_ROOT": root}
    done = rig.modeld("gen", "-m", rig.echo_model(), "hello", env=env)
    try:
        assert (done.status, done.out) == (0, "hello\n"), done
        other = {"PATH": "/usr/bin:/bin", "TMPDIR": rig.base}
        assert rig.modeld("ps", "--root", root, "--no-start", env=other).status == 0
    finally:
        assert rig.modeld("stop", env=env).status == 0


def test_root_of_somebody_else_or_open_to_others_is_refused(rig: Rig) -> None:
    """H18."""
    os.mkdir(rig.root)
    os.chmod(rig.root, 0o777)
    done = rig.modeld("ps")
    assert done.status == 2
    assert rig.root in done.err
    os.chmod(rig.root, 0o700)
    link = os.path.join(rig.base, "link")
    os.symlink(rig.root, link)
    assert rig.modeld("ps", "--root", link).status == 2


def test_files_are_private(rig: Rig) -> None:
    assert rig.modeld("gen", "-m", rig.echo_model(), "x").status == 0
    assert os.stat(rig.root).st_mode & 0o777 == 0o700
    for entry in os.scandir(rig.root):
        assert entry.stat().st_mode & 0o777 == 0o600, entry.name


def test_closed_streams_are_no_tracebacks(rig: Rig) -> None:
    model = rig.echo_model()
    closed = bash(rig, '"$M" gen -m "$E" hello <&-', E=model)
    assert (closed.returncode, closed.stdout) == (0, b"hello\n")
    no_input = bash(rig, '"$M" gen -m "$E" <&-', E=model)
    assert no_input.returncode == 2
    full = bash(rig, '"$M" gen -m "$E" hello >/dev/full', E=model)
    assert full.returncode not in {0, 130}
    silent = bash(rig, '"$M" ps >&-', E=model)
    assert silent.returncode != 0
    for done in (closed, no_input, full, silent):
        assert b"Traceback" not in done.stderr


def test_worker_never_starts_a_daemon(rig: Rig) -> None:
    """A27."""
    done = rig.modeld("gen", "-m", rig.echo_model(), "x", env={"MODELD_WORKER": "1"})
    assert done.status == 2
    assert not os.path.exists(os.path.join(rig.root, "owner.json"))
