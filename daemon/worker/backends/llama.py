"""GGUF models through llama.cpp's C functions, with a decode loop of its own."""

import ctypes
import time
from collections.abc import Callable
from typing import Any

import msgspec

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.model import Config, Plan
from modeld.daemon.contract.task import Sampling
from modeld.daemon.contract.wire import StopReason
from modeld.daemon.worker.backends.base import LoadCancelled, Loaded, Outcome, Turn
from modeld.daemon.worker.backends.cancellation import Cancellation
from modeld.daemon.worker.backends.llama_chat import Template
from modeld.daemon.worker.backends.llama_native import (
    NativeLog,
    abort_callback,
    bindings,
    context_params,
    engine,
    model_params,
)
from modeld.daemon.worker.backends.llama_prompt import prompt_of
from modeld.daemon.worker.backends.llama_sampler import Sampler
from modeld.daemon.worker.backends.llama_vocab import Vocabulary

_PROGRESS_S = 0.1
_WARM_UP_TOKENS = 32
_ABORTED = 2


class Llama:
    """One model and one context with one sequence, whose tokens are kept from turn to turn."""

    def __init__(self) -> None:
        self._api = bindings()
        self._log = NativeLog(self._api)
        self._abort = abort_callback(self._api)
        self._model: Any = None
        self._context: Any = None
        self._memory: Any = None
        self._vocabulary: Vocabulary
        self._template: Template | None = None
        self._window = 0
        self._batch = 0
        self._resident: list[int] = []
        self._watched = Cancellation()

    def load(
        self,
        plan: Plan,
        *,
        safe_mode: bool,
        cancellation: Cancellation,
        progress: Callable[[float], None],
    ) -> Loaded:
        """The weights are mapped, and a context of the wanted size is allocated."""
        if plan.adapters:
            raise ModeldError(
                ErrorCode.UNSUPPORTED_FEATURE, "adapters are not supported by this version"
            )
        api = self._api
        api.llama_backend_init()
        self._open_model(plan, safe_mode, cancellation, progress)
        if cancellation.is_set():
            raise LoadCancelled
        config = self._open_context(plan)
        self._vocabulary = Vocabulary(api, self._model)
        self._template = self._find_template(config.chat_template)
        degraded = ("safe mode: weights are not repacked for this CPU",) if safe_mode else ()
        return Loaded(config, engine(api), degraded)

    def warm_up(self) -> None:
        """Decode as a turn would: many tokens, one token, a choice. Then forget it."""
        self._watch(Cancellation())
        token = max(self._vocabulary.bos, 0)
        count = min(_WARM_UP_TOKENS, self._window - 1, self._batch)
        self._decode([token] * count)
        self._decode([token])
        sampler = Sampler(
            self._api, Sampling(), seed=0, vocabulary=self._vocabulary.size, prompt=[]
        )
        self._api.llama_sampler_sample(sampler.chain, self._context, -1)
        sampler.close()
        self._forget(0)
        self._api.llama_perf_context_reset(self._context)

    def run(self, turn: Turn) -> Outcome:
        """Prefill what is not resident already, then decode until something ends the turn."""
        task = turn.task
        prompt = prompt_of(task, self._template, self._vocabulary, self._window)
        sampler = Sampler(
            self._api,
            task.sampling,
            seed=turn.seed,
            vocabulary=self._vocabulary.size,
            prompt=prompt.tokens,
        )
        try:
            self._watch(turn.cancellation)
            # A prefix computed in other batches differs in the last bits: an exact turn, whose
            # text must not depend on what ran before, computes its own (pain B86).
            reused = self._keep_prefix([] if turn.exact else prompt.tokens)
            reason: StopReason = "cancelled"
            if self._prefill(prompt.tokens, turn):
                turn.decoding()
                reason = self._generate(sampler.chain, turn)
        finally:
            sampler.close()
        return Outcome(
            reason,
            prompt_tokens=len(prompt.tokens),
            reused_tokens=reused,
            template=prompt.template,
            truncated_tokens=prompt.truncated_tokens,
        )

    def close(self) -> None:
        """Free the context, then the model; left to the interpreter's end, the order is chance."""
        if self._context:
            self._api.llama_free(self._context)
            self._context = self._memory = None
        if self._model:
            self._api.llama_model_free(self._model)
            self._model = None
            self._api.llama_backend_free()

    # --- load ---------------------------------------------------------------------------------

    def _open_model(
        self,
        plan: Plan,
        safe_mode: bool,
        cancellation: Cancellation,
        progress: Callable[[float], None],
    ) -> None:
        said = 0.0

        def go_on(fraction: float, _data: int | None) -> bool:
            nonlocal said
            now = time.monotonic()
            if now - said >= _PROGRESS_S or fraction >= 1:
                said = now
                progress(fraction)
            return not cancellation.is_set()

        params = model_params(self._api, plan.config, safe_mode=safe_mode)
        params.progress_callback = self._api.llama_progress_callback(go_on)
        self._model = self._api.llama_model_load_from_file(plan.path.encode(), params)
        if not self._model:
            if cancellation.is_set():
                raise LoadCancelled
            raise self._refused(plan, f"llama.cpp refused {plan.path}")

    def _open_context(self, plan: Plan) -> Config:
        api = self._api
        if api.llama_model_has_encoder(self._model):
            raise ModeldError(
                ErrorCode.UNSUPPORTED_FEATURE,
                f"{plan.path} needs an encoder, which is not supported",
            )
        self._context = api.llama_init_from_model(self._model, context_params(api, plan.config))
        if not self._context:
            raise self._refused(plan, f"llama.cpp made no context for {plan.path}")
        self._memory = api.llama_get_memory(self._context)
        if not self._memory:
            raise ModeldError(
                ErrorCode.UNSUPPORTED_FEATURE, f"{plan.path} holds a model that generates no text"
            )
        # The library may round the window up; what was asked for stays the limit.
        self._window = min(api.llama_n_ctx(self._context), plan.config.ctx)
        self._batch = min(api.llama_n_batch(self._context), plan.config.batch)
        return msgspec.structs.replace(plan.config, ctx=self._window, batch=self._batch)

    def _find_template(self, path: str | None) -> Template | None:
        if path is None:
            found = self._api.llama_model_chat_template(self._model, None)
            return Template(found.decode(), "gguf", self._vocabulary) if found else None
        try:
            with open(path, encoding="utf-8") as file:
                return Template(file.read(), path, self._vocabulary)
        except (OSError, UnicodeDecodeError) as exc:
            raise ModeldError(
                ErrorCode.BAD_REQUEST, f"the chat template {path} cannot be read: {exc}", path=path
            ) from exc

    def _refused(self, plan: Plan, what: str) -> ModeldError:
        tail = self._log.tail()
        said = [line for line in tail if "rror" in line] or tail or ["the log has no reason"]
        reason = said[-1]
        return ModeldError(
            ErrorCode.MODEL_LOAD_FAILED,
            f"{what}: {reason}",
            path=plan.path,
            native_log=tail,
            cause={"code": "llama_cpp", "message": reason},
        )

    # --- turns --------------------------------------------------------------------------------

    def _watch(self, cancellation: Cancellation) -> None:
        """The library looks at this wish from now on, in the middle of a batch too."""
        # Kept: the library holds a bare address.
        self._watched = cancellation
        flag = ctypes.addressof(cancellation.flag)
        self._api.llama_set_abort_callback(self._context, self._abort, flag)

    def _keep_prefix(self, prompt: list[int]) -> int:
        """Only a common prefix with ``prompt`` is resident; its length, less than the prompt's."""
        # The last token is always decoded again: its logits choose the first of the answer.
        limit = min(len(self._resident), len(prompt) - 1)
        same = 0
        while same < limit and self._resident[same] == prompt[same]:
            same += 1
        return self._forget(same)

    def _forget(self, keep: int) -> int:
        """Only the first ``keep`` tokens are resident, or none: how many."""
        api = self._api
        # Some memories (recurrent, sliding window) cannot give up a part.
        if keep <= 0 or not api.llama_memory_seq_rm(self._memory, 0, keep, -1):
            api.llama_memory_clear(self._memory, False)
            keep = 0
        del self._resident[keep:]
        return keep

    def _prefill(self, prompt: list[int], turn: Turn) -> bool:
        """The whole prompt is resident; or it is cancelled, and the context still in order."""
        turn.prefilled(len(self._resident), len(prompt))
        for start in range(len(self._resident), len(prompt), self._batch):
            chunk = prompt[start : start + self._batch]
            if turn.cancellation.is_set() or not self._decode(chunk):
                return False
            turn.prefilled(len(self._resident), len(prompt))
        return True

    def _decode(self, tokens: list[int]) -> bool:
        """``tokens`` are resident too; ``False`` if it was aborted, and none of them is."""
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        batch = self._api.llama_batch_get_one(array, len(tokens))
        self._check(status := self._api.llama_decode(self._context, batch))
        if status == _ABORTED:
            # A part of the batch may be in the memory.
            self._forget(len(self._resident))
            return False
        self._resident += tokens
        return True

    def _generate(self, chain: Any, turn: Turn) -> StopReason:
        """Tokens, one at a time, until one ends the turn. Nothing is allocated for a token."""
        api, context, resident = self._api, self._context, self._resident
        sample, decode, piece = api.llama_sampler_sample, api.llama_decode, self._vocabulary.piece
        feed, cancelled = turn.feed, turn.cancellation.is_set
        last = (ctypes.c_int32 * 1)()
        batch = api.llama_batch_get_one(last, 1)
        while not cancelled():
            token = sample(chain, context, -1)
            data = piece(token)
            if data is None:
                return "stop"
            if (reason := feed(data)) is not None:
                return reason
            if len(resident) >= self._window:
                return "length"
            last[0] = token
            status = decode(context, batch)
            if status != 0:
                self._check(status)
                self._forget(len(resident))
                break
            resident.append(token)
        return "cancelled"

    def _check(self, status: int) -> None:
        if status not in (0, _ABORTED):
            raise RuntimeError(f"llama_decode failed with status {status}")
