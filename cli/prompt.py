"""Arguments, files and standard input become one prompt, or a refusal that says what is wrong."""

import errno
import os
import select
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.task import Message
from modeld.daemon.contract.wire import MAX_REQUEST_BYTES

STDIN = 0
STDIN_NAME = "standard input"
LIMIT = MAX_REQUEST_BYTES // 2
"""Bytes of one input. Text can double when it becomes JSON, and a request has its own limit."""

_BOM = b"\xef\xbb\xbf"


def compose(arguments: Sequence[str], files: Sequence[str]) -> str:
    """The prompt: the content of ``files``, then ``arguments``, joined by a blank line.

    ``-`` stands for standard input, which is not touched otherwise, unless there is neither a
    file nor an argument. Raises ModeldError(bad_request).
    """
    sources = [*files, *arguments]
    if not sources:
        _refuse_terminal()
        sources, files = ["-"], ["-"]
    if sources.count("-") > 1:
        _refuse("standard input can be used only once, and '-' is given more often")
    parts = [read_text(name) for name in files]
    parts += [read_text("-") if text == "-" else _argument(text) for text in arguments]
    prompt = "\n\n".join(parts)
    if not prompt.strip():
        where = f" ({STDIN_NAME} was empty)" if "-" in sources else ""
        _refuse(f"the prompt is empty{where}; expected some text")
    return prompt


def read_messages(source: str) -> tuple[Message, ...]:
    """The conversation in a file, or in standard input for ``-``: a JSON list of role and content.

    Raises ModeldError(bad_request) that names the message.
    """
    name = _name(source)
    data = _without_bom(_read(source))
    _check_utf8(data, name)
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        _refuse(f"{name} is not JSON: {exc}")
    if not isinstance(found, list) or not found:
        _refuse(f"{name} holds {_kind(found)}; expected a list of messages with role and content")
    return tuple(_message(item, f"{name}: message {n}") for n, item in enumerate(found, 1))


def read_text(source: str) -> str:
    """A file's text, or standard input's for ``-``, without a leading BOM and one final newline."""
    data = _without_bom(_read(source))
    text = _check_utf8(data, _name(source))
    return text.removesuffix("\n")


def _message(item: Any, where: str) -> Message:
    if not isinstance(item, dict):
        _refuse(f"{where} is {_kind(item)}; expected an object with role and content")
    for key in ("role", "content"):
        if key not in item:
            _refuse(f"{where} has no {key!r}")
        if not isinstance(item[key], str):
            _refuse(f"{where} has {_kind(item[key])} as {key!r}; expected text")
        if "\0" in item[key]:
            _refuse(f"{where} has a NUL in {key!r}")
    unknown = sorted(set(item) - {"role", "content"})
    if unknown:
        _refuse(f"{where} has {unknown[0]!r}; expected role and content only")
    if not item["role"].strip():
        _refuse(f"{where} has an empty 'role'")
    return Message(role=item["role"], content=item["content"])


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text"}
    names |= {dict: "an object", list: "a list" if value else "an empty list"}
    return names[type(value)]


def _argument(text: str) -> str:
    _check_utf8(os.fsencode(text), "an argument")
    return text


def _check_utf8(data: bytes, name: str) -> str:
    """``data`` as text. A NUL is refused as well: engines cut there without a word."""
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        _refuse(
            f"{name} is not valid UTF-8: byte 0x{data[exc.start]:02x} at offset {exc.start}",
            offset=exc.start,
        )
    nul = data.find(b"\0")
    if nul >= 0:
        _refuse(f"{name} has a NUL byte at offset {nul}; expected text", offset=nul)
    return text


def _without_bom(data: bytes) -> bytes:
    return data.removeprefix(_BOM)


def _name(source: str) -> str:
    return STDIN_NAME if source == "-" else source


def _refuse_terminal() -> None:
    if os.isatty(STDIN):
        _refuse(
            "no prompt: there is no argument, and standard input is a terminal",
            recovery="give a prompt as an argument, or pipe one in; '-' reads from the terminal",
        )


def _read(source: str) -> bytes:
    if source == "-":
        return _read_descriptor(STDIN, STDIN_NAME)
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as exc:
        _refuse(f"{source} cannot be read: {getattr(exc, 'strerror', None) or exc}")
    try:
        return _read_descriptor(descriptor, source)
    finally:
        os.close(descriptor)


def _read_descriptor(descriptor: int, name: str) -> bytes:
    data = bytearray()
    while True:
        try:
            piece = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            waiting.poll()
            continue
        except OSError as exc:
            seen = "it is closed" if exc.errno == errno.EBADF else exc.strerror
            _refuse(f"{name} cannot be read: {seen}")
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > LIMIT:
            _refuse(f"{name} has more than {LIMIT} bytes; expected a prompt")


def _refuse(message: str, **facts: Any) -> NoReturn:
    raise ModeldError(ErrorCode.BAD_REQUEST, message, **facts)
