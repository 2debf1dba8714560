"""What is printed, and that nothing in it commands a terminal."""

import pytest

from modeld.cli import answer, render
from modeld.cli.output import Output
from modeld.cli.settings import Settings
from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, AckStatus, Cause, Exit, ExitKind, WorkerId

KILLED = Ack(
    status=AckStatus.CANCELLED_CONFIRMED,
    cause=Cause.KILL,
    inference_id="x",
    worker=WorkerId(pid=1234, start_time=1.0),
    exit=Exit(ExitKind.SIGNAL, 15),
    evidence="waited",
    allocation_retired=True,
    generation_before=3,
    generation_after=4,
    signals=("TERM",),
    elapsed_ms=12.2,
    memory_returned_bytes=310 << 20,
)


def test_a_confirmed_kill_in_one_line() -> None:
    assert render.ack_text(KILLED) == (
        "killed: worker 1234 exited by signal 15 (TERM) in 12 ms; 310 MiB back; generation 3 → 4"
    )


@pytest.mark.parametrize("status", list(AckStatus))
def test_every_ack_has_a_line(status: AckStatus) -> None:
    text = render.ack_text(Ack(status=status, cause=Cause.KILL))
    assert text
    assert "\n" not in text


def test_an_unknown_exit_is_not_printed_as_zero() -> None:
    """E4."""
    assert render.exit_words(Exit(ExitKind.UNKNOWN)) == "exited, status unknown"


def test_unconfirmed_says_so() -> None:
    ack = Ack(
        status=AckStatus.TERMINATION_UNCONFIRMED,
        cause=Cause.KILL,
        worker=WorkerId(pid=7, start_time=1.0),
        signals=("TERM", "KILL"),
        elapsed_ms=5000,
    )
    assert render.ack_text(ack).startswith("not confirmed: the exit of worker 7 was not seen")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä", "plain ä"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb", "a\\nb"),
        ("\u202eevil", "\\u202eevil"),
        ("\x9b", "\\x9b"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert render.plain(text) == shown


def test_an_error_is_one_line_and_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    error = ModeldError(ErrorCode.MODEL_BUSY, "the slot\nis busy", recovery="wait", by="x")
    render.error_as_text(error, verbose=False)
    assert capfd.readouterr().err == "modeld: the slot\\nis busy\n  wait\n"


def test_an_error_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    error = ModeldError(ErrorCode.MODEL_BUSY, "busy", by="x")
    render.error_as_json(error, as_event=False)
    render.error_as_json(error, as_event=True)
    body = '{"code":"model_busy","message":"busy","details":{"by":"x"},"retryable":true}'
    assert capfd.readouterr().out == (f'{{"error":{body}}}\n{{"type":"error","error":{body}}}\n')


def test_no_progress_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """B65c."""
    line = render.ProgressLine(Settings())
    line.show("loading")
    line.erase()
    assert capfd.readouterr().err == ""


def test_progress_has_a_bar_when_the_total_is_known() -> None:
    progress = wire.Progress(
        id="x", inference_id=None, phase="loading", age_s=3.4, done=50, total=100
    )
    assert answer.progress_text(progress) == "loading  [##########          ]  50%  3.4 s"


@pytest.mark.parametrize(
    "pieces",
    [["a"], ["a", "\n"], ["a\n"], ["a", "\n", "\n"], ["a\n\n\n"]],
)
def test_text_ends_in_one_newline(pieces: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    text = answer.Text(Output())
    for piece in pieces:
        text.put(piece)
    text.end()
    assert capfd.readouterr().out == "a\n"


def test_newlines_inside_are_kept(capfd: pytest.CaptureFixture[str]) -> None:
    text = answer.Text(Output())
    for piece in ["\n", "a\n", "\nb", "\n"]:
        text.put(piece)
    text.end()
    assert capfd.readouterr().out == "\na\n\nb\n"


def test_a_failure_before_the_first_character_prints_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    answer.Text(Output()).end(whole=False)
    assert capfd.readouterr().out == ""
