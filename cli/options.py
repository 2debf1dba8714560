"""Options that several commands share, and the wire's structs that they fill."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

import click
import msgspec

from modeld.cli import prompt
from modeld.cli.app import Duration
from modeld.daemon.contract.model import BackendName, KvType, ModelChoice
from modeld.daemon.contract.task import DEFAULT_MAX_TOKENS, Sampling, Task
from modeld.daemon.contract.wire import MAX_DEADLINE_S, Generate, InferenceId

Function = TypeVar("Function", bound=Callable[..., Any])

_PATH_ENDINGS = (".gguf", ".toml", ".json")


def model_name(text: str) -> str:
    """A model as the daemon wants it: an absolute path if it looks like a path, else the name.

    Links keep their names: the shards of a model find each other by them.
    """
    is_path = "/" in text or text.endswith(_PATH_ENDINGS)
    if is_path or (text.startswith(".") and os.path.lexists(text)):
        return os.path.abspath(text)
    return text


class ModelName(click.ParamType):  # type: ignore[type-arg]
    """A model's name or path."""

    name = "model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See :func:`model_name`."""
        if not value:
            self.fail("an empty name is no model", param, ctx)
        return model_name(value)


class Id(click.ParamType):  # type: ignore[type-arg]
    """An inference's id, of the form that the wire accepts."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The same text."""
        try:
            found: str = msgspec.convert(value, InferenceId)
        except msgspec.ValidationError:
            self.fail(
                f"{value!r} is not an id; write 1 to 64 letters, digits, '.', '_', ':' or '-'",
                param,
                ctx,
            )
        return found


GENERATION = click.IntRange(min=0)
ANY_DURATION = Duration()

_IDENTITY = [
    click.option("--backend", type=click.Choice(get_args(BackendName)), help="What runs it."),
    click.option("--ctx", type=click.IntRange(min=1), metavar="N", help="Context in tokens."),
    click.option(
        "--gpu-layers", type=click.IntRange(min=0), metavar="N", help="Layers on the GPU."
    ),
    click.option("--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads."),
    click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Tokens a prefill step."),
    click.option("--kv-type", type=click.Choice(get_args(KvType)), help="Type of the KV cache."),
    click.option("--flash-attn/--no-flash-attn", default=None, help="Flash attention."),
    click.option(
        "--chat-template", metavar="FILE", help="A Jinja template instead of the model's."
    ),
]

_TURN = [
    click.option("-m", "--model", type=ModelName(), metavar="MODEL", help="A name or a path."),
    *_IDENTITY,
    click.option("-s", "--system", metavar="TEXT", help="The system message."),
    click.option(
        "-f", "--file", "files", multiple=True, metavar="FILE", help="Prompt text, before PROMPT."
    ),
    click.option("--messages", metavar="FILE|-", help="A JSON list of role and content instead."),
    click.option("--raw", is_flag=True, help="No chat template."),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        default=DEFAULT_MAX_TOKENS,
        show_default=True,
        metavar="N",
        help="The answer's limit.",
    ),
    click.option("--temp", type=click.FloatRange(0, 100), metavar="X", help="Temperature."),
    click.option("--top-p", type=click.FloatRange(0, 1), metavar="X", help="Nucleus sampling."),
    click.option(
        "--top-k", type=click.IntRange(min=0), metavar="N", help="The N likeliest tokens."
    ),
    click.option("--min-p", type=click.FloatRange(0, 1), metavar="X", help="Least likelihood."),
    click.option(
        "--repeat-penalty", type=click.FloatRange(0, 100), metavar="X", help="1 is no penalty."
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 0xFFFFFFFE),
        metavar="N",
        help="For the same answer each time.",
    ),
    click.option("--stop", multiple=True, metavar="TEXT", help="End before TEXT; may be repeated."),
    click.option(
        "--deadline",
        type=Duration(least_s=0.001, most_s=MAX_DEADLINE_S, limits="from 1ms to 10m"),
        metavar="DUR",
        help="Kill the turn after DUR.",
    ),
    click.option("--id", "inference_id", type=Id(), metavar="ID", help="For 'modeld kill ID'."),
    click.option(
        "--wait",
        "wait_s",
        type=ANY_DURATION,
        metavar="DUR",
        help="Stay in the queue for at most DUR (5m).",
    ),
    click.option("--no-wait", is_flag=True, help="Fail at once if the slot is busy."),
    click.option("--transient", is_flag=True, help="The worker is gone when this returns."),
    click.option(
        "--switch/--no-switch", default=None, help="Whether another model may be replaced."
    ),
    click.option(
        "--truncate",
        type=click.Choice(["head", "tail"]),
        help="Drop this end of a prompt that does not fit.",
    ),
    click.argument("prompt", nargs=-1, metavar="[PROMPT]…"),
]


