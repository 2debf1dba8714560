"""The daemon's composition root: lock, predecessor's worker, socket, parts, ready line, loop."""

import argparse
import contextlib
import faulthandler
import os
import signal
import socket
import sys
import traceback
import uuid

import psutil
import zmq

from modeld.daemon.contract.birth import birth_of
from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.lock import FileLock
from modeld.daemon.contract.owner import OwnerRecord, read_owner, remove_owner, write_owner
from modeld.daemon.contract.paths import Root, models_dir
from modeld.daemon.contract.private import ensure_private_dir
from modeld.daemon.contract.ready import ReadyLine, encode_ready
from modeld.daemon.contract.version import PROTOCOL, VERSION
from modeld.daemon.contract.wire import MAX_REQUEST_BYTES
from modeld.daemon.core.admission import Limits
from modeld.daemon.runtime.accounts import Accounts
from modeld.daemon.runtime.book import Book
from modeld.daemon.runtime.catalog import Catalog
from modeld.daemon.runtime.clients import Clients, Conversation
from modeld.daemon.runtime.config import Settings, read_settings
from modeld.daemon.runtime.journal import Journal
from modeld.daemon.runtime.memory import fixed, measure
from modeld.daemon.runtime.predecessor import end_predecessors_worker
from modeld.daemon.runtime.replies import Replies
from modeld.daemon.runtime.requests import Requests
from modeld.daemon.runtime.server import Server, remove_file
from modeld.daemon.runtime.status import StatusView
from modeld.daemon.runtime.supervisor import Supervisor
from modeld.daemon.runtime.timers import Timers

USAGE, DID_NOT_START = 2, 4
"""Exit statuses, with the command line's meanings, for a daemon in the foreground."""

_USERS_MISTAKES = {ErrorCode.CONFIG_INVALID, ErrorCode.NOT_ALLOWED_IN_WORKER}

LOCK_WAIT_S = 5.0
LINGER_MS = 1000
BACKLOG = 1024


def main() -> int:
    """Run the daemon until it is told to stop; its exit status."""
    arguments = _parse_arguments()
    os.umask(0o077)
    os.chdir("/")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # E4: an inherited SIG_IGN would hide exits
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    faulthandler.enable()
    root = Root(arguments.root)
    announce = _Announcement(arguments.ready_fd, arguments.start_lock_fd)
    try:
        _refuse_in_worker()
        settings = read_settings(os.environ)
        ensure_private_dir(root.path)
        owner_lock = FileLock(root.owner_lock)
        _take_ownership(owner_lock, root)
        with FileLock(root.slot_lock) as slot_lock:
            _serve(root, settings, owner_lock, slot_lock, announce)
    except ModeldError as exc:
        announce.failed(exc)
        return USAGE if exc.code in _USERS_MISTAKES else DID_NOT_START
    except Exception:  # noqa: BLE001  (a bug: the log gets all of it)
        traceback.print_exc()
        return 1
    return 0


def _refuse_in_worker() -> None:
    if os.environ.get("MODELD_WORKER") == "1":
        raise ModeldError(ErrorCode.NOT_ALLOWED_IN_WORKER, "a worker starts no daemon (A27)")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="modeld.daemon", description=__doc__)
    parser.add_argument("--root", required=True, help="the state directory, an absolute path")
    parser.add_argument("--ready-fd", type=int, help="where the ready line is written")
    parser.add_argument("--start-lock-fd", type=int, help="a lock that is let go when ready")
    return parser.parse_args()


class _Announcement:
    """The one ready line, or the reason on standard error if nobody waits for a line."""

    def __init__(self, descriptor: int | None, start_lock: int | None) -> None:
        self._descriptor = descriptor
        self._start_lock = start_lock
        for inherited in (descriptor, start_lock):
            if inherited is not None:
                os.set_inheritable(inherited, False)

    def ready(self, record: OwnerRecord) -> None:
        """The daemon answers at the record's endpoint."""
        if self._descriptor is None:
            print(f"modeld: ready, pid {record.pid}, {record.endpoint}", file=sys.stderr)  # noqa: T201
        self._write(ReadyLine(owner=record))

    def failed(self, error: ModeldError) -> None:
        """The daemon could not start."""
        print(f"modeld: {error.message}", file=sys.stderr)  # noqa: T201
        self._write(ReadyLine(error=error.body()))

    def _write(self, line: ReadyLine) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # whoever started us may be gone by now
                os.write(self._descriptor, encode_ready(line))
            os.close(self._descriptor)
            self._descriptor = None
        if self._start_lock is not None:
            os.close(self._start_lock)
            self._start_lock = None


