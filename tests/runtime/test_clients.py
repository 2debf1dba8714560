"""Conversations over real sockets: with clients that read, that do not, and that are gone."""

from collections.abc import Iterator

import pytest
import zmq

from modeld.daemon.contract import wire
from modeld.daemon.contract.errors import ErrorBody, ErrorCode
from modeld.daemon.runtime import clients as module
from modeld.daemon.runtime.clients import RECEIVE_BATCH, Clients, Conversation

PATIENCE_MS = 30_000
HIGH_WATER = 4
"""Frames that each end holds; so little, that a slow client is slow at once."""

FAILED = wire.Failed(id="1", error=ErrorBody(code=ErrorCode.INTERNAL, message="m"))


def token(text: str) -> wire.Token:
    return wire.Token(id="1", seq=0, text=text)


def progress() -> wire.Progress:
    return wire.Progress(id="1", inference_id=None, phase="queued", age_s=0.0)


class Net:
    """A ROUTER with its :class:`Clients`, and the DEALERs that tests connect to it."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.router.setsockopt(zmq.SNDHWM, HIGH_WATER)
        self.router.setsockopt(zmq.LINGER, 0)
        self.router.bind("inproc://modeld")
        self.sockets = [self.router]
        self.gone: list[Conversation] = []
        self.slow: list[Conversation] = []
        self.clients = Clients(self.router, on_gone=self.gone.append, on_slow=self.slow.append)

    def dealer(self) -> zmq.Socket[bytes]:
        dealer = self.context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.RCVHWM, HIGH_WATER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        dealer.connect("inproc://modeld")
        self.sockets.append(dealer)
        return dealer

    def next_frames(self) -> list[tuple[bytes, bytes]]:
        assert self.router.poll(PATIENCE_MS)
        return self.clients.receive()

    def talk(self, dealer: "zmq.Socket[bytes]", id_: str = "1") -> Conversation:
        """Open the conversation that the dealer's next frame begins."""
        dealer.send(b"request")
        ((route, frame),) = self.next_frames()
        assert frame == b"request"
        conversation = self.clients.open(route, id_, 7)
        assert conversation is not None
        return conversation

    def read_all(self, dealer: "zmq.Socket[bytes]") -> list[wire.Reply]:
        """What comes until the terminal reply, while the daemon flushes."""
        replies = []
        while not replies or isinstance(replies[-1], wire.Token | wire.Progress | wire.Start):
            replies.append(self.read(dealer))
        return replies

    def read(self, dealer: "zmq.Socket[bytes]") -> wire.Reply:
        """The next reply; ZeroMQ tells the sender of room with a delay, so it tries again."""
        while not dealer.poll(1):
            self.clients.flush()
        return wire.decode_reply(dealer.recv())


@pytest.fixture
def net() -> Iterator[Net]:
    net = Net()
    yield net
    for socket in net.sockets:
        socket.close()
    net.context.term()


# --- frames in ------------------------------------------------------------------------------


def test_frames_come_with_their_senders_route(net: Net) -> None:
    one, two = net.dealer(), net.dealer()
    one.send(b"a")
    ((first, _),) = net.next_frames()
    two.send(b"b")
    ((second, _),) = net.next_frames()
    assert first != second
    assert net.clients.receive() == []


def test_what_is_not_one_frame_is_no_request(net: Net) -> None:
    """W4."""
    dealer = net.dealer()
    dealer.send_multipart([b"a", b"b"])
    dealer.send_multipart([b""])
    dealer.send_multipart([b"", b"envelope of a REQ"])
    assert [frame for _, frame in net.next_frames()] == [b""]


def test_no_more_than_a_batch_is_taken_at_once(net: Net) -> None:
    """A flood of requests must not starve the worker and the timers."""
    dealer = net.dealer()
    dealer.setsockopt(zmq.SNDTIMEO, PATIENCE_MS)
    sent = RECEIVE_BATCH + 3
    for _ in range(sent):
        dealer.send(b"a")
    assert len(net.next_frames()) == RECEIVE_BATCH
    assert len(net.next_frames()) == 3


# --- conversations --------------------------------------------------------------------------


def test_a_conversation_is_its_clients_own(net: Net) -> None:
    first = net.talk(net.dealer())
    second = net.talk(net.dealer())
    assert (first.id, second.id) == ("1", "1")
    assert net.clients.find(first.route, "1") is first
    assert net.clients.find(second.route, "1") is second
    assert net.clients.find(first.route, "2") is None
    assert tuple(net.clients._open.values()) == (first, second)


def test_an_id_that_is_open_cannot_be_opened_again(net: Net) -> None:
    dealer = net.dealer()
    conversation = net.talk(dealer)
    assert net.clients.open(conversation.route, "1", 7) is None
    net.clients.end(conversation, FAILED)
    assert net.clients.open(conversation.route, "1", 7) is not None


def test_tokens_are_numbered_without_gaps(net: Net) -> None:
    dealer = net.dealer()
    conversation = net.talk(dealer)
    for text in "abc":
        net.clients.send(conversation, token(text))
    net.clients.end(conversation, FAILED)
    replies = net.read_all(dealer)
    assert replies == [
        wire.Token(id="1", seq=0, text="a"),
        wire.Token(id="1", seq=1, text="b"),
        wire.Token(id="1", seq=2, text="c"),
        FAILED,
    ]


