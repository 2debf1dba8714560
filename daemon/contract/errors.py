"""The closed list of things that go wrong, as every process names them.

Facts travel as fields; the text a person reads is laid out in ``cli/render.py``, exit statuses
are chosen in ``cli/exits.py``.
"""

from enum import StrEnum
from typing import Any

import msgspec


class ErrorCode(StrEnum):
    """A stable token, the same as a reply, in the middle of a stream and in ``--json``."""

    INTERNAL = "internal"
    BAD_REQUEST = "bad_request"
    CONFIG_INVALID = "config_invalid"
    NOT_ALLOWED_IN_WORKER = "not_allowed_in_worker"

    NOT_RUNNING = "not_running"
    DAEMON_UNREACHABLE = "daemon_unreachable"
    DAEMON_START_FAILED = "daemon_start_failed"
    LOCK_TIMEOUT = "lock_timeout"
    OUTCOME_UNKNOWN = "outcome_unknown"
    PROTOCOL_MISMATCH = "protocol_mismatch"
    MISSING_PARAMETER = "missing_parameter"
    STALE_FENCE = "stale_fence"
    NOT_OWNER = "not_owner"

    SLOT_GENERATION_STALE = "slot_generation_stale"
    MODEL_BUSY = "model_busy"
    MODEL_NOT_ACTIVE = "model_not_active"
    MODEL_SWITCH_REQUIRED = "model_switch_required"
    ACTIVE_LIMIT_REACHED = "active_limit_reached"
    DUPLICATE_INFERENCE_ID = "duplicate_inference_id"
    INFERENCE_NOT_ACTIVE = "inference_not_active"

    INSUFFICIENT_MEMORY = "insufficient_memory"
    DEVICE_BUSY = "device_busy"

    MODEL_NOT_FOUND = "model_not_found"
    MODEL_LOAD_FAILED = "model_load_failed"
    BACKEND_MISMATCH = "backend_mismatch"
    UNSUPPORTED_FEATURE = "unsupported_feature"
    DIGEST_MISMATCH = "digest_mismatch"

    CONTEXT_OVERFLOW = "context_overflow"
    CONTEXT_CANCELED = "context_canceled"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CONTROLLED_TERMINATION = "controlled_termination"
    WORKER_DIED = "worker_died"
    SESSION_FATAL = "session_fatal"
    TERMINATION_UNCONFIRMED = "termination_unconfirmed"
    SLOW_READER = "slow_reader"


RETRYABLE = frozenset(
    {
        ErrorCode.STALE_FENCE,
        ErrorCode.NOT_OWNER,
        ErrorCode.SLOT_GENERATION_STALE,
        ErrorCode.MODEL_BUSY,
        ErrorCode.ACTIVE_LIMIT_REACHED,
        ErrorCode.INSUFFICIENT_MEMORY,
        ErrorCode.DEVICE_BUSY,
        ErrorCode.LOCK_TIMEOUT,
        ErrorCode.TERMINATION_UNCONFIRMED,
        ErrorCode.WORKER_DIED,
        ErrorCode.SESSION_FATAL,
    }
)
"""Codes after which the same request may succeed. ``controlled_termination`` never is one."""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """An error as it travels: on the wire, on the worker's pipe and in ``--json``."""

    code: ErrorCode
    message: str
    details: dict[str, Any] = {}
    retryable: bool = False


class ModeldError(Exception):
    """A refusal or a failure that modeld foresaw.

    ``message`` says what was seen and what was expected, in one line. ``details`` holds the facts;
    ``details["recovery"]``, if there is one, says what to do, as a command where it can be.
    """

    def __init__(self, code: ErrorCode, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def body(self) -> ErrorBody:
        """The same error, ready to travel."""
        return ErrorBody(
            code=self.code,
            message=self.message,
            details=self.details,
            retryable=self.code in RETRYABLE,
        )

    @classmethod
    def from_body(cls, body: ErrorBody) -> "ModeldError":
        """The error that another process sent."""
        return cls(body.code, body.message, **body.details)
