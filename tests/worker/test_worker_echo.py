"""The echo backend: every switch does what it says, in a real worker."""

import json
import signal

import psutil
import pytest
from worker_rig import Message, gone_within

from modeld.daemon.contract.errors import ErrorCode
from modeld.daemon.contract.pipe import LoadProgress, Piece, PipeError, Prefill
from modeld.daemon.contract.wire import Usage


def test_the_words_of_the_prompt_come_back(worker, script):
    echo = worker(script())
    ready = echo.ready()
    assert ready.config == script().config
    assert ready.engine.startswith("echo ")
    answer = echo.ask("one two  three")
    assert answer.text == "one two three"
    assert answer.end.stop_reason == "stop"
    assert answer.end.usage == Usage(prompt_tokens=3, reused_tokens=0, completion_tokens=3)
    assert answer.end.template is None
    assert [type(report) for report in answer.reports[:2]] == [Prefill, Piece]


def test_the_last_word_of_the_user_comes_back(worker, script):
    echo = worker(script())
    messages = tuple(map(Message, ("user", "assistant", "user"), ("a", "b", "c d")))
    assert echo.ask(messages=messages).text == "c d"


def test_tokens_as_many_as_the_script_says_from_json_too(worker, script, tmp_path):
    plan = script()
    (tmp_path / "model.toml").write_text(json.dumps({"tokens": 3}))
    assert worker(plan).ask("p").text == "w0 w1 w2"


def test_length_and_stop_texts_end_an_answer(worker, script):
    echo = worker(script("tokens = 9"))
    answer = echo.ask("p", max_tokens=2)
    assert (answer.text, answer.end.stop_reason) == ("w0 w1", "length")
    answer = echo.ask("p", stop=(" w3",))
    assert (answer.text, answer.end.stop_reason) == ("w0 w1 w2", "stop_text")


def test_an_unwatched_turn_says_the_same_in_fewer_pieces(worker, script):
    echo = worker(script("tokens = 50"))
    watched, unwatched = echo.ask("p", stream=True), echo.ask("p", stream=False)
    assert watched.text == unwatched.text
    assert len(unwatched.reports) < len(watched.reports)


def test_a_prompt_that_does_not_fit_is_refused_with_the_numbers(worker, script):
    echo = worker(script(ctx=8))
    error = echo.ask("w " * 8, max_tokens=5).end.error
    assert error.code == ErrorCode.CONTEXT_OVERFLOW
    assert error.details["prompt_tokens"] == error.details["additional_tokens"] == 8
    assert (error.details["max_tokens"], error.details["ctx"]) == (5, 8)
    assert error.details["stage"] == "prefill"
    assert error.details["resident_tokens"] == 0
    assert error.details["recovery"] == "--ctx 256, or --truncate head"
    assert echo.ask("still there").text == "still there"


def test_a_prompt_is_cut_on_request(worker, script):
    echo = worker(script(ctx=8))
    head = echo.ask("a b c d e f g h i j", truncate="head")
    assert (head.text, head.end.truncated_tokens) == ("g h i j", 6)
    assert echo.ask("a b c d e f g h i j", truncate="tail").text == "a b c d"


def test_load_sleep_reports_progress(worker, script):
    echo = worker(script("load_sleep = 0.3"))
    reports = [echo.read() for _ in range(3)]
    assert all(isinstance(report, LoadProgress) for report in reports)
    fractions = [report.fraction for report in reports]
    assert fractions == sorted(fractions)
    echo.ready()


def test_rss_is_really_touched(worker, script):
    echo = worker(script("rss_mb = 200"))
    echo.ready()
    assert psutil.Process(echo.pid).memory_info().rss > 200 << 20


def test_open_error_fails_the_load(worker, script):
    echo = worker(script('open_error = "the disk is full"'))
    error = echo.load_failed().error
    assert error.code == ErrorCode.MODEL_LOAD_FAILED
    assert error.details["cause"] == {"code": "open_error", "message": "the disk is full"}
    assert echo.exit() == 1


