"""``modeld stop``: end the daemon and its worker, and answer when both are gone."""

import os

import click

from modeld.cli import exits, force, launch, render, session, verdict
from modeld.cli.app import Command
from modeld.cli.client import new_id
from modeld.cli.settings import Settings
from modeld.cli.watch import ProcessWatch
from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, AckStatus, Cause
from modeld.daemon.contract.lock import is_held
from modeld.daemon.contract.paths import Root

_NO_ANSWER = {ErrorCode.DAEMON_UNREACHABLE, ErrorCode.OUTCOME_UNKNOWN, ErrorCode.PROTOCOL_MISMATCH}


@click.command("stop", cls=Command)
@click.option(
    "--force", "forced", is_flag=True, help="Do not ask the worker; kill a daemon that is mute."
)
@click.pass_obj
def command(settings: Settings, /, forced: bool) -> int:
    """End the daemon: its worker's exit is confirmed, then lock and socket are gone."""
    ack = _ask(settings, forced)
    if ack is None:
        if settings.json:
            render.json_line(Ack(status=AckStatus.NOTHING_RESIDENT, cause=Cause.STOP))
        else:
            render.remark("not running", settings)
        return exits.DONE
    status = exits.OF_ACK[ack.status]
    if settings.json or status != exits.DONE:
        return verdict.show(ack, settings, status)
    if not settings.quiet:
        render.line(_text(ack))
    return status


def _ask(settings: Settings, forced: bool) -> Ack | None:
    """The ack of the daemon, or of its death; None if there was none."""
    root = settings.root()
    watches: list[ProcessWatch] = []

    def make(owner: str) -> wire.Stop:
        return wire.Stop(id=new_id(), owner=owner, client_pid=os.getpid(), force=forced)

    try:
        ended = session.ask_running(
            settings, make, lambda welcome: watches.append(ProcessWatch(welcome.pid))
        )
        # It answers when everything is let go, a moment before it is gone itself.
        for watch in watches:
            watch.wait(force.KILL_TIMEOUT_S)
    except ModeldError as exc:
        if exc.code not in _NO_ANSWER:
            raise
        if not is_held(root.owner_lock):
            return _gone(root)
        if not forced:
            raise
        return force.kill_daemon(root)
    finally:
        for watch in watches:
            watch.close()
    if ended is None:
        return _without_record(root, forced)
    assert isinstance(ended, wire.Ended)
    return ended.ack


def _without_record(root: Root, forced: bool) -> Ack | None:
    """No daemon that could be asked: one that closes is waited for, one that cannot is killed."""
    if not os.path.exists(root.owner_lock) or not is_held(root.owner_lock):
        return None
    if launch.wait_until_closed(root.owner_lock, launch.CLOSE_TIMEOUT_S):
        return _gone(root)
    if forced:
        return force.kill_daemon(root)
    raise ModeldError(
        ErrorCode.DAEMON_UNREACHABLE,
        f"a process holds {root.owner_lock} and did not let go within {launch.CLOSE_TIMEOUT_S:g} s",
        recovery="'modeld stop --force' kills it",
    )


def _gone(root: Root) -> Ack:
    """The daemon ended without telling this command how."""
    free = launch.wait_until_closed(root.slot_lock, force.KILL_TIMEOUT_S)
    status = AckStatus.RELEASED_CONFIRMED if free else AckStatus.TERMINATION_UNCONFIRMED
    return Ack(status=status, cause=Cause.STOP, evidence="lock" if free else "none")


def _text(ack: Ack) -> str:
    if ack.worker is None:
        killed = " (killed, since it did not answer)" if ack.signals else ""
        return f"stopped{killed}"
    return f"stopped; {render.ack_text(ack)}"
