"""``modeld load``: make a model resident because somebody said so."""

import os
from typing import Any

import click

from modeld.cli import answer, render, session
from modeld.cli.app import Command, Duration
from modeld.cli.client import new_id
from modeld.cli.options import ANY_DURATION, GENERATION, ModelName, choice, identity_options
from modeld.cli.output import Output
from modeld.cli.settings import Settings
from modeld.daemon.contract import wire


@click.command("load", cls=Command)
@identity_options
@click.option(
    "--ttl",
    type=Duration(zero_words=("off", "none")),
    metavar="DUR|off",
    help="Release it after DUR without use.",
)
@click.option("--pin", is_flag=True, help="Never release it for being idle.")
@click.option(
    "--switch/--no-switch", default=True, help="Whether another model may be replaced (it may)."
)
@click.option("--if-generation", type=GENERATION, metavar="N", help="Only if the slot is at N.")
@click.option(
    "--wait", type=ANY_DURATION, default=0.0, metavar="DUR", help="Wait for a busy slot (do not)."
)
@click.argument("model", type=ModelName())
@click.pass_obj
def command(settings: Settings, /, model: str, **options: Any) -> None:
    """Make MODEL, a name or a path, resident."""
    request_id = new_id()

    def make(owner: str) -> wire.Load:
        return wire.Load(
            id=request_id,
            owner=owner,
            client_pid=os.getpid(),
            model=choice(model, options),
            switch=options["switch"],
            ttl_s=options["ttl"],
            pin=options["pin"],
            wait_s=options["wait"],
            if_generation=options["if_generation"],
            inference_id=request_id,
        )

    output = Output()
    watcher = answer.Watcher(settings, output, "whole")
    try:
        loaded = session.ask(settings, make, watcher, output)
    finally:
        watcher.stop()
    assert isinstance(loaded, wire.Loaded)
    if settings.json:
        render.json_line(render.without_envelope(loaded))
    elif not settings.quiet:
        render.line(_text(loaded))
    if loaded.degraded and not loaded.already:
        answer.degraded(loaded.model, loaded.degraded, settings)


def _text(loaded: wire.Loaded) -> str:
    how = (
        "was resident already"
        if loaded.already
        else f"loaded in {render.duration(loaded.load_ms / 1000)}"
    )
    return (
        f"{loaded.model}: {how}; {loaded.backend}, ctx {loaded.config.ctx}, "
        f"worker {loaded.worker.pid}, generation {loaded.generation}"
    )
