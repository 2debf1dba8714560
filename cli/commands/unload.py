"""``modeld unload``: release the resident model softly."""

import os

import click

from modeld.cli import exits, verdict
from modeld.cli.app import Command
from modeld.cli.client import new_id
from modeld.cli.options import ANY_DURATION, GENERATION
from modeld.cli.settings import Settings
from modeld.daemon.contract import wire
from modeld.daemon.contract.exit import Cause


@click.command("unload", cls=Command)
@click.option("--force", is_flag=True, help="Do not spare a running turn.")
@click.option(
    "--wait", type=ANY_DURATION, default=0.0, metavar="DUR", help="Wait for a busy slot (do not)."
)
@click.option("--if-generation", type=GENERATION, metavar="N", help="Only if the slot is at N.")
@click.pass_obj
def command(settings: Settings, /, force: bool, wait: float, if_generation: int | None) -> int:
    """Release the resident model and wait for its worker's exit.

    A busy slot refuses. With nothing resident it is done already.
    """

    def make(owner: str) -> wire.Unload:
        return wire.Unload(
            id=new_id(),
            owner=owner,
            client_pid=os.getpid(),
            force=force,
            wait_s=wait,
            if_generation=if_generation,
        )

    ack = verdict.ask_or_nothing(settings, make, Cause.UNLOAD)
    return verdict.show(ack, settings, exits.OF_ACK[ack.status])
