"""What is said when the slot refuses: what was seen, and what to do about it."""

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.model import Plan
from modeld.daemon.core.admission import Verdict
from modeld.daemon.core.state import Slot


def refusal_of(code: ErrorCode, slot: Slot, asked: str | None) -> ModeldError:
    """The refusal of a request for the model ``asked``, as the slot is now."""
    wanted = slot.wanted
    resident = None if wanted is None else wanted.plan.model
    facts = {
        "busy_operation": slot.busy_operation,
        "inference_id": slot.turn,
        "model": resident,
        "generation": slot.generation,
    }
    match code:
        case ErrorCode.MODEL_BUSY:
            return ModeldError(
                code,
                f"the slot is busy ({slot.busy_operation or 'in use'} of {resident})",
                **facts,
                recovery="wait for it with --wait DUR, or end it with: modeld kill",
            )
        case ErrorCode.MODEL_SWITCH_REQUIRED:
            held = "was loaded explicitly" if wanted and wanted.explicit else "is resident"
            return ModeldError(
                code,
                f"{resident} {held}, and {asked} as asked for is not the same",
                **facts,
                requested=asked,
                recovery="replace it with --switch, or release it with: modeld unload",
            )
        case ErrorCode.SLOT_GENERATION_STALE:
            return ModeldError(
                code,
                f"the slot is at generation {slot.generation}, not at the one given",
                **facts,
                recovery="modeld ps shows what has changed",
            )
        case ErrorCode.TERMINATION_UNCONFIRMED:
            return ModeldError(
                code,
                f"the exit of the worker of {resident} has not been seen; its memory stays charged",
                **facts,
                recovery="modeld kill tries again; modeld ps shows when it is gone",
            )
        case ErrorCode.INFERENCE_NOT_ACTIVE:
            return ModeldError(code, "that inference does not run now", **facts)
        case _:
            return ModeldError(
                ErrorCode.NOT_OWNER,
                "this daemon is shutting down and takes no more requests",
                recovery="try again: the next command starts a new one",
            )


def insufficient_memory(plan: Plan, verdict: Verdict) -> ModeldError:
    """The refusal, with the arithmetic that anybody can follow (requirements E10, E16)."""
    mib = 1024 * 1024
    return ModeldError(
        ErrorCode.INSUFFICIENT_MEMORY,
        f"{plan.model} needs {verdict.required // mib} MiB, and {verdict.usable // mib} MiB may be "
        f"used ({verdict.free // mib} MiB free, {verdict.reserve // mib} MiB kept in reserve)",
        required_bytes=verdict.required,
        free_bytes=verdict.free,
        reserve_bytes=verdict.reserve,
        usable_bytes=verdict.usable,
        cap_bytes=verdict.cap,
        charged_bytes=verdict.charged,
        recovery="free some memory, choose a smaller model, or give a smaller --ctx",
    )
