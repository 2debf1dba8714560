"""Arguments, files and standard input: what becomes a prompt and what is refused."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from modeld.cli import prompt
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.task import Message


class Stdin:
    """Descriptor 0, replaced for one test."""

    def __init__(self) -> None:
        self._kept = os.dup(0)

    def feed(self, data: bytes) -> None:
        reading, writing = os.pipe()
        os.write(writing, data)
        os.close(writing)
        os.dup2(reading, 0)
        os.close(reading)

    def use(self, path: str, flags: int = os.O_RDONLY) -> None:
        descriptor = os.open(path, flags)
        os.dup2(descriptor, 0)
        os.close(descriptor)

    def restore(self) -> None:
        os.dup2(self._kept, 0)
        os.close(self._kept)


@pytest.fixture
def stdin() -> Iterator[Stdin]:
    stdin = Stdin()
    yield stdin
    stdin.restore()


def refusal(arguments: list[str], files: list[str] | None = None) -> str:
    with pytest.raises(ModeldError) as caught:
        prompt.compose(arguments, files or [])
    assert caught.value.code is ErrorCode.BAD_REQUEST
    return caught.value.message


def test_arguments_are_joined_by_a_blank_line() -> None:
    assert prompt.compose(["one", "two"], []) == "one\n\ntwo"


def test_arguments_leave_standard_input_alone(stdin: Stdin) -> None:
    """B65e, and a ``while read`` loop keeps its input."""
    stdin.feed(b"next line\n")
    assert prompt.compose(["one"], []) == "one"
    assert os.read(0, 100) == b"next line\n"


def test_a_dash_is_standard_input_in_its_place(stdin: Stdin) -> None:
    stdin.feed(b"middle\n")
    assert prompt.compose(["a", "-", "b"], []) == "a\n\nmiddle\n\nb"


def test_standard_input_can_be_used_once(stdin: Stdin) -> None:
    stdin.feed(b"x")
    assert "only once" in refusal(["-", "-"])


def test_no_argument_reads_standard_input(stdin: Stdin) -> None:
    stdin.feed(b"hello\n")
    assert prompt.compose([], []) == "hello"


def test_a_terminal_without_an_argument_is_a_usage_error(stdin: Stdin) -> None:
    stdin.use(os.ttyname(os.openpty()[1]))
    assert "terminal" in refusal([])


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (b"\xef\xbb\xbfx", "x"),
        (b"a\r\nb\r\n", "a\r\nb\r"),
        (b"a\n\n", "a\n"),
        ("ä€😀\n".encode(), "ä€😀"),
    ],
    ids=["bom", "crlf", "one newline", "utf-8"],
)
def test_what_standard_input_becomes(stdin: Stdin, given: bytes, read: str) -> None:
    stdin.feed(given)
    assert prompt.compose([], []) == read


def test_crlf_is_kept(stdin: Stdin) -> None:
    stdin.feed(b"a\r\nb")
    assert prompt.compose([], []) == "a\r\nb"


def test_invalid_utf8_is_refused_with_its_offset(stdin: Stdin) -> None:
    stdin.feed(b"ab\xffcd")
    assert "byte 0xff at offset 2" in refusal([])


def test_nul_is_refused_with_its_offset(stdin: Stdin) -> None:
    """B63."""
    stdin.feed(b"ab\0cd")
    assert "NUL byte at offset 2" in refusal([])


@pytest.mark.parametrize("text", [b"", b"\n", b" \t\r\n "])
def test_an_empty_prompt_is_refused(stdin: Stdin, text: bytes) -> None:
    """B65f."""
    stdin.feed(text)
    assert "empty" in refusal([])


def test_an_empty_argument_is_refused() -> None:
    assert "empty" in refusal([""])


def test_an_argument_that_is_not_utf8_is_refused() -> None:
    assert "offset 1" in refusal([os.fsdecode(b"a\xff")])


def test_a_closed_standard_input_is_said_to_be_closed(stdin: Stdin) -> None:
    stdin.use(os.devnull, os.O_WRONLY)
    assert refusal([]) == "standard input cannot be read: it is closed"


def test_a_directory_as_standard_input(stdin: Stdin) -> None:
    stdin.use("/")
    assert "Is a directory" in refusal([])


def test_endless_input_is_refused(stdin: Stdin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "LIMIT", 1000)
    stdin.use("/dev/zero")
    assert "more than 1000 bytes" in refusal([])


def test_files_come_before_arguments(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("file\n")
    assert prompt.compose(["arg"], [str(file)]) == "file\n\narg"


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    assert "No such file" in refusal([], [str(tmp_path / "none")])


def test_messages(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_text('[{"role": "user", "content": "hi"}]')
    assert prompt.read_messages(str(file)) == (Message("user", "hi"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "holds an object; expected a list"),
        ("[]", "holds an empty list"),
        ("[1]", "message 1 is a number"),
        ('[{"role": "user"}]', "message 1 has no 'content'"),
        ('[{"role": "user", "content": null}]', "message 1 has null as 'content'"),
        ('[{"role": "user", "content": "a"}, {"content": "b"}]', "message 2 has no 'role'"),
        ('[{"role": " ", "content": "a"}]', "empty 'role'"),
        ('[{"role": "user", "content": "\\u0000"}]', "NUL"),
        ('[{"role": "user", "content": "a", "name": "x"}]', "has 'name'"),
    ],
)
def test_messages_that_are_wrong(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "m.json"
    file.write_text(text)
    with pytest.raises(ModeldError, match=expected.replace("[", r"\[")):
        prompt.read_messages(str(file))
