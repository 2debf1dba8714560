"""The one line that a starting daemon writes to whoever started it."""

import msgspec

from modeld.daemon.contract.errors import ErrorBody
from modeld.daemon.contract.owner import OwnerRecord


class ReadyLine(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of the two: the daemon answers at ``owner.endpoint``, or it could not start.

    A pipe that closes without a line is a daemon that died; its log says why.
    """

    owner: OwnerRecord | None = None
    error: ErrorBody | None = None


def encode_ready(line: ReadyLine) -> bytes:
    """The line, with its newline."""
    return msgspec.json.encode(line) + b"\n"


def decode_ready(line: bytes) -> ReadyLine:
    """The line. Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=ReadyLine)
