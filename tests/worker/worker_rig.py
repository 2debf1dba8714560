"""The daemon's side of a worker's pipe, for tests: real processes, deadlines on everything."""

import contextlib
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
from typing import NamedTuple

from modeld.daemon.contract.model import Plan
from modeld.daemon.contract.pipe import (
    CancelTurn,
    Frames,
    Leave,
    LoadFailed,
    LoadModel,
    LoadProgress,
    Order,
    Piece,
    Prefill,
    Ready,
    Report,
    RunTurn,
    TurnDone,
    TurnFailed,
    decode_report,
    encode,
)
from modeld.daemon.contract.task import Message, Sampling, Task

DEADLINE_S = 30.0


class Answer(NamedTuple):
    """A finished turn: its text, its end, and every report on the way."""

    text: str
    end: TurnDone | TurnFailed
    reports: list[Report]


class Pipe:
    """Orders in, reports out, each within the deadline."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.settimeout(DEADLINE_S)
        self._frames = Frames()
        self._bodies: list[bytes] = []

    def send(self, order: Order) -> None:
        self._end.sendall(encode(order))

    def send_bytes(self, data: bytes) -> None:
        self._end.sendall(data)

    def read(self) -> Report | None:
        """The next report; None at the pipe's end."""
        while not self._bodies:
            try:
                data = self._end.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._bodies += self._frames.feed(data)
        return decode_report(self._bodies.pop(0))

    def close(self) -> None:
        self._end.close()


class Worker(Pipe):
    """One worker, child of this process."""

    def __init__(self, log: pathlib.Path) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self.log = log
        with log.open("wb") as out, tempfile.TemporaryFile() as lock, theirs:
            self.process = subprocess.Popen(
                command(theirs.fileno(), os.getpid(), lock.fileno()),
                pass_fds=(theirs.fileno(), lock.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                start_new_session=True,
                env=os.environ | {"MODELD_WORKER": "1"},
            )
        self.pid = self.process.pid

    def load(self, plan: Plan, *, safe_mode: bool = False) -> None:
        self.send(LoadModel(plan=plan, safe_mode=safe_mode))

    def ready(self) -> Ready:
        report = self.after_progress()
        assert isinstance(report, Ready), (report, self.log.read_text())
        return report

    def load_failed(self) -> LoadFailed:
        report = self.after_progress()
        assert isinstance(report, LoadFailed), report
        return report

    def after_progress(self) -> Report | None:
        while isinstance(report := self.read(), LoadProgress):
            pass
        return report

    def run(self, prompt: str | None = None, *, turn: str = "t", **wishes: object) -> None:
        """Send a turn; ``wishes`` are fields of RunTurn, Sampling or Task."""
        order = {name: wishes.pop(name, value) for name, value in _ORDER.items()}
        fields = Sampling.__struct_fields__
        sampling = {name: wishes.pop(name) for name in fields if name in wishes}
        task = Task(prompt=prompt, sampling=Sampling(**sampling), **wishes)
        self.send(RunTurn(turn=turn, task=task, **order))

    def answer(self) -> Answer:
        """Everything up to the end of the turn."""
        text, reports = "", []
        while (report := self.read()) is not None:
            reports.append(report)
            if isinstance(report, Piece):
                text += report.text
            if isinstance(report, TurnDone | TurnFailed):
                return Answer(text, report, reports)
        raise AssertionError(f"the pipe ended: {reports}\n{self.log.read_text()}")

    def ask(self, prompt: str | None = None, **wishes: object) -> Answer:
        self.run(prompt, **wishes)
        return self.answer()

    def answer_within(self, seconds: float) -> Answer:
        """The same; raises TimeoutError if nothing more comes for so long."""
        self._end.settimeout(seconds)
        return self.answer()

    def until(self, kind: type[Piece | Prefill]) -> Report:
        """The next report of a kind; others are skipped."""
        while not isinstance(report := self.read(), kind):
            assert report is not None, self.log.read_text()
        return report

    def cancel(self, turn: str = "t") -> None:
        self.send(CancelTurn(turn=turn))

    def leave(self) -> None:
        self.send(Leave())

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def exit(self, timeout: float = DEADLINE_S) -> int:
        """The exit status, negative for a signal."""
        return self.process.wait(timeout)

    def hang_up(self) -> None:
        """Close the daemon's end."""
        self._end.close()

    def lasts(self, seconds: float) -> bool:
        """Whether it is still there after so long."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            # The group too: a grandchild may be left in it.
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)
        super().close()


_ORDER = {"seed": 1, "exact": False, "stream": True}


def command(pipe: int, parent: int, lock: int) -> list[str]:
    fds = ["--pipe-fd", str(pipe), "--parent-pid", str(parent), "--lock-fd", str(lock)]
    return [sys.executable, "-P", "-m", "modeld.daemon.worker", *fds]


def gone_within(pid: int, seconds: float) -> bool:
    """Whether a process that need not be a child is gone, or a zombie, within so long."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


__all__ = [
    "Answer",
    "Message",
    "Piece",
    "Pipe",
    "Prefill",
    "Worker",
    "command",
    "gone_within",
]
