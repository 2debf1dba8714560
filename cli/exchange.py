"""One request under way: its replies in order, and what a signal, silence or a lost reader does."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import zmq

from modeld.cli.client import Client, new_id, out_of_place
from modeld.cli.exits import Interrupted
from modeld.cli.interrupts import Interrupts
from modeld.cli.output import STDOUT, Output, OutputError
from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorCode, ModeldError

SILENCE_S = 10.0
"""The daemon speaks to everybody who waits at least each second (L3)."""

GIVE_UP_S = 1.0
"""How long a command that was told to go waits for the word that its turn has ended."""

READER_GONE_S = 2.0
KILL_S = 15.0

ONE_PRESS_S = 0.05
"""``timeout -s INT`` and the like signal the process and its group: that is one wish, not two."""

_LOOK_S = 0.5
_MOST_UNREAD = 1 << 20
"""Bytes of text that standard output did not take yet, above which no more is received."""


def ask(
    client: Client,
    request: wire.Request,
    on_reply: Callable[[wire.Reply], None] = lambda _reply: None,
    output: Output | None = None,
) -> wire.Reply:
    """Send ``request``, hand every reply but the last to ``on_reply``, and return the last.

    With ``output`` a signal or a reader that has gone cancels the request, and what ``output``
    still holds is written while waiting; without it a signal ends the wait at once.

    Raises Interrupted, BrokenPipeError, OutputError, ModeldError(outcome_unknown,
    daemon_unreachable, deadline_exceeded), but not what a Failed reply says.
    """
    with Interrupts() as interrupts:
        return _Exchange(client, request, on_reply, output, interrupts).run()


class _Exchange:
    """One request under way, and the two ways out of it: its own end, or giving up."""

    def __init__(
        self,
        client: Client,
        request: wire.Request,
        on_reply: Callable[[wire.Reply], None],
        output: Output | None,
        interrupts: Interrupts,
    ) -> None:
        self._client = client
        self._request = request
        self._on_reply = on_reply
        self._output = output
        self._interrupts = interrupts
        self._heard = time.monotonic()
        self._inference_id = getattr(request, "inference_id", None)
        self._kill_id: str | None = None
        self._pressed = float("-inf")
        self._why: BaseException | None = None
        self._give_up_at = float("inf")

    def run(self) -> wire.Reply:
        self._client.send(self._request)
        while True:
            happened = self._wait()
            if self._interrupts.fileno() in happened:
                for number in self._interrupts.take():
                    self._on_signal(number)
            if self._output is not None and STDOUT in happened:
                self._watch_reader(self._output)
            if self._client.socket in happened:
                reply = self._client.receive()
                self._heard = time.monotonic()
                if self._is_last(reply):
                    return self._end(reply)
            else:
                self._check_silence()
            self._check_time()

    # --- waiting ----------------------------------------------------------------------------

    def _wait(self) -> set[Any]:
        """Wait until something happens, or for a moment; what it happened to."""
        poller = zmq.Poller()
        poller.register(self._interrupts.fileno(), zmq.POLLIN)
        output, why = self._output, self._why
        reading = output is None or output.pending < _MOST_UNREAD or why is not None
        if reading:
            poller.register(self._client.socket, zmq.POLLIN)
        if output is not None and why is None:
            if output.pending:
                poller.register(STDOUT, zmq.POLLOUT)
            elif output.tells_when_unread:
                poller.register(STDOUT, zmq.POLLERR)
        look_s = min(_LOOK_S, max(self._give_up_at - time.monotonic(), 0.0))
        happened = poller.poll(int(self._client.deadline.within(look_s) * 1000) + 1)
        if not reading:
            # Not listening is not silence.
            self._heard = time.monotonic()
        return {source for source, _ in happened}

    def _watch_reader(self, output: Output) -> None:
        if self._is_unread():
            return
        try:
            output.push()
            if output.tells_when_unread:
                output.check_reader()
        except (BrokenPipeError, OutputError) as exc:
            self._give_up(exc, READER_GONE_S)

    def _is_unread(self) -> bool:
        """Whether standard output takes nothing any more."""
        return isinstance(self._why, (BrokenPipeError, OutputError))

    def _check_silence(self) -> None:
        silent_s = time.monotonic() - self._heard
        if silent_s < 2 * _LOOK_S:
            return
        gone = self._client.is_gone()
        if not gone and silent_s < SILENCE_S:
            return
        # Being stopped and continued looks like silence until what came meanwhile is received.
        if self._client.socket.poll(100):
            return
        raise self._why or _lost(self._request, gone=gone, silent_s=silent_s)

    def _check_time(self) -> None:
        if self._why is not None:
            if time.monotonic() >= self._give_up_at:
                raise self._why
        elif self._client.deadline.is_over():
            after = self._client.deadline.after_s or 0.0
            if self._output is None:
                raise _lost(self._request, gone=False, silent_s=after)
            self._give_up(_over(after), GIVE_UP_S)

    # --- giving up --------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        if self._output is None or self._is_unread():
            raise Interrupted(number)
        if number != signal.SIGINT:
            self._give_up(Interrupted(number), GIVE_UP_S)
            return
        now = time.monotonic()
        if now - self._pressed < ONE_PRESS_S:
            return
        self._pressed = now
        if self._why is None:
            self._give_up(Interrupted(number), float("inf"))
        elif self._kill_id is None and self._inference_id is not None:
            self._kill(self._inference_id)
        else:
            raise Interrupted(number)

    def _give_up(self, why: BaseException, wait_s: float) -> None:
        """Cancel the request; raise ``why`` when it has ended, at the latest after ``wait_s``."""
        if self._why is None:
            self._client.send(
                wire.Cancel(
                    id=new_id(),
                    owner=self._request_owner(),
                    client_pid=os.getpid(),
                    target=self._request.id,
                )
            )
        self._why = why
        self._give_up_at = time.monotonic() + wait_s

    def _kill(self, inference_id: str) -> None:
        self._kill_id = new_id()
        self._client.send(
            wire.Kill(
                id=self._kill_id,
                owner=self._request_owner(),
                client_pid=os.getpid(),
                inference_id=inference_id,
            )
        )
        self._give_up_at = time.monotonic() + KILL_S

    def _request_owner(self) -> str:
        assert not isinstance(self._request, wire.Hello)
        return self._request.owner

    # --- replies ----------------------------------------------------------------------------

    def _is_last(self, reply: wire.Reply) -> bool:
        """Hand on what is under way; whether ``reply`` is the one that ends the request."""
        if self._kill_id is not None and reply.id == self._kill_id:
            # The kill's own ack may come before or after the end of what it killed.
            return False
        if reply.id not in {self._request.id, ""}:
            raise out_of_place(reply)
        if not isinstance(reply, (wire.Start, wire.Progress, wire.Token)):
            return True
        if not isinstance(reply, wire.Token) and reply.inference_id is not None:
            self._inference_id = reply.inference_id
        if not self._is_unread():
            try:
                self._on_reply(reply)
            except (BrokenPipeError, OutputError) as exc:
                self._give_up(exc, READER_GONE_S)
        return False

    def _end(self, reply: wire.Reply) -> wire.Reply:
        if self._why is None:
            return reply
        if not isinstance(self._why, ModeldError):
            raise self._why
        # --timeout: the daemon had the last word after all, and it may be a result.
        if isinstance(reply, wire.Failed) and reply.error.code is ErrorCode.CONTEXT_CANCELED:
            raise ModeldError(
                ErrorCode.DEADLINE_EXCEEDED,
                f"no result within {self._client.deadline.after_s:g} s (--timeout); "
                "the request was cancelled",
            )
        return reply


def _over(after_s: float) -> ModeldError:
    return ModeldError(
        ErrorCode.OUTCOME_UNKNOWN,
        f"no result within {after_s:g} s (--timeout); the daemon was asked to give up",
        waited_s=after_s,
        recovery="'modeld ps' shows what is under way",
    )


def _lost(request: wire.Request, *, gone: bool, silent_s: float) -> ModeldError:
    """What it means that no reply comes: for a question nothing, for anything else uncertainty."""
    seen = "the daemon ended" if gone else f"the daemon did not answer for {silent_s:.1f} s"
    if isinstance(request, wire.GetStatus):
        return ModeldError(
            ErrorCode.DAEMON_UNREACHABLE,
            f"{seen} before it answered" if gone else seen,
            recovery="try again" if gone else "'modeld stop --force' ends it",
        )
    return ModeldError(
        ErrorCode.OUTCOME_UNKNOWN,
        f"{seen} after it got the request; whether it was carried out is not known",
        recovery="'modeld ps' shows what is so now",
    )