def test_there_is_one_terminal_reply_and_nothing_after_it(net: Net) -> None:
    """W3."""
    dealer = net.dealer()
    conversation = net.talk(dealer)
    net.clients.end(conversation, FAILED)
    net.clients.end(conversation, FAILED)
    net.clients.send(conversation, token("late"))
    assert tuple(net.clients._open.values()) == ()
    assert wire.decode_reply(dealer.recv()) == FAILED
    assert not dealer.poll(0)


def test_an_answer_outside_of_conversations_is_sent_or_missed(net: Net) -> None:
    dealer = net.dealer()
    conversation = net.talk(dealer)
    net.clients.answer(conversation.route, FAILED)
    assert wire.decode_reply(dealer.recv()) == FAILED
    net.clients.answer(b"nobody", FAILED)
    assert net.gone == []


# --- clients that are gone ------------------------------------------------------------------


def disappear(net: Net, dealer: "zmq.Socket[bytes]", conversation: Conversation) -> None:
    """Close the client, and see it through that the router has noticed."""
    dealer.close()
    while net.clients._try_send(conversation.route, progress()) is not None:
        net.router.poll(1)


def test_a_client_that_is_gone_is_noticed_by_the_next_reply(net: Net) -> None:
    """L3."""
    dealer = net.dealer()
    conversation = net.talk(dealer)
    disappear(net, dealer, conversation)
    net.clients.send(conversation, progress())
    assert net.gone == [conversation]
    assert not conversation.is_open
    assert tuple(net.clients._open.values()) == ()
    net.clients.send(conversation, progress())
    net.clients.end(conversation, FAILED)
    assert net.gone == [conversation], "it is gone once"


def test_the_terminal_reply_to_a_client_that_is_gone_is_its_end(net: Net) -> None:
    dealer = net.dealer()
    conversation = net.talk(dealer)
    disappear(net, dealer, conversation)
    net.clients.end(conversation, FAILED)
    assert tuple(net.clients._open.values()) == ()
    assert not net.clients.has_unsent


def test_a_slow_client_that_is_gone_leaves_nothing_unsent(net: Net) -> None:
    dealer = net.dealer()
    conversation = net.talk(dealer)
    for number in range(50):
        net.clients.send(conversation, token(f"{number} "))
    assert net.clients.has_unsent
    disappear(net, dealer, conversation)
    net.clients.flush()
    assert net.gone == [conversation]
    assert not net.clients.has_unsent


def test_one_client_gone_is_nothing_to_another(net: Net) -> None:
    one, two = net.dealer(), net.dealer()
    first, second = net.talk(one), net.talk(two)
    disappear(net, one, first)
    net.clients.send(first, progress())
    net.clients.send(second, token("a"))
    assert wire.decode_reply(two.recv()) == wire.Token(id="1", seq=0, text="a")
    assert tuple(net.clients._open.values()) == (second,)


# --- clients that are slow ------------------------------------------------------------------


def test_a_slow_client_gets_every_text_in_order_in_fewer_tokens(net: Net) -> None:
    """L4: texts that wait become one, and the numbers have no gap."""
    dealer = net.dealer()
    conversation = net.talk(dealer)
    texts = [f"{number} " for number in range(200)]
    for text in texts:
        net.clients.send(conversation, token(text))
    assert net.clients.has_unsent
    assert len(conversation.unsent) == 1
    net.clients.end(conversation, FAILED)
    assert len(conversation.unsent) == 2
    *tokens, last = net.read_all(dealer)
    assert last == FAILED
    assert "".join(t.text for t in tokens if isinstance(t, wire.Token)) == "".join(texts)
    assert [t.seq for t in tokens if isinstance(t, wire.Token)] == list(range(len(tokens)))
    assert len(tokens) < 20
    assert tuple(net.clients._open.values()) == ()
    assert not net.clients.has_unsent


def test_a_slow_client_misses_signs_of_life_and_nothing_else(net: Net) -> None:
    dealer = net.dealer()
    conversation = net.talk(dealer)
    while not net.clients.has_unsent:
        net.clients.send(conversation, token("x"))
    for _ in range(100):
        net.clients.send(conversation, progress())
    assert len(conversation.unsent) == 1


def test_a_slow_client_does_not_hold_up_another(net: Net) -> None:
    one, two = net.dealer(), net.dealer()
    first, second = net.talk(one), net.talk(two)
    for _ in range(100):
        net.clients.send(first, token("x"))
    net.clients.send(second, token("y"))
    assert wire.decode_reply(two.recv()) == wire.Token(id="1", seq=0, text="y")
    assert not second.unsent


def test_what_waits_for_a_slow_client_is_bounded(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTPUT_LIMIT", 100)
    conversation = net.talk(net.dealer())
    while conversation.unsent_chars <= 90:
        net.clients.send(conversation, token("x" * 10))
        assert conversation.unsent_chars > 90 or net.slow == []
    net.clients.send(conversation, token("x" * 10))
    assert net.slow == [conversation]


def test_what_was_read_counts_no_more(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTPUT_LIMIT", 100)
    dealer = net.dealer()
    conversation = net.talk(dealer)
    for _ in range(20):
        while conversation.unsent_chars <= 80:
            net.clients.send(conversation, token("x" * 10))
        while net.clients.has_unsent:
            net.read(dealer)
            net.clients.flush()
        assert conversation.unsent_chars == 0
    assert net.slow == []