def identity_options(function: Function) -> Function:
    """The options that say how a model is loaded."""
    return _add(_IDENTITY, function)


def turn_options(function: Function) -> Function:
    """The options and arguments of ``gen`` and ``stream``."""
    return _add(_TURN, function)


def _add(options: Sequence[Callable[[Any], Any]], function: Function) -> Function:
    for option in reversed(options):
        function = option(function)
    return function


def choice(name: str | None, options: dict[str, Any]) -> ModelChoice:
    """The model that ``options`` describe; an option that was not given stays open."""
    template = options["chat_template"]
    return ModelChoice(
        name=name,
        backend=options["backend"],
        ctx=options["ctx"],
        gpu_layers=options["gpu_layers"],
        threads=options["threads"],
        batch=options["batch"],
        kv_type=options["kv_type"],
        flash_attn=options["flash_attn"],
        chat_template=None if template is None else os.path.abspath(template),
    )


def turn(options: dict[str, Any], *, stream: bool, new_id: str) -> Callable[[str], Generate]:
    """Read the prompt, now; the request for an owner.

    Raises click.UsageError, ModeldError(bad_request).
    """
    task = _task(options)
    wait = {} if options["wait_s"] is None else {"wait_s": options["wait_s"]}
    if options["no_wait"]:
        if wait:
            raise click.UsageError("--wait and --no-wait exclude each other")
        wait = {"wait_s": 0.0}

    def make(owner: str) -> Generate:
        return Generate(
            id=new_id,
            owner=owner,
            client_pid=os.getpid(),
            model=choice(options["model"], options),
            task=task,
            stream=stream,
            switch=options["switch"],
            transient=options["transient"],
            deadline_s=options["deadline"],
            # The client's own id if the user gave none: only then can a second Ctrl-C name it.
            inference_id=options["inference_id"] or new_id,
            **wait,
        )

    return make


def _task(options: dict[str, Any]) -> Task:
    given = {
        name: options[name]
        for name in ("temp", "top_p", "top_k", "min_p", "repeat_penalty", "seed")
        if options[name] is not None
    }
    if any(not text for text in options["stop"]):
        raise click.UsageError("an empty --stop would end every answer at once")
    text: dict[str, Any]
    if options["messages"] is not None:
        if options["prompt"] or options["files"]:
            raise click.UsageError("--messages replaces the prompt; give one or the other")
        if options["raw"]:
            raise click.UsageError("--messages needs the chat template that --raw leaves out")
        text = {"messages": prompt.read_messages(options["messages"])}
    else:
        if options["raw"] and options["system"] is not None:
            raise click.UsageError("--system needs the chat template that --raw leaves out")
        text = {"prompt": prompt.compose(options["prompt"], options["files"])}
    return Task(
        system=options["system"],
        raw=options["raw"],
        sampling=Sampling(**given),
        max_tokens=options["max_tokens"],
        stop=options["stop"],
        truncate=options["truncate"],
        **text,
    )
