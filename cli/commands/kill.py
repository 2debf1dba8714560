"""``modeld kill``: end exactly one inference, or the worker, and prove it."""

import os

import click

from modeld.cli import exits, session, verdict
from modeld.cli.app import Command
from modeld.cli.client import new_id
from modeld.cli.options import GENERATION
from modeld.cli.settings import Settings
from modeld.daemon.contract import wire


@click.command("kill", cls=Command)
@click.option("--if-generation", type=GENERATION, metavar="N", help="Only if the slot is at N.")
@click.argument("inference_id", required=False, metavar="[ID]")
@click.pass_obj
def command(settings: Settings, /, inference_id: str | None, if_generation: int | None) -> int:
    """Kill the process that runs inference ID and wait for its exit.

    Without ID: the slot's worker, whatever it does.
    """
    if inference_id == "":
        raise click.UsageError("an empty ID names no inference")

    def make(owner: str) -> wire.Kill:
        return wire.Kill(
            id=new_id(),
            owner=owner,
            client_pid=os.getpid(),
            inference_id=inference_id,
            if_generation=if_generation,
        )

    ended = session.ask(settings, make)
    assert isinstance(ended, wire.Ended)
    return verdict.show(ended.ack, settings, exits.of_kill(ended.ack.status))
