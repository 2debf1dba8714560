"""A conversation, against a daemon that is only a socket and does what the test says."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import zmq

from modeld.cli import exchange
from modeld.cli.client import Client
from modeld.cli.exchange import ask
from modeld.cli.exits import Interrupted
from modeld.cli.output import Output
from modeld.cli.settings import Deadline
from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorBody, ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, AckStatus, Cause
from modeld.daemon.contract.model import ModelChoice
from modeld.daemon.contract.task import Task

Answer = Callable[[wire.Request], Iterable[wire.Reply | bytes]]

STATUS = wire.GetStatus(id="s", owner="o", client_pid=1)
TURN = wire.Generate(
    id="g", owner="o", client_pid=1, model=ModelChoice(), task=Task(prompt="x"), inference_id="i"
)
PROGRESS = wire.Progress(id="g", inference_id="i", phase="decode", age_s=1.0)
CANCELED = wire.Failed(
    id="g", error=ErrorBody(code=ErrorCode.CONTEXT_CANCELED, message="cancelled")
)
ENDED = wire.Ended(id="g", ack=Ack(status=AckStatus.UNKNOWN, cause=Cause.KILL))


Kind = TypeVar("Kind", bound=wire.Request)


class Socket:
    """A ROUTER in a thread: ``answer`` makes the replies to a request."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.answer: Answer = lambda _request: []
        self.seen: list[wire.Request] = []
        self._context = zmq.Context()
        self._end = threading.Event()
        self._bound = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        assert self._bound.wait(5)

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self._context.term()

    def saw(self, kind: type[Kind]) -> list[Kind]:
        return [request for request in self.seen if isinstance(request, kind)]

    def _serve(self) -> None:
        router = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.LINGER, 0)
        router.bind(self.endpoint)
        self._bound.set()
        while not self._end.is_set():
            if not router.poll(10):
                continue
            peer, frame = router.recv_multipart()
            request = wire.decode_request(frame)
            self.seen.append(request)
            for reply in self.answer(request):
                raw = reply if isinstance(reply, bytes) else wire.encode(reply)
                router.send_multipart([peer, raw])
        router.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Socket]:
    socket = Socket(f"ipc://{tmp_path}/s")
    yield socket
    socket.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ONE_PRESS_S", 0.0)
    monkeypatch.setattr(exchange, "SILENCE_S", 1.2)
    monkeypatch.setattr(exchange, "GIVE_UP_S", 0.3)


def connect(daemon: Socket, timeout_s: float | None = None, *, gone: bool = False) -> Client:
    return Client(daemon.endpoint, lambda: gone, Deadline(timeout_s))


def welcome(protocol: int = 1) -> wire.Welcome:
    return wire.Welcome(id="hello", owner="o", protocol=protocol, version="9", pid=1, closing=False)


def test_hello_is_answered(daemon: Socket) -> None:
    daemon.answer = lambda _request: [welcome()]
    with connect(daemon) as client:
        assert client.hello() == welcome()


def test_hello_without_an_answer(daemon: Socket) -> None:
    with connect(daemon) as client:
        assert client.hello(0.2) is None


def test_hello_gives_up_early_if_the_daemon_is_gone(daemon: Socket) -> None:
    begun = time.monotonic()
    with connect(daemon, gone=True) as client:
        assert client.hello() is None
    assert time.monotonic() - begun < 3


def test_another_protocol_is_refused_with_both_numbers(daemon: Socket) -> None:
    """W2."""
    daemon.answer = lambda _request: [welcome(99)]
    with connect(daemon) as client, pytest.raises(ModeldError, match=r"protocol 99.*protocol 1"):
        client.hello()


def test_a_refused_hello(daemon: Socket) -> None:
    error = ErrorBody(code=ErrorCode.PROTOCOL_MISMATCH, message="no")
    daemon.answer = lambda _request: [wire.Failed(id="hello", error=error)]
    with connect(daemon) as client, pytest.raises(ModeldError, match="no"):
        client.hello()


def test_what_is_under_way_goes_to_the_caller_and_the_end_is_returned(daemon: Socket) -> None:
    token = wire.Token(id="g", seq=0, text="a")
    daemon.answer = lambda _request: [PROGRESS, token, ENDED]
    seen: list[wire.Reply] = []
    with connect(daemon) as client:
        assert ask(client, TURN, seen.append) == ENDED
    assert seen == [PROGRESS, token]


@pytest.mark.parametrize(
    "frame", [b"{}", b"\xff", b'{"type":"novel","id":"g"}', b'{"type":"token","id":"other"}']
)
def test_an_unknown_reply_is_refused(daemon: Socket, frame: bytes) -> None:
    daemon.answer = lambda _request: [frame]
    with connect(daemon) as client, pytest.raises(ModeldError) as caught:
        ask(client, TURN)
    assert caught.value.code is ErrorCode.PROTOCOL_MISMATCH


def test_a_reply_to_somebody_else_is_refused(daemon: Socket) -> None:
    daemon.answer = lambda _request: [wire.Token(id="other", seq=0, text="x")]
    with connect(daemon) as client, pytest.raises(ModeldError, match="has no place"):
        ask(client, TURN)


