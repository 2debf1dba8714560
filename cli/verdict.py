"""The ack of kill, unload, reap and stop: how it is asked for without a daemon, and shown."""

from modeld.cli import exits, render, session
from modeld.cli.settings import Settings
from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, AckStatus, Cause


def ask_or_nothing(settings: Settings, make: session.MakeRequest, cause: Cause) -> Ack:
    """The daemon's ack; without a daemon, and if none may be started, nothing is resident."""
    try:
        ended = session.ask(settings, make)
    except ModeldError as exc:
        if exc.code is not ErrorCode.NOT_RUNNING:
            raise
        return Ack(status=AckStatus.NOTHING_RESIDENT, cause=cause)
    assert isinstance(ended, wire.Ended)
    return ended.ack


def show(ack: Ack, settings: Settings, status: int) -> int:
    """Print ``ack``: as JSON, or as one line that goes to stderr if it is not good; ``status``."""
    if settings.json:
        render.json_line(ack)
    elif status != exits.DONE:
        render.to_stderr(f"modeld: {render.plain(render.ack_text(ack))}")
    elif not settings.quiet:
        render.line(render.ack_text(ack))
    return status
