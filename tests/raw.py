"""A ZeroMQ client without any of the command line's code, to talk to the daemon itself."""

import json
import os
from collections.abc import Iterator
from typing import Any, Self

import zmq

ENDLESS = {
    "prompt": "".join(f"{n}\n" for n in range(1, 9)),
    "raw": True,
    "sampling": {"temp": 0},
    "max_tokens": 2000,
}
"""A task that the small model counts on at until it is stopped."""

TERMINAL = {"result", "loaded", "ended", "error", "status", "welcome"}


class Raw:
    """One DEALER; requests are dicts, sent as they are. A reply has ``timeout`` seconds."""

    def __init__(self, root: str, timeout: float = 30) -> None:
        with open(os.path.join(root, "owner.json"), encoding="utf-8") as file:
            self.record = json.load(file)
        self.timeout = timeout
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(self.record["endpoint"])
        self._number = 0

    def close(self) -> None:
        self.socket.close()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def send(self, kind: str, **fields: Any) -> str:
        """Send a request with the owner's fence; its id."""
        self._number += 1
        id_ = fields.pop("id", f"r{self._number}")
        message = {"type": kind, "id": id_, "owner": self.record["owner"]}
        self.socket.send(json.dumps({**message, "client_pid": os.getpid(), **fields}).encode())
        return id_

    def receive(self) -> Any:
        """The next reply of any request."""
        assert self.socket.poll(int(self.timeout * 1000)), "the daemon did not answer"
        return json.loads(self.socket.recv())

    def replies(self, id_: str) -> Iterator[Any]:
        """The replies to one request, its terminal one last; others are passed over."""
        while True:
            reply = self.receive()
            if reply["id"] == id_:
                yield reply
                if reply["type"] in TERMINAL:
                    return

    def ask(self, kind: str, **fields: Any) -> Any:
        """The terminal reply to a request."""
        return list(self.replies(self.send(kind, **fields)))[-1]

    def ps(self) -> Any:
        """The daemon's status."""
        return self.ask("status")

    def stream(self, model: str, **fields: Any) -> str:
        """Start a stream without an end and read on to its first token; the request's id."""
        id_ = self.send("generate", model={"name": model}, task=ENDLESS, stream=True, **fields)
        for reply in self.replies(id_):
            if reply["type"] == "token":
                return id_
        raise AssertionError(reply)