@pytest.mark.parametrize(
    ("request_", "code"),
    [(STATUS, ErrorCode.DAEMON_UNREACHABLE), (TURN, ErrorCode.OUTCOME_UNKNOWN)],
)
@pytest.mark.parametrize("gone", [False, True])
def test_silence(daemon: Socket, request_: wire.Request, code: ErrorCode, gone: bool) -> None:
    """G7: what was sent may have been carried out; a question has no outcome."""
    with connect(daemon, gone=gone) as client, pytest.raises(ModeldError) as caught:
        ask(client, request_)
    assert caught.value.code is code
    assert "recovery" in caught.value.details


def test_progress_is_a_sign_of_life(daemon: Socket) -> None:
    """A28."""
    alive = threading.Event()

    def answer(_request: wire.Request) -> Iterator[wire.Reply]:
        for _ in range(8):
            alive.wait(0.25)
            yield PROGRESS
        yield ENDED

    daemon.answer = answer
    with connect(daemon) as client:
        assert ask(client, TURN) == ENDED


def test_timeout_cancels_and_says_so(daemon: Socket) -> None:
    daemon.answer = lambda request: [CANCELED] if isinstance(request, wire.Cancel) else []
    with connect(daemon, 0.2) as client, pytest.raises(ModeldError) as caught:
        ask(client, TURN, output=Output())
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert daemon.saw(wire.Cancel)[0].target == "g"


def test_timeout_without_an_answer_leaves_the_outcome_unknown(daemon: Socket) -> None:
    """G7."""
    with connect(daemon, 0.2) as client, pytest.raises(ModeldError) as caught:
        ask(client, TURN, output=Output())
    assert caught.value.code is ErrorCode.OUTCOME_UNKNOWN


def test_a_signal_ends_a_plain_question_at_once(daemon: Socket) -> None:
    def answer(_request: wire.Request) -> list[wire.Reply]:
        os.kill(os.getpid(), signal.SIGINT)
        return []

    daemon.answer = answer
    with connect(daemon) as client, pytest.raises(Interrupted) as caught:
        ask(client, STATUS)
    assert caught.value.status == 130


def test_one_interrupt_cancels_and_waits_for_the_end(daemon: Socket) -> None:
    def answer(request: wire.Request) -> list[wire.Reply]:
        if isinstance(request, wire.Cancel):
            return [CANCELED]
        os.kill(os.getpid(), signal.SIGINT)
        return [PROGRESS]

    daemon.answer = answer
    with connect(daemon) as client, pytest.raises(Interrupted):
        ask(client, TURN, output=Output())
    assert not daemon.saw(wire.Kill)


def test_a_second_interrupt_kills(daemon: Socket) -> None:
    def answer(request: wire.Request) -> list[wire.Reply]:
        if isinstance(request, wire.Kill):
            ack = Ack(status=AckStatus.CANCELLED_CONFIRMED, cause=Cause.KILL)
            return [wire.Ended(id=request.id, ack=ack), CANCELED]
        os.kill(os.getpid(), signal.SIGINT)
        return []

    daemon.answer = answer
    with connect(daemon) as client, pytest.raises(Interrupted):
        ask(client, TURN, output=Output())
    kill = daemon.saw(wire.Kill)[0]
    assert isinstance(kill, wire.Kill)
    assert kill.inference_id == "i"


def test_a_third_interrupt_leaves(daemon: Socket) -> None:
    def answer(_request: wire.Request) -> list[wire.Reply]:
        os.kill(os.getpid(), signal.SIGINT)
        return []

    daemon.answer = answer
    with connect(daemon) as client, pytest.raises(Interrupted):
        ask(client, TURN, output=Output())
    assert [type(one) for one in daemon.seen] == [wire.Generate, wire.Cancel, wire.Kill]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_wish_to_end_is_quick(daemon: Socket, number: signal.Signals) -> None:
    def answer(request: wire.Request) -> list[wire.Reply]:
        if isinstance(request, wire.Generate):
            os.kill(os.getpid(), number)
        return []

    daemon.answer = answer
    begun = time.monotonic()
    with connect(daemon) as client, pytest.raises(Interrupted) as caught:
        ask(client, TURN, output=Output())
    assert caught.value.status == 128 + number
    assert time.monotonic() - begun < 2
    assert daemon.saw(wire.Cancel)


def test_handlers_are_restored(daemon: Socket) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    daemon.answer = lambda _request: [ENDED]
    with connect(daemon) as client:
        ask(client, TURN, output=Output())
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_request_over_the_limit_is_not_sent(
    daemon: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_REQUEST_BYTES", 10)
    with connect(daemon) as client, pytest.raises(ModeldError) as caught:
        ask(client, TURN)
    assert caught.value.code is ErrorCode.BAD_REQUEST


def test_one_wish_that_comes_as_two_signals_does_not_kill(
    daemon: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``timeout -s INT`` signals the command and then the group it is in."""
    monkeypatch.setattr(exchange, "ONE_PRESS_S", 10.0)

    def answer(request: wire.Request) -> list[wire.Reply]:
        if isinstance(request, wire.Cancel):
            os.kill(os.getpid(), signal.SIGINT)
            return [PROGRESS, CANCELED]
        os.kill(os.getpid(), signal.SIGINT)
        return []

    daemon.answer = answer
    with connect(daemon) as client, pytest.raises(Interrupted):
        ask(client, TURN, output=Output())
    assert not daemon.saw(wire.Kill)
