"""One worker, from its command line to its exit status; the only process with native code."""

import argparse
import socket
import sys
import traceback
from typing import assert_never

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.model import BackendName
from modeld.daemon.contract.pipe import (
    LoadFailed,
    LoadModel,
    LoadProgress,
    Ready,
    Report,
    RunTurn,
    TurnFailed,
)
from modeld.daemon.worker.backends.base import Backend, LoadCancelled, Outcome
from modeld.daemon.worker.guard import settle
from modeld.daemon.worker.inbox import Inbox, Job
from modeld.daemon.worker.turn import Turn

EXIT_LEFT = 0
EXIT_FAILED = 1


def main(argv: list[str]) -> int:
    """The worker's exit status; most ways in which a worker ends do not come here."""
    parser = argparse.ArgumentParser(prog="modeld-worker")
    parser.add_argument("--pipe-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--lock-fd", type=int, required=True)
    given = parser.parse_args(argv)
    # The lock is held by being open; nothing else is done with it (E6).
    if not settle(given.parent_pid, (given.pipe_fd, given.lock_fd)):
        return EXIT_LEFT
    pipe = socket.socket(fileno=given.pipe_fd)
    pipe.setblocking(True)
    inbox = Inbox(pipe)
    inbox.start()
    return work(inbox)


def work(inbox: Inbox) -> int:
    """Do the load, then every turn, until it is time to leave; the exit status."""
    job = inbox.next_job()
    if job is None:
        return EXIT_LEFT
    backend = load(job, inbox)
    if backend is None:
        return EXIT_LEFT if job.cancellation.is_set() else EXIT_FAILED
    while (job := inbox.next_job()) is not None:
        if not run(backend, job, inbox):
            return EXIT_FAILED
    backend.close()
    return EXIT_LEFT


def load(job: Job, inbox: Inbox) -> Backend | None:
    """The backend, once Ready was sent. ``None``: LoadFailed was sent, unless it is cancelled."""
    order = job.order
    if not isinstance(order, LoadModel):
        raise TypeError("the inbox lets no turn through before the load")

    def progress(fraction: float) -> None:
        inbox.send(LoadProgress(fraction=fraction))

    backend: Backend | None = None
    try:
        backend = open_backend(order.plan.backend, inbox)
        loaded = backend.load(
            order.plan,
            safe_mode=order.safe_mode,
            cancellation=job.cancellation,
            progress=progress,
        )
        backend.warm_up()
    except Exception as exc:  # noqa: BLE001
        # Said before anything is closed: a backend that failed may hang or crash in close().
        if not isinstance(exc, LoadCancelled):
            inbox.send(LoadFailed(error=_error(exc, ErrorCode.MODEL_LOAD_FAILED).body()))
        if backend is not None:
            backend.close()
        return None
    inbox.send(Ready(config=loaded.config, engine=loaded.engine, degraded=loaded.degraded))
    return backend


def run(backend: Backend, job: Job, inbox: Inbox) -> bool:
    """Run one turn to its one terminal report; whether the backend is fit for the next."""
    order = job.order
    if not isinstance(order, RunTurn):
        raise TypeError("the inbox lets no second load through")
    turn = Turn(order, job.cancellation, inbox.send)
    report: Report
    try:
        if job.cancellation.is_set():
            outcome = Outcome("cancelled", prompt_tokens=None)
        else:
            outcome = backend.run(turn)
        report = turn.finish(outcome)
    except Exception as exc:  # noqa: BLE001
        turn.flush()
        report = TurnFailed(
            turn=turn.name,
            error=_error(exc, ErrorCode.SESSION_FATAL).body(),
            fatal=not isinstance(exc, ModeldError),
        )
    inbox.done(turn.name)
    inbox.send(report)
    return not (isinstance(report, TurnFailed) and report.fatal)


def open_backend(name: BackendName, inbox: Inbox) -> Backend:
    """The backend, without a model. Its module is imported here: the others' need not exist."""
    match name:
        case "llama":
            from modeld.daemon.worker.backends.llama import Llama  # noqa: PLC0415

            return Llama()
        case "echo":
            from modeld.daemon.worker.backends.echo import Echo  # noqa: PLC0415

            return Echo(write=inbox.write)
        case "mlx":
            raise ModeldError(
                ErrorCode.UNSUPPORTED_FEATURE, "the mlx backend is not part of this version"
            )
        case _:
            assert_never(name)


def _error(exc: Exception, code: ErrorCode) -> ModeldError:
    """``exc`` itself if it was foreseen; else ``code``, with the traceback in the log."""
    if isinstance(exc, ModeldError):
        return exc
    traceback.print_exception(exc)
    kind = type(exc).__name__
    return ModeldError(
        code,
        f"the backend failed: {kind}: {exc}",
        cause={"code": kind, "message": str(exc)},
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
