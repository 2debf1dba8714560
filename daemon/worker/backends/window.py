"""How a prompt and an answer share one context window; numbers only."""

from modeld.daemon.contract.errors import ErrorCode, ModeldError


def prompt_budget(max_tokens: int, window: int) -> int:
    """How many tokens a truncated prompt may have: the answer keeps its length, or half."""
    return window - min(max_tokens, window // 2)


def check_fits(prompt_tokens: int, max_tokens: int, window: int) -> None:
    """Return if at least one token of an answer fits behind the prompt.

    An answer may be cut by the window's end: it then ends with ``length``. Raises
    ModeldError(context_overflow) with the numbers otherwise.
    """
    if prompt_tokens < window:
        return
    raise ModeldError(
        ErrorCode.CONTEXT_OVERFLOW,
        f"the prompt has {prompt_tokens} tokens and up to {max_tokens} were wanted in answer,"
        f" but the context window has {window}",
        stage="prefill",
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        ctx=window,
        resident_tokens=0,
        additional_tokens=prompt_tokens,
        recovery=f"--ctx {_rounded_up(prompt_tokens + max_tokens)}, or --truncate head",
    )


def _rounded_up(tokens: int) -> int:
    """The next multiple of 256, which is how engines pad a window."""
    return -(-tokens // 256) * 256
