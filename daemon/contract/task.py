"""What is asked of a model in one turn, the same on the wire and on the worker's pipe."""

from typing import Annotated, Literal

import msgspec

DEFAULT_MAX_TOKENS = 512


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation, as chat templates want it."""

    role: str
    content: str


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen. ``seed`` is absent on the wire if the user gave none."""

    temp: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.8
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.95
    top_k: Annotated[int, msgspec.Meta(ge=0)] = 40
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
    repeat_penalty: Annotated[float, msgspec.Meta(ge=0, le=100)] = 1.0
    seed: Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFE)] | None = None


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The text side of a turn: what goes in, how much may come out, where it stops.

    Exactly one of ``prompt`` (then ``raw`` says whether the chat template is left out) and
    ``messages`` is given; anything else is refused when it is decoded. ``truncate`` says which end
    of a prompt that does not fit may go.
    """

    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    system: str | None = None
    raw: bool = False
    sampling: Sampling = Sampling()
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = DEFAULT_MAX_TOKENS
    stop: tuple[str, ...] = ()
    truncate: Literal["head", "tail"] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError, which decoding reports, unless there is exactly one kind of input."""
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("a task needs either a prompt or messages")
