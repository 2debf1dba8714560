"""A real worker under a real supervisor, where what goes wrong is the machine's fault."""

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modeld.daemon.contract import pipe
from modeld.daemon.contract.errors import ErrorBody, ErrorCode
from modeld.daemon.contract.exit import Ack, AckStatus, Cause, Exit
from modeld.daemon.contract.lock import FileLock
from modeld.daemon.contract.model import ModelChoice
from modeld.daemon.contract.paths import Root
from modeld.daemon.core import events as saw
from modeld.daemon.core.admission import Limits
from modeld.daemon.core.state import Phase
from modeld.daemon.runtime import process
from modeld.daemon.runtime.accounts import Accounts
from modeld.daemon.runtime.catalog import Catalog
from modeld.daemon.runtime.config import Settings
from modeld.daemon.runtime.journal import Journal
from modeld.daemon.runtime.memory import fixed
from modeld.daemon.runtime.supervisor import Supervisor
from modeld.daemon.runtime.timers import Timers

GIB = 1024**3
PATIENCE_S = 30.0


class Told:
    """Hears what becomes of requests, and keeps it."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, object]] = []
        self.errors: list[ErrorBody] = []
        self.acks: list[Ack] = []

    def run(self, turn: str) -> pipe.RunTurn:
        raise AssertionError(turn)

    def report(self, report: pipe.Report) -> None:
        raise AssertionError(report)

    def loading(self, turn: str) -> None:
        self.outcomes.append(("loading", turn))

    def load_failed(self, turn: str, error: ErrorBody) -> None:
        self.outcomes.append(("load_failed", turn))
        self.errors.append(error)

    def loaded(self, turn: str, *, already: bool) -> None:
        self.outcomes.append(("loaded", already))
        assert turn

    def finish(self, turn: str) -> None:
        raise AssertionError(turn)

    def fail(self, turn: str, cause: Cause, exit_: Exit | None, *, confirmed: bool) -> None:
        assert confirmed
        assert turn
        self.outcomes.append(("fail", cause))
        self.last_exit = exit_

    def refuse(self, who: str, code: ErrorCode) -> None:
        self.outcomes.append((f"refuse {who}", code))

    def answer(self, who: str, ack: Ack) -> None:
        self.outcomes.append((f"answer {who}", ack.status))

    def settled(self, waiters: tuple[str, ...], turn: str | None, ack: Ack) -> None:
        self.outcomes.append((f"settled {turn} {list(waiters)}", ack.status))
        self.acks.append(ack)

    def wait(self, who: str) -> None:
        raise AssertionError(who)

    def offer(self) -> bool:
        return False

    def turn_away(self) -> None:
        return

    def quit(self) -> None:
        raise AssertionError


class Rig:
    """A supervisor over a root of its own, with a loop that waits for one worker."""

    def __init__(self, path: Path) -> None:
        self.root = Root(str(path / "root"))
        os.mkdir(self.root.path, 0o700)
        self.path = path
        self.lock = FileLock(self.root.slot_lock)
        assert self.lock.try_acquire()
        self.told = Told()
        self.supervisor = Supervisor(
            owner="o",
            root=self.root,
            slot_lock_fd=self.lock.fileno(),
            settings=Settings(idle_ttl_s=0.0),
            accounts=Accounts(fixed(8 * GIB), Limits(reserve=0)),
            timers=Timers(),
            journal=Journal(self.root.journal),
        )
        self.supervisor.attach(self.told)

    def load(self, switches: str = "") -> None:
        model = self.path / "m.toml"
        model.write_text(switches)
        catalog = Catalog(str(self.path), None)
        plan = catalog.plan(ModelChoice(name=str(model)), None, GIB)
        self.supervisor.feed(saw.Wanted("l", plan, runs=False, explicit=True))

    def serve_until(self, is_reached: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_reached():
            assert time.monotonic() < until
            worker = self.supervisor.worker
            assert worker is not None
            poller = select.poll()
            if not worker.process.at_eof:
                poller.register(worker.process.fileno(), select.POLLIN)
            exit_fd = worker.process.exit_fileno()
            poller.register(exit_fd, select.POLLIN)
            ready = [descriptor for descriptor, _ in poller.poll(1000 * PATIENCE_S)]
            if worker.process.fileno() in ready:
                self.supervisor.read_worker()
            if exit_fd in ready:
                self.supervisor.collect_worker()

    def serve_until_phase(self, phase: Phase) -> None:
        self.serve_until(lambda: self.supervisor.slot.phase is phase)

    def close(self) -> None:
        if self.supervisor.worker is not None:
            self.supervisor.worker.process.signal("KILL")
            self.serve_until(lambda: self.supervisor.worker is None)
        self.lock.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def test_a_load_is_charged_until_its_workers_exit(rig: Rig) -> None:
    """E13."""
    ledger = rig.supervisor.accounts.ledger
    rig.load()
    assert ledger.charged > 0
    rig.serve_until_phase(Phase.READY)
    assert rig.told.outcomes == [("loading", "l"), ("loaded", False)]
    rig.supervisor.feed(saw.StopWanted(Cause.UNLOAD, "u"))
    assert ledger.charged > 0
    rig.serve_until_phase(Phase.EMPTY)
    assert ledger.charged == 0
    assert rig.told.outcomes[-1] == ("settled None ['u']", AckStatus.RELEASED_CONFIRMED)
    assert rig.told.acks[-1].exit is not None
    assert rig.supervisor.worker is None


def test_a_worker_whose_record_cannot_be_written_is_supervised_all_the_same(rig: Rig) -> None:
    """It ran on, uncharged, while the slot called itself empty."""
    os.mkdir(rig.root.worker_record)
    rig.load()
    assert rig.supervisor.worker is not None
    assert rig.supervisor.accounts.ledger.charged > 0
    rig.serve_until_phase(Phase.READY)


def test_a_worker_that_cannot_be_made_is_a_failed_load_and_not_charged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_pid: int) -> None:
        raise OSError("no descriptor left")

    monkeypatch.setattr(process, "watch_exit", fail)
    rig.load()
    assert rig.supervisor.slot.name == "Failed"
    assert rig.supervisor.accounts.ledger.charged == 0
    assert rig.told.outcomes == [("load_failed", "l"), ("fail", Cause.LOAD_FAILED)]
    assert rig.told.errors[0].code is ErrorCode.MODEL_LOAD_FAILED
    assert "no descriptor left" in rig.told.errors[0].message


def test_what_does_not_fit_any_more_is_refused_right_before_the_spawn(rig: Rig) -> None:
    """E10."""
    rig.load(f"rss_mb = {16 * 1024}")
    assert rig.supervisor.worker is None
    assert rig.supervisor.accounts.ledger.charged == 0
    error = rig.told.errors[0]
    assert error.code is ErrorCode.INSUFFICIENT_MEMORY
    assert error.details["required_bytes"] > error.details["usable_bytes"]


def test_a_crash_that_safe_mode_mends_is_not_the_requests_end(rig: Rig) -> None:
    """The crash's ack was kept as the request's own, and told to whoever asked afterwards."""
    rig.load("warmup_crash_unless_safe = true")
    rig.serve_until_phase(Phase.READY)
    assert rig.told.outcomes == [
        ("loading", "l"),
        ("settled None []", AckStatus.RELEASED_CONFIRMED),
        ("loading", "l"),
        ("loaded", False),
    ]
    assert rig.supervisor.slot.safe_mode


def test_a_worker_killed_from_outside_is_noticed(rig: Rig) -> None:
    """A10."""
    rig.load()
    rig.serve_until_phase(Phase.READY)
    assert rig.supervisor.worker is not None
    rig.supervisor.worker.process.signal("KILL")
    rig.serve_until_phase(Phase.EMPTY)
    assert rig.supervisor.slot.name == "Failed"
    assert "signal 9" in (rig.supervisor.last_error or "")
