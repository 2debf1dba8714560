"""What these small workers have in common: one way to say something over the pipe."""

import json
import socket
import struct
import sys


def pipe() -> socket.socket:
    """This worker's end, whose descriptor is the first argument."""
    return socket.socket(fileno=int(sys.argv[1]))


def frame(text: str, number: int = 0) -> bytes:
    """One piece of an answer."""
    body = json.dumps({"type": "piece", "turn": "t", "text": text, "tokens": number}).encode()
    return struct.pack(">I", len(body)) + body
