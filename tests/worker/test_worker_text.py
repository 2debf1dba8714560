"""turn.py: whatever the cuts between tokens, the same text comes out, whole."""

import itertools

import pytest

from modeld.daemon.contract.pipe import Piece, Prefill, RunTurn
from modeld.daemon.contract.task import Task
from modeld.daemon.contract.wire import Usage
from modeld.daemon.worker.backends.base import Outcome
from modeld.daemon.worker.backends.cancellation import Cancellation
from modeld.daemon.worker.turn import PIECE_INTERVAL_S, Characters, StopTexts, Turn

TEXTS = {
    "emoji": "a👩‍👩‍👧b🏳️‍🌈",
    "cjk": "漢字かな交じり文",
    "combining": "e\u0301a\u0308\u0323 \u0e01\u0e33",
    "four bytes": "𝄞𐍈",
    "plain": "plain text",
}


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def begin(clock: Clock, *, stream: bool = True, **task: object) -> tuple[Turn, list[object]]:
    sent: list[object] = []
    order = RunTurn(turn="t", task=Task(prompt="p", **task), seed=1, exact=False, stream=stream)
    return Turn(order, Cancellation(), sent.append, clock), sent


def text_of(sent: list[object]) -> str:
    return "".join(piece.text for piece in sent if isinstance(piece, Piece))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_characters_come_whole_at_every_cut(text):
    data = text.encode()
    for first, second in itertools.combinations_with_replacement(range(len(data) + 1), 2):
        characters = Characters()
        pieces = [
            characters.feed(data[:first]),
            characters.feed(data[first:second]),
            characters.feed(data[second:]),
        ]
        assert "".join(pieces) == text
        assert "\ufffd" not in "".join(pieces)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_stream_cut_short_loses_only_its_half_character(text):
    data = text.encode()
    for end in range(len(data)):
        characters = Characters()
        whole = characters.feed(data[:end])
        assert text.startswith(whole)
        assert end - len(whole.encode()) < 4


def test_bytes_that_are_no_utf8_become_replacement_marks():
    characters = Characters()
    assert characters.feed(b"a\xffb") == "a\ufffdb"
    assert characters.feed(b"\xe6\xbc") == ""
    assert characters.feed(b"c") == "\ufffdc"


STOPS = ("</end>", "END", "\n\n", "stop it", "漢字")


@pytest.mark.parametrize("stop", STOPS)
def test_no_part_of_a_stop_text_comes_out_at_any_cut(stop):
    text = f"before {stop[:-1]} <almost> {stop} after {stop}"
    expected = text[: text.index(stop)]
    for first, second in itertools.combinations_with_replacement(range(len(text) + 1), 2):
        stops = StopTexts(STOPS)
        out = "".join(
            stops.feed(piece) for piece in (text[:first], text[first:second], text[second:])
        )
        assert out == expected
        assert stops.hit
        assert stops.flush() == ""


def test_the_stop_text_that_ends_first_counts_at_any_cut():
    for cut in range(5):
        stops = StopTexts(("xabx", "ab"))
        assert stops.feed("xabx"[:cut]) + stops.feed("xabx"[cut:]) == "x"


def test_a_stop_text_that_never_ends_is_text():
    stops = StopTexts(("</end>",))
    assert stops.feed("a</en") == "a"
    assert stops.flush() == "</en"
    assert not stops.hit


def test_what_can_be_no_stop_text_is_not_held():
    stops = StopTexts(("</end>", ""))
    assert stops.feed("a<b") == "a<b"
    assert stops.feed("</x") == "</x"


def test_an_empty_stop_text_stops_nothing():
    stops = StopTexts(("",))
    assert stops.feed("text") == "text"


def test_a_stream_sends_each_piece_at_once():
    turn, sent = begin(Clock())
    for token in (b"a", b"\xe6\xbc", b"\xa2", b"b"):
        assert turn.feed(token) is None
    assert [(piece.text, piece.tokens) for piece in sent] == [("a", 1), ("漢", 3), ("b", 4)]


def test_an_unwatched_turn_sends_pieces_seldom():
    clock = Clock()
    turn, sent = begin(clock, stream=False)
    turn.feed(b"a")
    turn.feed(b"b")
    assert sent == []
    clock.now += PIECE_INTERVAL_S
    turn.feed(b"c")
    assert [(piece.text, piece.tokens) for piece in sent] == [("abc", 3)]
    turn.feed(b"d")
    turn.finish(Outcome("stop", 1))
    assert [piece.text for piece in sent] == ["abc", "d"]


def test_watched_and_unwatched_turns_say_the_same():
    data = "".join(TEXTS.values()).encode()
    texts = []
    for stream in (True, False):
        turn, sent = begin(Clock(), stream=stream, stop=("four", "pl"))
        reason = next(r for byte in data if (r := turn.feed(bytes([byte]))) is not None)
        assert reason == "stop_text"
        turn.finish(Outcome(reason, 1))
        texts.append(text_of(sent))
    assert texts[0] == texts[1] == "".join(TEXTS.values()).partition("pl")[0]


def test_a_turn_ends_at_its_length():
    turn, sent = begin(Clock(), max_tokens=2)
    assert turn.feed(b"a") is None
    assert turn.feed(b"b") == "length"
    done = turn.finish(Outcome("length", 7, 5, "gguf", 3))
    assert done.stop_reason == "length"
    assert done.usage == Usage(prompt_tokens=7, reused_tokens=5, completion_tokens=2)
    assert (done.template, done.truncated_tokens) == ("gguf", 3)
    assert text_of(sent) == "ab"


def test_a_stop_text_in_the_last_token_is_a_stop_text():
    turn, sent = begin(Clock(), max_tokens=2, stop=("ND",))
    turn.feed(b"E")
    assert turn.feed(b"ND") == "stop_text"
    turn.finish(Outcome("stop_text", 1))
    assert text_of(sent) == "E"


def test_a_half_stop_text_comes_out_at_the_end():
    turn, sent = begin(Clock(), stop=("</end>",))
    turn.feed(b"a</e")
    assert text_of(sent) == "a"
    assert turn.finish(Outcome("cancelled", 1)).stop_reason == "cancelled"
    assert text_of(sent) == "a</e"


def test_a_half_character_at_the_end_never_comes_out():
    turn, sent = begin(Clock())
    turn.feed(b"a" + "漢".encode()[:2])
    turn.finish(Outcome("length", 1))
    assert text_of(sent) == "a"


def test_unknown_usage_is_null_not_zero():
    turn, _ = begin(Clock())
    assert turn.finish(Outcome("stop", None)).usage is None


def test_times_are_split_where_decoding_begins():
    clock = Clock()
    turn, sent = begin(clock)
    clock.now += 2
    turn.prefilled(3, 4)
    turn.decoding()
    clock.now += 1
    done = turn.finish(Outcome("stop", 1))
    assert (done.prefill_ms, done.decode_ms) == (2000, 1000)
    assert sent == [Prefill(turn="t", done=3, total=4)]


def test_a_turn_that_never_decoded_was_all_prefill():
    clock = Clock()
    turn, _ = begin(clock)
    clock.now += 2
    done = turn.finish(Outcome("cancelled", 1))
    assert (done.prefill_ms, done.decode_ms) == (2000, 0)
