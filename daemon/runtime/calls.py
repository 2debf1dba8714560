"""One request in the daemon's hands, and the terminal replies that can be made of it.

It must not know of sockets, nor decide anything.
"""

from dataclasses import dataclass, field
from typing import assert_never

from modeld.daemon.contract import pipe, wire
from modeld.daemon.contract.errors import ErrorBody, ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack, Cause, Exit, ExitKind, WorkerId
from modeld.daemon.contract.model import ModelChoice, Plan
from modeld.daemon.core.inferences import Inference
from modeld.daemon.runtime.clients import Conversation

MAX_LOG_LINES = 6


@dataclass(slots=True)
class Call:
    """A request that was accepted. Times are of the monotonic clock.

    ``who`` is the inference's id for a load or a turn, and a token of the daemon's own for the
    others. ``choice`` names the model that was meant when the request came.
    """

    who: str
    conversation: Conversation
    request: wire.Load | wire.Generate | wire.Kill | wire.Unload | wire.Reap | wire.Stop
    since: float
    choice: ModelChoice = field(default_factory=ModelChoice)
    inference: Inference | None = None
    plan: Plan | None = None
    seed: int = 0
    worker: WorkerId | None = None
    offered_at: float | None = None
    ran_at: float | None = None
    text: list[str] = field(default_factory=list)
    done: pipe.TurnDone | None = None
    error: ErrorBody | None = None
    ended_by: Cause | None = None
    ack: Ack | None = None


def result_of(
    call: Call,
    done: pipe.TurnDone,
    residency: wire.Residency,
    degraded: tuple[str, ...],
    now: float,
) -> wire.Result:
    """The turn's result.

    ``queue_ms`` ends when the slot took the request, ``load_ms`` when it ran.
    """
    assert call.plan is not None
    assert call.worker is not None
    assert call.inference is not None
    ran_at = now if call.ran_at is None else call.ran_at
    offered_at = ran_at if call.offered_at is None else call.offered_at
    return wire.Result(
        id=call.conversation.id,
        text="".join(call.text),
        thinking=done.thinking,
        model=call.plan.model,
        backend=call.plan.backend,
        inference_id=call.who,
        stop_reason=done.stop_reason,
        seed=call.seed,
        usage=done.usage,
        timings=wire.Timings(
            queue_ms=_ms(offered_at - call.since),
            load_ms=_ms(ran_at - offered_at),
            prefill_ms=done.prefill_ms,
            decode_ms=done.decode_ms,
            total_ms=_ms(now - call.since),
        ),
        residency=residency,
        worker=call.worker,
        template=done.template,
        degraded=degraded,
        truncated_tokens=done.truncated_tokens,
    )


def failure_of(
    call: Call, cause: Cause, exit_: Exit | None, *, confirmed: bool, log: list[str], now: float
) -> ModeldError:
    """Why the request failed whose worker was ended for ``cause``."""
    facts: dict[str, object] = {"inference_id": call.who}
    if call.text:
        facts["partial_text"] = "".join(call.text)
    if call.ack is not None:
        facts["ack"] = call.ack
    if not confirmed and cause is not Cause.DEADLINE:
        return ModeldError(
            ErrorCode.TERMINATION_UNCONFIRMED,
            "the worker was killed and its exit has not been seen; its memory stays charged",
            **facts,
            recovery="modeld ps",
        )
    match call.ended_by or cause:
        case Cause.KILL:
            return ModeldError(
                ErrorCode.CONTROLLED_TERMINATION, "the inference was killed by somebody", **facts
            )
        case Cause.CANCEL:
            return ModeldError(ErrorCode.CONTEXT_CANCELED, "the request was cancelled", **facts)
        case Cause.DEADLINE:
            limit = getattr(call.request, "deadline_s", None) or 0.0
            return ModeldError(
                ErrorCode.DEADLINE_EXCEEDED,
                f"not done within its deadline of {limit:g} s",
                **facts,
                applied_ms=_ms(limit),
                elapsed_ms=_ms(now - call.since),
            )
        case Cause.UNLOAD | Cause.REAP | Cause.SWITCH | Cause.STOP as why:
            said = {"stop": "the daemon was stopped", "unload": "the model was unloaded by force"}
            return ModeldError(
                ErrorCode.CONTROLLED_TERMINATION,
                said.get(why, f"the worker was ended by a {why}"),
                **facts,
            )
        case Cause.LOAD_FAILED:
            return _load_failure(call, call.error, facts)
        case Cause.CRASH:
            died = _death(exit_, log, facts)
            if call.error is not None:
                return ModeldError(
                    call.error.code, call.error.message, **call.error.details, **facts
                )
            if call.ran_at is None:
                return _load_failure(call, died.body(), facts)
            return died
        case _ as never:
            assert_never(never)


def _load_failure(call: Call, error: ErrorBody | None, facts: dict[str, object]) -> ModeldError:
    """The load failed: what is said, and what was behind it, both stay visible (I4)."""
    assert error is not None
    if error.code not in {ErrorCode.WORKER_DIED, ErrorCode.INTERNAL, ErrorCode.SESSION_FATAL}:
        return ModeldError(error.code, error.message, **{**error.details, **facts})
    model = call.plan.model if call.plan is not None else call.choice.name
    return ModeldError(
        ErrorCode.MODEL_LOAD_FAILED,
        f"{model} could not be loaded: {error.message}",
        **facts,
        cause=error,
    )


def _death(exit_: Exit | None, log: list[str], facts: dict[str, object]) -> ModeldError:
    message = f"the worker ended by {exit_ or 'an unknown cause'}"
    if exit_ is not None and exit_.kind is ExitKind.SIGNAL:
        facts = {**facts, "signal": exit_.value}
    elif exit_ is not None:
        facts = {**facts, "exit_code": exit_.value}
    return ModeldError(
        ErrorCode.WORKER_DIED,
        message,
        **facts,
        log=log[-MAX_LOG_LINES:],
        recovery="modeld log --worker shows what it said last",
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
