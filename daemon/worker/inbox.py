"""The worker's end of the pipe: orders come in on a thread of their own, reports go out."""

import os
import queue
import socket
import sys
import threading
from typing import NamedTuple, assert_never

from modeld.daemon.contract.pipe import (
    CancelTurn,
    Frames,
    Leave,
    LoadModel,
    Order,
    PipeError,
    Report,
    RunTurn,
    decode_order,
    encode,
)
from modeld.daemon.worker.backends.cancellation import Cancellation

EXIT_BAD_ORDER = 70
"""What sysexits.h calls an internal software error: the daemon's, in this case."""

_CHUNK = 64 * 1024


class Job(NamedTuple):
    """A load or a turn to be done, and the wish that it end early."""

    order: LoadModel | RunTurn
    cancellation: Cancellation


class Inbox:
    """Reads orders at once, whatever the main thread does, and hands it one job after the other.

    The end of the pipe ends the process at once: nobody is left who could want an answer.
    """

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: dict[str, Cancellation] = {}
        self._load: Cancellation | None = None
        self._leaving = False

    def start(self) -> None:
        """Orders are read from now on."""
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    def next_job(self) -> Job | None:
        """The next job, waiting for it; ``None`` if it is time to leave."""
        job = self._jobs.get()
        return None if self._leaving else job

    def done(self, turn: str) -> None:
        """The turn has ended; a cancel for it that is still under way means nothing."""
        with self._lock:
            self._open.pop(turn, None)

    def send(self, report: Report) -> None:
        """The report is in the pipe, whole, when this returns."""
        self.write(encode(report))

    def write(self, data: bytes) -> None:
        """``data`` is in the pipe; a pipe that the daemon has closed ends the process."""
        try:
            self._pipe.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)

    def _read(self) -> None:
        frames = Frames()
        try:
            while data := self._receive():
                for body in frames.feed(data):
                    self._take(decode_order(body))
        except PipeError as exc:
            sys.stderr.write(f"modeld worker: {exc}\n")
            sys.stderr.flush()
            os._exit(EXIT_BAD_ORDER)
        os._exit(0)

    def _receive(self) -> bytes:
        try:
            return self._pipe.recv(_CHUNK)
        except ConnectionResetError:
            return b""

    def _take(self, order: Order) -> None:
        match order:
            case LoadModel():
                if self._load is not None:
                    raise PipeError("a second load: a worker holds one model in its life")
                self._load = Cancellation()
                self._jobs.put(Job(order, self._load))
            case RunTurn():
                if self._load is None:
                    raise PipeError(f"turn {order.turn} came before a load")
                cancellation = Cancellation()
                with self._lock:
                    self._open[order.turn] = cancellation
                self._jobs.put(Job(order, cancellation))
            case CancelTurn():
                with self._lock:
                    wanted = self._open.get(order.turn)
                if wanted is not None:
                    wanted.set()
            case Leave():
                self._leave()
            case _:
                assert_never(order)

    def _leave(self) -> None:
        self._leaving = True
        if self._load is not None:
            self._load.set()
        with self._lock:
            for cancellation in self._open.values():
                cancellation.set()
        self._jobs.put(None)