def _take_ownership(lock: FileLock, root: Root) -> None:
    """The lock is held when this returns (L1).

    Raises ModeldError(lock_timeout) naming the holder.
    """
    try:
        lock.acquire(LOCK_WAIT_S)
    except ModeldError as exc:
        record = read_owner(root.owner_record)
        holder = "another process" if record is None else f"a daemon with pid {record.pid}"
        raise ModeldError(
            ErrorCode.LOCK_TIMEOUT,
            f"{root.path} belongs to {holder}",
            **exc.details,
            pid=None if record is None else record.pid,
            recovery="modeld stop",
        ) from exc


def _serve(
    root: Root,
    settings: Settings,
    owner_lock: FileLock,
    slot_lock: FileLock,
    announce: _Announcement,
) -> None:
    """Serve as the owner of ``root``; everything is given back in order when this returns (H7)."""
    owner = uuid.uuid4().hex
    journal = Journal(root.journal)
    end_predecessors_worker(slot_lock, root.worker_record, journal)
    context = zmq.Context()
    listener = _listen(root.socket)
    endpoint = f"ipc://{root.socket}"
    router = _bind_router(context, endpoint, listener)
    server, book = _compose(owner, root, settings, owner_lock, slot_lock, router, journal)
    record = _owner_record(owner, endpoint)
    write_owner(root.owner_record, record)
    journal.write("start", owner=owner, pid=record.pid, version=VERSION)
    announce.ready(record)
    try:
        server.run()
    finally:
        if not server.has_lost_ownership:
            if not server.has_worker:
                remove_file(root.worker_record)
            remove_file(root.socket)
            remove_owner(root.owner_record, owner)
            journal.write("stop", owner=owner, pid=record.pid)
        slot_lock.close()
        owner_lock.close()
        server.say_goodbye(book.parting)
        router.close(LINGER_MS)
        context.term()


def _compose(
    owner: str,
    root: Root,
    settings: Settings,
    owner_lock: FileLock,
    slot_lock: FileLock,
    router: "zmq.Socket[bytes]",
    journal: Journal,
) -> tuple[Server, Book]:
    timers = Timers()
    probe = measure if settings.memory_free is None else fixed(settings.memory_free)
    limits = Limits(cap=settings.memory_max, reserve=settings.memory_reserve)

    def on_gone(conversation: Conversation) -> None:
        requests.cancel(conversation)

    def on_slow(conversation: Conversation) -> None:
        requests.give_up_on(conversation)

    def on_quit() -> None:
        server.quit()

    clients = Clients(router, on_gone=on_gone, on_slow=on_slow)
    supervisor = Supervisor(
        owner=owner,
        root=root,
        slot_lock_fd=slot_lock.fileno(),
        settings=settings,
        accounts=Accounts(probe, limits),
        timers=timers,
        journal=journal,
    )
    book = Book(clients, timers, settings.queue_limit)
    requests = Requests(
        book=book,
        supervisor=supervisor,
        clients=clients,
        catalog=Catalog(models_dir(os.environ), settings.default_model),
        timers=timers,
    )
    replies = Replies(
        book=book,
        supervisor=supervisor,
        clients=clients,
        timers=timers,
        journal=journal,
        feed_again=requests.feed_again,
        on_quit=on_quit,
    )
    supervisor.attach(replies)
    status = StatusView(
        owner=owner,
        supervisor=supervisor,
        book=book,
        settings=settings,
        timers=timers,
    )
    server = Server(
        owner=owner,
        root=root,
        owner_lock=owner_lock,
        router=router,
        clients=clients,
        supervisor=supervisor,
        requests=requests,
        status=status,
        timers=timers,
        daemon_idle_s=settings.daemon_idle_s,
    )
    return server, book


def _listen(path: str) -> socket.socket:
    """A listening socket at ``path``, in place of what a dead daemon may have left there.

    It is made here and not by ZeroMQ, which would unlink the path at a moment of its own choosing,
    when it may be a successor's already. Only the holder of the owner's lock may come here.
    """
    ensure_private_dir(os.path.dirname(path))
    remove_file(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(BACKLOG)
    return listener


def _bind_router(
    context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, listener: socket.socket
) -> "zmq.Socket[bytes]":
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.setsockopt(zmq.MAXMSGSIZE, 2 * MAX_REQUEST_BYTES)
    router.setsockopt(zmq.USE_FD, listener.detach())
    router.bind(endpoint)
    return router


def _owner_record(owner: str, endpoint: str) -> OwnerRecord:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot_id = file.read().strip()
    except OSError:
        boot_id = str(psutil.boot_time())
    return OwnerRecord(
        owner=owner,
        pid=os.getpid(),
        birth=birth_of(os.getpid()) or "",
        start_time=psutil.Process().create_time(),
        boot_id=boot_id,
        host=os.uname().nodename,
        endpoint=endpoint,
        protocol=PROTOCOL,
        version=VERSION,
    )


if __name__ == "__main__":
    sys.exit(main())
