"""The inferences of this daemon instance: which ids are live, and how the finished ones ended.

An id is unique among the live ones; a forgotten id is as unknown as one that never was
(requirements A24, A25). Times are seconds of a monotonic clock.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.contract.exit import Ack

FINISHED_LIMIT = 256
FINISHED_KEPT_S = 300.0

Phase = Literal["queued", "loading", "prefill", "decode", "stopping"]


@dataclass(slots=True)
class Inference:
    """One live inference: a turn, or a load, which is one as far as ``kill`` is concerned."""

    id: str
    kind: str
    model: str
    client_pid: int
    since: float
    phase: Phase = "queued"
    tokens: int = 0
    decode_since: float | None = None
    done: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """How an inference ended; ``ack`` is there if its worker was ended for it."""

    id: str
    at: float
    ack: Ack | None


@dataclass(slots=True)
class Inferences:
    """All ids that mean something now."""

    limit: int
    live: dict[str, Inference] = field(default_factory=dict)
    _finished: OrderedDict[str, Finished] = field(default_factory=OrderedDict)

    def open(self, inference: Inference) -> None:
        """The id is live from here on.

        Raises ModeldError(duplicate_inference_id) if it is live already, and
        ModeldError(active_limit_reached) if as many as may be are live.
        """
        if inference.id in self.live:
            raise ModeldError(
                ErrorCode.DUPLICATE_INFERENCE_ID,
                f"the inference id {inference.id} is taken",
                inference_id=inference.id,
                recovery="give another --id, or none",
            )
        if len(self.live) >= self.limit:
            raise ModeldError(
                ErrorCode.ACTIVE_LIMIT_REACHED,
                f"{len(self.live)} inferences are live already, as many as may be",
                limit=self.limit,
                recovery="try again later, or raise queue.limit",
            )
        self._finished.pop(inference.id, None)
        self.live[inference.id] = inference

    def close(self, id_: str, at: float, ack: Ack | None = None) -> None:
        """The id has ended; how is remembered for a while."""
        if self.live.pop(id_, None) is None:
            return
        self._finished[id_] = Finished(id_, at, ack)
        while len(self._finished) > FINISHED_LIMIT:
            self._finished.popitem(last=False)

    def upgrade(self, id_: str, ack: Ack) -> None:
        """An exit seen late completes the record of an inference that ended unconfirmed."""
        if id_ in self._finished:
            self._finished[id_] = Finished(id_, self._finished[id_].at, ack)

    def finished(self, id_: str, now: float) -> Finished | None:
        """How the inference ended, if that is still remembered."""
        self._forget(now)
        return self._finished.get(id_)

    def _forget(self, now: float) -> None:
        while self._finished:
            oldest = next(iter(self._finished.values()))
            if now - oldest.at < FINISHED_KEPT_S:
                return
            self._finished.popitem(last=False)
