"""One question to whichever daemon is there, repeated only while it is certain nothing ran."""

from collections.abc import Callable

from modeld.cli import exchange, launch
from modeld.cli.client import HELLO_TIMEOUT_S, Client
from modeld.cli.output import Output
from modeld.cli.settings import Deadline, Settings
from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.lock import is_held
from modeld.daemon.contract.owner import OwnerRecord
from modeld.daemon.contract.paths import Root

_MOST_TRIES = 5
_ASK_AGAIN = {ErrorCode.STALE_FENCE, ErrorCode.NOT_OWNER}
"""Codes with which a daemon says that it is not, or no longer, the one, before anything ran."""

MakeRequest = Callable[[str], wire.Request]
"""A request for the owner whose fence is given."""


def ask(
    settings: Settings,
    make: MakeRequest,
    on_reply: Callable[[wire.Reply], None] = lambda _reply: None,
    output: Output | None = None,
) -> wire.Reply:
    """Find or start the daemon, and return the last reply to the request, which is not an error.

    Raises ModeldError for an error the daemon answered, and everything that
    :func:`launch.ensure_daemon` and :func:`exchange.ask` raise.
    """
    root, deadline = settings.root(), settings.deadline()
    for tries_left in reversed(range(_MOST_TRIES)):
        record = launch.ensure_daemon(root, no_start=settings.no_start, deadline=deadline)
        with Client(record.endpoint, _is_gone(root), deadline) as client:
            welcome = _greet(client, root, record, deadline)
            if welcome is not None:
                reply = exchange.ask(client, make(welcome.owner), on_reply, output)
                if not isinstance(reply, wire.Failed):
                    return reply
                if reply.error.code not in _ASK_AGAIN or not tries_left:
                    raise ModeldError.from_body(reply.error)
        # Out of the conversation: whoever closes must not be held up by it.
        owner = record.owner if welcome is None else welcome.owner
        launch.wait_for_successor(root, owner, deadline)
    raise ModeldError(
        ErrorCode.DAEMON_UNREACHABLE,
        f"{_MOST_TRIES} daemons in a row closed before they took the request",
        recovery="'modeld log' says why they ended",
    )


def ask_running(
    settings: Settings, make: MakeRequest, on_welcome: Callable[[wire.Welcome], None]
) -> wire.Reply | None:
    """The same, but None without a daemon: it is not started for this, and a closing one will do.

    Raises ModeldError(daemon_unreachable) for one that holds its lock and does not answer.
    """
    root, deadline = settings.root(), settings.deadline()
    record = launch.find(root)
    if record is None:
        return None
    with Client(record.endpoint, _is_gone(root), deadline) as client:
        welcome = client.hello()
        if welcome is None:
            if not is_held(root.owner_lock):
                return None
            raise launch.unreachable(record, f"did not answer within {HELLO_TIMEOUT_S:g} s")
        on_welcome(welcome)
        reply = exchange.ask(client, make(welcome.owner))
    if isinstance(reply, wire.Failed):
        raise ModeldError.from_body(reply.error)
    return reply


def _is_gone(root: Root) -> Callable[[], bool]:
    return lambda: not is_held(root.owner_lock)


def _greet(
    client: Client, root: Root, record: OwnerRecord, deadline: Deadline
) -> wire.Welcome | None:
    """The daemon's welcome; None if it is about to end or has ended.

    Raises ModeldError(daemon_unreachable) if it lives and does not answer.
    """
    if not launch.socket_is_there(record):
        return None
    welcome = client.hello()
    if welcome is not None:
        return None if welcome.closing else welcome
    now = launch.find(root)
    if now is None or now.owner != record.owner:
        return None
    waited_s = (
        HELLO_TIMEOUT_S if deadline.after_s is None else min(HELLO_TIMEOUT_S, deadline.after_s)
    )
    raise launch.unreachable(record, f"did not answer within {waited_s:g} s")
