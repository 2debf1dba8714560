"""``modeld gen``: one whole answer on standard output, or nothing there."""

from typing import Any

import click

from modeld.cli import answer, exits, render, session
from modeld.cli.app import Command
from modeld.cli.client import new_id
from modeld.cli.options import turn, turn_options
from modeld.cli.output import Output
from modeld.cli.settings import Settings
from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorCode, ModeldError


@click.command("gen", cls=Command)
@turn_options
@click.pass_obj
def command(settings: Settings, /, **options: Any) -> int:
    """Answer PROMPT, whole, on standard output.

    Several PROMPTs are joined by a blank line; '-' stands for standard input, which is also read
    without any PROMPT. Nothing is printed there if it fails.
    """
    make = turn(options, stream=False, new_id=new_id())
    output = Output()
    watcher = answer.Watcher(settings, output, "whole")
    try:
        result = session.ask(settings, make, watcher, output)
    finally:
        watcher.stop()
    assert isinstance(result, wire.Result)
    status = answer.status_of(result)
    if settings.json:
        render.json_line(render.without_envelope(result))
    elif status != exits.DONE:
        raise ModeldError(
            ErrorCode.DEADLINE_EXCEEDED
            if result.stop_reason == "deadline"
            else ErrorCode.CONTEXT_CANCELED,
            f"the turn was ended early ({result.stop_reason})",
        )
    else:
        watcher.text.put(result.text)
        watcher.text.end()
    answer.remarks(result, settings)
    return status