@pytest.mark.parametrize("lines", ["tokns = 3", 'tokens = "many"', "= broken", "hang_in = 'bed'"])
def test_a_script_that_makes_no_sense_fails_the_load(worker, script, lines):
    echo = worker(script(lines))
    error = echo.load_failed().error
    assert error.code == ErrorCode.MODEL_LOAD_FAILED
    assert "model.toml" in error.message
    assert lines.startswith("=") or lines.partition(" ")[0] in error.message
    assert echo.exit() == 1


def test_a_script_that_is_not_there_fails_the_load(worker, script, tmp_path):
    plan = script()
    (tmp_path / "model.toml").unlink()
    assert worker(plan).load_failed().error.details["cause"]["code"] == "FileNotFoundError"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("abort_at = 3", -signal.SIGABRT),
        ("segv_at = 3", -signal.SIGSEGV),
        ("exit_at = 3", 0),
    ],
)
def test_a_worker_dies_at_the_token(worker, script, line, status):
    echo = worker(script("tokens = 9", line))
    echo.ready()
    echo.run("p")
    pieces = []
    while (report := echo.read()) is not None:
        pieces += [report.text] if isinstance(report, Piece) else []
    assert "".join(pieces) == "w0 w1 w2"
    assert echo.exit() == status


def test_a_native_fault_leaves_a_traceback_in_the_log(worker, script):
    echo = worker(script("segv_at = 0"))
    echo.run("p")
    assert echo.exit() == -signal.SIGSEGV
    assert "Segmentation fault" in echo.log.read_text()


def test_a_failure_that_nobody_foresaw_is_fatal(worker, script):
    echo = worker(script("tokens = 9", "fatal_at = 2"))
    echo.ready()
    answer = echo.ask("p", stream=False)
    assert answer.text == "w0 w1"
    assert answer.end.fatal
    assert answer.end.error.code == ErrorCode.SESSION_FATAL
    assert answer.end.error.details["cause"]["code"] == "RuntimeError"
    assert echo.exit() == 1
    assert "Traceback" in echo.log.read_text()


def test_garbage_comes_out_of_the_pipe(worker, script):
    echo = worker(script("tokens = 9", "garbage_at = 1"))
    echo.ready()
    echo.run("p")
    with pytest.raises(PipeError, match="over the limit"):
        echo.answer()


def test_usage_may_be_unknown(worker, script):
    assert worker(script("usage = false")).ask("p").end.usage is None


def test_a_warm_up_crash_is_avoided_in_safe_mode(worker, script):
    plan = script("warmup_crash_unless_safe = true")
    crashing = worker(plan)
    assert crashing.after_progress() is None
    assert crashing.exit() == -signal.SIGSEGV
    (degraded,) = worker(plan, safe_mode=True).ready().degraded
    assert degraded.startswith("safe mode: ")


def test_starts_are_counted(worker, script, tmp_path):
    starts = tmp_path / "starts"
    echo = worker(script(f"starts_file = '{starts}'"))
    echo.ask("p", turn="a")
    echo.ask("p", turn="b")
    assert starts.read_text().split() == ["a", "b"]


def test_a_grandchild_holds_the_pipe(worker, script):
    echo = worker(script("fork_child = true", "exit_at = 0"))
    echo.ready()
    (grandchild,) = psutil.Process(echo.pid).children()
    echo.run("p")
    assert echo.exit() == 0
    assert grandchild.is_running()
    # The worker's end is gone, the pipe is still open: no end of file to believe in.
    with pytest.raises(TimeoutError):
        echo.answer_within(0.2)
    echo.close()
    assert gone_within(grandchild.pid, 5)


def test_close_may_hang(worker, script):
    echo = worker(script("close_hang = true"))
    echo.ready()
    echo.leave()
    assert echo.lasts(0.5)
    echo.signal(signal.SIGTERM)
    assert echo.exit() == -signal.SIGTERM
