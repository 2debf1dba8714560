"""Exit statuses: the one table from what happened to what a shell sees."""

from modeld.daemon.contract.errors import ErrorCode
from modeld.daemon.contract.exit import AckStatus

DONE = 0
INTERNAL = 1
USAGE = 2
NOTHING_THERE = 3
UNREACHABLE = 4
BUSY = 5
NO_ROOM = 6
MODEL = 7
WORKER_DIED = 8
UNCONFIRMED = 9
PROTOCOL = 10
TOO_LONG = 11
ENDED_EARLY = 12
INTERRUPTED = 130
READER_GONE = 141

OF_ERROR = {
    ErrorCode.INTERNAL: INTERNAL,
    ErrorCode.BAD_REQUEST: USAGE,
    ErrorCode.CONFIG_INVALID: USAGE,
    ErrorCode.NOT_ALLOWED_IN_WORKER: USAGE,
    ErrorCode.MISSING_PARAMETER: USAGE,
    ErrorCode.DUPLICATE_INFERENCE_ID: USAGE,
    ErrorCode.UNSUPPORTED_FEATURE: USAGE,
    ErrorCode.NOT_RUNNING: NOTHING_THERE,
    ErrorCode.MODEL_NOT_ACTIVE: NOTHING_THERE,
    ErrorCode.INFERENCE_NOT_ACTIVE: NOTHING_THERE,
    ErrorCode.DAEMON_UNREACHABLE: UNREACHABLE,
    ErrorCode.DAEMON_START_FAILED: UNREACHABLE,
    ErrorCode.LOCK_TIMEOUT: UNREACHABLE,
    ErrorCode.OUTCOME_UNKNOWN: UNREACHABLE,
    ErrorCode.STALE_FENCE: UNREACHABLE,
    ErrorCode.NOT_OWNER: UNREACHABLE,
    ErrorCode.SLOT_GENERATION_STALE: BUSY,
    ErrorCode.MODEL_BUSY: BUSY,
    ErrorCode.MODEL_SWITCH_REQUIRED: BUSY,
    ErrorCode.ACTIVE_LIMIT_REACHED: BUSY,
    ErrorCode.INSUFFICIENT_MEMORY: NO_ROOM,
    ErrorCode.DEVICE_BUSY: NO_ROOM,
    ErrorCode.MODEL_NOT_FOUND: MODEL,
    ErrorCode.MODEL_LOAD_FAILED: MODEL,
    ErrorCode.BACKEND_MISMATCH: MODEL,
    ErrorCode.DIGEST_MISMATCH: MODEL,
    ErrorCode.WORKER_DIED: WORKER_DIED,
    ErrorCode.SESSION_FATAL: WORKER_DIED,
    ErrorCode.TERMINATION_UNCONFIRMED: UNCONFIRMED,
    ErrorCode.PROTOCOL_MISMATCH: PROTOCOL,
    ErrorCode.CONTEXT_OVERFLOW: TOO_LONG,
    ErrorCode.DEADLINE_EXCEEDED: ENDED_EARLY,
    ErrorCode.CONTROLLED_TERMINATION: ENDED_EARLY,
    ErrorCode.SLOW_READER: ENDED_EARLY,
    ErrorCode.CONTEXT_CANCELED: INTERRUPTED,
}
"""Total: a test compares it with the list of codes."""

OF_ACK = {
    AckStatus.CANCELLED_CONFIRMED: DONE,
    AckStatus.DEADLINE_EXCEEDED_CONFIRMED: DONE,
    AckStatus.RELEASED_CONFIRMED: DONE,
    AckStatus.ALREADY_TERMINAL: DONE,
    AckStatus.NOTHING_RESIDENT: DONE,
    AckStatus.NOT_IDLE: DONE,
    AckStatus.UNKNOWN: NOTHING_THERE,
    AckStatus.TERMINATION_UNCONFIRMED: UNCONFIRMED,
    AckStatus.DEADLINE_EXCEEDED_UNCONFIRMED: UNCONFIRMED,
}
"""Total as well. Only ``kill`` treats an empty slot as a failure; see :func:`of_kill`."""


def of_kill(status: AckStatus) -> int:
    """The exit status of ``kill``: asked to end something, it fails if nothing was there."""
    return NOTHING_THERE if status is AckStatus.NOTHING_RESIDENT else OF_ACK[status]


class Interrupted(Exception):  # noqa: N818
    """A signal asked this command to end; the daemon was told what it had to know."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.status = 128 + signal_number
