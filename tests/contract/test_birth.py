"""A process is known by its pid together with its birth (E3)."""

import os
import subprocess
import sys

import psutil
import pytest

from modeld.daemon.contract import birth
from modeld.daemon.contract.birth import birth_of


@pytest.fixture(params=["this platform", "another"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to ask, wherever the test runs."""
    assert psutil.Process().is_running()
    if request.param == "another":
        monkeypatch.setattr(birth, "sys", type("OtherSys", (), {"platform": "other"}))


@pytest.mark.usefixtures("platform")
def test_a_birth_is_the_same_whenever_it_is_asked() -> None:
    assert birth_of(os.getpid())
    assert birth_of(os.getpid()) == birth_of(os.getpid())


@pytest.mark.usefixtures("platform")
def test_a_process_that_is_gone_has_no_birth() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    assert birth_of(process.pid) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_name_full_of_parentheses_and_spaces_hides_nothing() -> None:
    code = "open('/proc/self/comm', 'w').write(') 1 (2 )'); print('set', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    before = birth_of(process.pid)
    assert process.stdout is not None
    process.stdout.readline()
    after = birth_of(process.pid)
    process.communicate(b"\n")
    assert before == after != "0"
