"""``modeld reap``: for cron, release a resident that nobody used for a while."""

import os

import click

from modeld.cli import exits, verdict
from modeld.cli.app import Command
from modeld.cli.client import new_id
from modeld.cli.options import ANY_DURATION, GENERATION
from modeld.cli.settings import Settings
from modeld.daemon.contract import wire
from modeld.daemon.contract.exit import AckStatus, Cause

_NEWS = {AckStatus.RELEASED_CONFIRMED, AckStatus.TERMINATION_UNCONFIRMED}


@click.command("reap", cls=Command)
@click.option(
    "--idle-for",
    type=ANY_DURATION,
    metavar="DUR",
    help="How long ago its last use must have ended (its TTL).",
)
@click.option("--if-generation", type=GENERATION, metavar="N", help="Only if the slot is at N.")
@click.pass_obj
def command(settings: Settings, /, idle_for: float | None, if_generation: int | None) -> int:
    """Release a resident idle for at least DUR since its last completed use.

    Silent unless something was released or went wrong.
    """

    def make(owner: str) -> wire.Reap:
        return wire.Reap(
            id=new_id(),
            owner=owner,
            client_pid=os.getpid(),
            idle_for_s=idle_for,
            if_generation=if_generation,
        )

    ack = verdict.ask_or_nothing(settings, make, Cause.REAP)
    status = exits.OF_ACK[ack.status]
    if settings.json or settings.verbose or ack.status in _NEWS:
        return verdict.show(ack, settings, status)
    return status
