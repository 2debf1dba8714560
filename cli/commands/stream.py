"""``modeld stream``: the same answer as ``gen``, as it is produced."""

from typing import Any

import click

from modeld.cli import answer, exits, session
from modeld.cli.app import Command
from modeld.cli.client import new_id
from modeld.cli.options import turn, turn_options
from modeld.cli.output import Output
from modeld.cli.settings import Settings
from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ModeldError


@click.command("stream", cls=Command)
@turn_options
@click.pass_obj
def command(settings: Settings, /, **options: Any) -> int:
    """Answer PROMPT on standard output as the text is produced.

    Several PROMPTs are joined by a blank line; '-' stands for standard input, which is also read
    without any PROMPT. With --json each line is an event: start, progress, token, and at last
    end or error.
    """
    settings.events = True
    make = turn(options, stream=True, new_id=new_id())
    output = Output()
    watcher = answer.Watcher(settings, output, "events" if settings.json else "text")
    try:
        result = session.ask(settings, make, watcher, output)
    except exits.Interrupted:
        watcher.stop()
        watcher.text.end(whole=False, patience_s=0.5)
        raise
    except ModeldError:
        watcher.stop()
        watcher.text.end(whole=False)
        raise
    finally:
        watcher.stop()
    assert isinstance(result, wire.Result)
    if settings.json:
        watcher.put_event("end", result)
        output.finish()
    else:
        watcher.text.end()
    answer.remarks(result, settings)
    return answer.status_of(result)
