"""What a backend promises to the worker's loop, with what the loop promises to a backend."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from modeld.daemon.contract.model import Config, Plan
from modeld.daemon.contract.task import Task
from modeld.daemon.contract.wire import StopReason
from modeld.daemon.worker.backends.cancellation import Cancellation


class Loaded(NamedTuple):
    """A model in memory: what was really used, never what was asked for."""

    config: Config
    engine: str
    degraded: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """How a turn ended. ``prompt_tokens`` is ``None`` if the backend cannot count."""

    stop_reason: StopReason
    prompt_tokens: int | None
    reused_tokens: int = 0
    template: str | None = None
    truncated_tokens: int = 0


class Turn(Protocol):
    """One turn as a backend sees it: what is wanted, and where the tokens go."""

    @property
    def name(self) -> str:
        """The turn's id."""
        ...

    @property
    def task(self) -> Task:
        """What is asked."""
        ...

    @property
    def seed(self) -> int:
        """The seed, always concrete."""
        ...

    @property
    def exact(self) -> bool:
        """The text must not depend on what ran before."""
        ...

    @property
    def cancellation(self) -> Cancellation:
        """The backend looks at it between tokens, and ends with ``cancelled``."""
        ...

    def prefilled(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` prompt tokens are in the context."""
        ...

    def decoding(self) -> None:
        """Mark the end of prefill."""
        ...

    def feed(self, token: bytes) -> StopReason | None:
        """Take one token's bytes; a reason means that the turn is over."""
        ...


class Backend(Protocol):
    """One way to run a model. All calls come from one thread, ``load`` first and ``close`` last.

    A ModeldError is a refusal after which the backend is as it was; anything else that is raised
    means that its state is not known any more, and the worker ends.
    """

    def load(
        self,
        plan: Plan,
        *,
        safe_mode: bool,
        cancellation: Cancellation,
        progress: Callable[[float], None],
    ) -> Loaded:
        """The model is in memory when it returns; a cancelled load raises LoadCancelled."""
        ...

    def warm_up(self) -> None:
        """Every native path of a turn has run once when it returns, and left no trace."""
        ...

    def run(self, turn: Turn) -> Outcome:
        """The turn is over, for whatever reason, and the backend is ready for the next one."""
        ...

    def close(self) -> None:
        """Everything native is freed; harmless after a load that failed, and twice."""
        ...


class LoadCancelled(Exception):  # noqa: N818 (a wish, not an error)
    """A load ended because it was cancelled; nobody wants to hear of it."""
