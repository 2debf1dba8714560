"""The words for what goes wrong, and for how a worker ended."""

import signal

import pytest

from modeld.daemon.contract.errors import RETRYABLE, ErrorCode, ModeldError
from modeld.daemon.contract.exit import Exit, ExitKind, signal_name


def test_an_error_travels_and_comes_back_the_same() -> None:
    sent = ModeldError(ErrorCode.MODEL_BUSY, "busy", model="m", recovery="wait")
    back = ModeldError.from_body(sent.body())
    assert (back.code, back.message, back.details) == (sent.code, sent.message, sent.details)
    assert str(back) == "busy"


@pytest.mark.parametrize("code", list(ErrorCode))
def test_an_error_says_whether_it_may_be_tried_again(code: ErrorCode) -> None:
    assert ModeldError(code, "m").body().retryable == (code in RETRYABLE)


def test_a_killed_turn_is_never_tried_again() -> None:
    assert ErrorCode.CONTROLLED_TERMINATION not in RETRYABLE
    assert ErrorCode.OUTCOME_UNKNOWN not in RETRYABLE


def test_codes_are_their_own_lower_case_names() -> None:
    assert [code.value for code in ErrorCode] == [code.name.lower() for code in ErrorCode]


@pytest.mark.parametrize(
    ("exit_", "words"),
    [
        (Exit(ExitKind.CODE, 0), "code 0"),
        (Exit(ExitKind.CODE, 3), "code 3"),
        (Exit(ExitKind.SIGNAL, 9), "signal 9 (KILL)"),
        (Exit(ExitKind.SIGNAL, 11), "signal 11 (SEGV)"),
        (Exit(ExitKind.SIGNAL, 250), "signal 250 (250)"),
        (Exit(ExitKind.UNKNOWN), "unknown status"),
    ],
)
def test_an_exit_reads_as_the_kernel_said(exit_: Exit, words: str) -> None:
    assert str(exit_) == words


def test_an_unknown_exit_is_never_a_code() -> None:
    """E4."""
    assert "0" not in str(Exit(ExitKind.UNKNOWN))
    assert Exit(ExitKind.UNKNOWN).value is None
    assert signal_name(None) == "None"


@pytest.mark.parametrize("name", ["SEGV", "BUS", "ILL", "FPE", "ABRT", "TRAP"])
def test_faults_are_native_crashes(name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    assert Exit(ExitKind.SIGNAL, number).is_native_crash
    assert not Exit(ExitKind.CODE, number).is_native_crash


@pytest.mark.parametrize("name", ["KILL", "TERM", "INT", "HUP", "PIPE"])
def test_somebodys_decision_is_no_native_crash(name: str) -> None:
    assert not Exit(ExitKind.SIGNAL, signal.Signals[f"SIG{name}"]).is_native_crash


def test_an_unknown_exit_is_no_native_crash() -> None:
    assert not Exit(ExitKind.UNKNOWN).is_native_crash
