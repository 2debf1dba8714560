"""A task's prompt as tokens that fit the window, cut only on the user's request."""

from collections.abc import Callable
from typing import NamedTuple

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.task import Message, Task
from modeld.daemon.worker.backends.llama_chat import Template
from modeld.daemon.worker.backends.llama_vocab import Vocabulary
from modeld.daemon.worker.backends.window import check_fits, prompt_budget


class Prompt(NamedTuple):
    """What goes into the context. ``template`` is the name of the one used, if one was."""

    tokens: list[int]
    template: str | None
    truncated_tokens: int = 0


def prompt_of(task: Task, template: Template | None, vocabulary: Vocabulary, window: int) -> Prompt:
    """The prompt, at least one token shorter than ``window``.

    Raises ModeldError: context_overflow if it does not fit and may not be cut, bad_request if the
    model has no chat template and needs one.
    """
    if task.raw:
        return _raw(task, vocabulary, window)
    if template is None:
        raise ModeldError(
            ErrorCode.BAD_REQUEST,
            "the model's file has no chat template: it is a base model, or was converted without",
            recovery="--raw to continue the text as it is, or --chat-template FILE",
        )
    messages = _conversation(task)
    tokens = template.tokenize(messages)
    if len(tokens) < window or task.truncate is None:
        check_fits(len(tokens), task.max_tokens, window)
        return Prompt(tokens, template.name)
    budget = prompt_budget(task.max_tokens, window)
    cut = _cut_head if task.truncate == "head" else _cut_tail
    kept = _shorten(messages, template, vocabulary, budget, cut)
    check_fits(len(kept), task.max_tokens, window)
    return Prompt(kept, template.name, len(tokens) - len(kept))


def _raw(task: Task, vocabulary: Vocabulary, window: int) -> Prompt:
    if task.prompt is None:
        raise ModeldError(
            ErrorCode.BAD_REQUEST, "a list of messages cannot be given raw: it needs a template"
        )
    # Raw is the way to write control tokens: their names count here.
    text = task.prompt if task.system is None else f"{task.system}\n\n{task.prompt}"
    tokens = vocabulary.tokenize(text, special=True)
    whole = vocabulary.with_bos(tokens)
    if len(whole) < window or task.truncate is None:
        check_fits(len(whole), task.max_tokens, window)
        return Prompt(whole, None)
    # One less: with_bos may add it again.
    budget = max(prompt_budget(task.max_tokens, window) - 1, 1)
    kept = vocabulary.with_bos(tokens[-budget:] if task.truncate == "head" else tokens[:budget])
    return Prompt(kept, None, len(whole) - len(kept))


def _conversation(task: Task) -> list[Message]:
    messages = list(task.messages or ())
    if task.system is not None:
        messages.insert(0, Message("system", task.system))
    if task.prompt is not None:
        messages.append(Message("user", task.prompt))
    return messages


_Cut = Callable[[list[int], int], list[int]]


def _cut_head(tokens: list[int], count: int) -> list[int]:
    return tokens[count:]


def _cut_tail(tokens: list[int], count: int) -> list[int]:
    return tokens[: len(tokens) - count]


def _shorten(
    messages: list[Message], template: Template, vocabulary: Vocabulary, budget: int, cut: _Cut
) -> list[int]:
    """The conversation's tokens, with text taken out of the oldest or the newest messages first.

    System messages stay whole, and the template's own tokens all stay.
    """
    places = [place for place, message in enumerate(messages) if message.role != "system"]
    if cut is _cut_tail:
        places.reverse()
    tokens = template.tokenize(messages)
    for place in places:
        while (excess := len(tokens) - budget) > 0 and messages[place].content:
            content = vocabulary.tokenize(messages[place].content, special=False)
            text = vocabulary.text(cut(content, min(excess, len(content))))
            # Text that is as long as before (it was one odd character) would go on for ever.
            shorter = text if len(text) < len(messages[place].content) else ""
            messages[place] = Message(messages[place].role, shorter)
            tokens = template.tokenize(messages)
    return tokens
