"""Conversations as text: a model's chat template, rendered, with its control tokens kept safe."""

import datetime as dt
import json
import re
import secrets
from collections.abc import Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.sandbox

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.task import Message
from modeld.daemon.worker.backends.llama_vocab import Vocabulary


class Template:
    """A chat template; ``name`` says where it is from: ``gguf``, or a path."""

    def __init__(self, source: str, name: str, vocabulary: Vocabulary) -> None:
        self.name = name
        self._vocabulary = vocabulary
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as exc:
            raise self._unusable(exc) from exc

    def tokenize(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation, up to where the model's answer begins.

        A message that contains the name of a control token gets the characters of that name, not
        the token: it cannot end its own turn or begin another's. (A template that takes a message
        apart, for example to drop its reasoning, does not see such a name in it either.)
        """
        shelter = _Shelter(self._vocabulary)
        conversation = [
            {"role": shelter.cover(message.role), "content": shelter.cover(message.content)}
            for message in messages
        ]
        try:
            text = self._template.render(
                messages=conversation,
                add_generation_prompt=True,
                bos_token=self._vocabulary.name(self._vocabulary.bos),
                eos_token=self._vocabulary.name(self._vocabulary.eos),
            )
        except Exception as exc:
            # A template is a program from a stranger: it can raise anything.
            raise self._unusable(exc) from exc
        return self._vocabulary.with_bos(shelter.tokenize(text))

    def _unusable(self, exc: Exception) -> ModeldError:
        where = f", line {exc.lineno}" if isinstance(exc, jinja2.TemplateSyntaxError) else ""
        source = "the model's file" if self.name == "gguf" else self.name
        return ModeldError(
            ErrorCode.BAD_REQUEST,
            f"the chat template of {source} cannot be used for this{where}: {exc}",
            template=self.name,
            cause={"code": type(exc).__name__, "message": str(exc)},
            recovery="--chat-template FILE, or --raw",
        )


class _Shelter:
    """Hides names of control tokens from a template, and puts them back as text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._nonce = f"x{secrets.token_hex(12)}x"
        self._names: list[str] = []

    def cover(self, text: str) -> str:
        """``text`` with a mark for each name of a control token."""
        # Again after each change: one name may have hidden another.
        while found := self._vocabulary.control_names(text):
            before = text
            for name in sorted(found, key=len, reverse=True):
                if name in text:
                    text = text.replace(name, self._mark(name))
            if text == before:
                # A token without a name in the text, such as one for what is unknown.
                return text
        return text

    def tokenize(self, text: str) -> list[int]:
        """The tokens of a rendered ``text``: control tokens where the template wrote them."""
        if not self._names:
            return self._vocabulary.tokenize(text, special=True)
        tokens: list[int] = []
        # Odd parts are the numbers in the marks.
        for place, part in enumerate(re.split(rf"{self._nonce}(\d+)x", text)):
            covered = place % 2 == 1
            plain = self._names[int(part)] if covered else part
            tokens += self._vocabulary.tokenize(plain, special=not covered)
        return tokens

    def _mark(self, name: str) -> str:
        self._names.append(name)
        return f"{self._nonce}{len(self._names) - 1}x"


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _now(layout: str) -> str:
    return dt.datetime.now().astimezone().strftime(layout)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
