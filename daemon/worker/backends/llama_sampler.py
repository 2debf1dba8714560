"""How the next token is chosen: a task's sampling as a chain of native samplers."""

from collections.abc import Sequence
from typing import Any

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.task import Sampling

PENALTY_WINDOW = 64
"""Tokens that a repeat penalty looks back."""

_PENALTIES_WITH_VOCABULARY = 5
"""Parameters of the penalties sampler since it wants the size of the vocabulary first."""


class Sampler:
    """A chain for one turn; to be closed."""

    def __init__(
        self, api: Any, sampling: Sampling, *, seed: int, vocabulary: int, prompt: Sequence[int]
    ) -> None:
        if sampling.repeat_penalty <= 0:
            raise ModeldError(
                ErrorCode.BAD_REQUEST,
                "a repeat penalty has to be over 0; 1 is none",
                repeat_penalty=sampling.repeat_penalty,
            )
        self._api = api
        params = api.llama_sampler_chain_default_params()
        self.chain = api.llama_sampler_chain_init(params)
        for native in _samplers(api, sampling, seed, vocabulary):
            api.llama_sampler_chain_add(self.chain, native)
        if sampling.repeat_penalty != 1:
            # What the prompt says counts as said.
            for token in prompt[-PENALTY_WINDOW:]:
                api.llama_sampler_accept(self.chain, token)

    def close(self) -> None:
        """The chain is freed; harmless twice."""
        if self.chain:
            self._api.llama_sampler_free(self.chain)
            self.chain = None


def _samplers(api: Any, sampling: Sampling, seed: int, vocabulary: int) -> list[Any]:
    chain = []
    if sampling.repeat_penalty != 1:
        penalties = api.llama_sampler_init_penalties
        sizes = (vocabulary,) if len(penalties.argtypes) == _PENALTIES_WITH_VOCABULARY else ()
        chain.append(penalties(*sizes, PENALTY_WINDOW, sampling.repeat_penalty, 0.0, 0.0))
    if sampling.temp == 0:
        return [*chain, api.llama_sampler_init_greedy()]
    return [
        *chain,
        api.llama_sampler_init_top_k(sampling.top_k),
        api.llama_sampler_init_top_p(sampling.top_p, 1),
        api.llama_sampler_init_min_p(sampling.min_p, 1),
        api.llama_sampler_init_temp(sampling.temp),
        api.llama_sampler_init_dist(seed),
    ]
