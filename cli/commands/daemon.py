"""``modeld daemon``: become the daemon, in the foreground."""

import os
import sys

import click

from modeld.cli import launch
from modeld.cli.app import Command
from modeld.cli.settings import Settings


@click.command("daemon", cls=Command)
@click.pass_obj
def command(settings: Settings, /) -> None:
    """Run the daemon in the foreground, for systemd or to look at it."""
    launch.refuse_in_worker()
    root = settings.root().path
    arguments = [sys.executable, "-P", "-m", "modeld.daemon", "--root", root]
    os.execv(sys.executable, arguments)  # noqa: S606
