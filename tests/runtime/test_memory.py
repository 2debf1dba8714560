"""How much memory there is: within what the machine and its control group have."""

from pathlib import Path

import psutil
import pytest

from modeld.daemon.runtime import memory
from modeld.daemon.runtime.memory import fixed, measure

MIB = 1024**2


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group's files, none yet."""
    monkeypatch.setattr(memory, "CGROUP", str(tmp_path))
    return tmp_path


def test_what_is_free_is_within_what_there_is() -> None:
    measured = measure()
    assert 0 <= measured.free <= measured.total <= psutil.virtual_memory().total


def test_without_a_control_group_it_is_the_machines(cgroup: Path) -> None:
    assert not list(cgroup.iterdir())
    assert measure().total == psutil.virtual_memory().total


@pytest.mark.parametrize("limit", ["max", "", str(2**62)])
def test_a_control_group_without_a_limit_is_the_machine(cgroup: Path, limit: str) -> None:
    (cgroup / "memory.max").write_text(f"{limit}\n")
    (cgroup / "memory.current").write_text("5\n")
    assert measure().total == psutil.virtual_memory().total


def test_a_control_groups_limit_counts_and_its_page_cache_is_free(cgroup: Path) -> None:
    (cgroup / "memory.max").write_text(f"{64 * MIB}\n")
    (cgroup / "memory.current").write_text(f"{60 * MIB}\n")
    assert measure() == memory.Measured(64 * MIB, 4 * MIB)
    (cgroup / "memory.stat").write_text(f"anon 1\ninactive_file {8 * MIB}\nfile 2\n")
    assert measure() == memory.Measured(64 * MIB, 12 * MIB)
    (cgroup / "memory.stat").write_text("anon 1\n")
    assert measure() == memory.Measured(64 * MIB, 4 * MIB)


def test_a_control_group_over_its_limit_has_nothing_free(cgroup: Path) -> None:
    (cgroup / "memory.max").write_text(f"{64 * MIB}\n")
    (cgroup / "memory.current").write_text(f"{65 * MIB}\n")
    assert measure().free == 0


def test_a_fixed_probe_always_answers_the_same() -> None:
    probe = fixed(5 * MIB)
    assert probe() == probe()
    assert probe().free == 5 * MIB
    assert probe().total == psutil.virtual_memory().total
    assert fixed(2**60)().total == 2**60
