"""What a model is to modeld: the choice a client makes, and the plan the daemon makes of it."""

from typing import Annotated, Literal

import msgspec

BackendName = Literal["llama", "mlx", "echo"]
KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """One LoRA adapter; ``path`` is absolute."""

    path: str
    scale: float = 1.0


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A client's words for a model. ``None`` leaves a field to the resident, then to the daemon.

    ``name`` is a model's name, or an absolute path. ``ctx`` and ``batch`` are in tokens.
    """

    name: str | None = None
    backend: BackendName | None = None
    ctx: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    gpu_layers: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    threads: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    batch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    kv_type: KvType | None = None
    flash_attn: bool | None = None
    adapters: tuple[Adapter, ...] | None = None
    chat_template: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is loaded, every value concrete. ``chat_template`` is a path or absent."""

    ctx: int
    gpu_layers: int
    threads: int
    batch: int
    kv_type: KvType
    flash_attn: bool
    chat_template: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A model, fully resolved by the daemon: nothing is left for the worker to choose.

    Two plans are the same model exactly if they are equal. ``file_id`` is the file's device, inode,
    size and modification time. :meth:`identity` leaves out ``required_bytes``, and ``notes``, which
    say what the daemon chose smaller than it might be.
    """

    model: str
    backend: BackendName
    path: str
    file_id: str
    config: Config
    adapters: tuple[Adapter, ...] = ()
    digest: str | None = None
    required_bytes: int = 0
    notes: tuple[str, ...] = ()

    def identity(self) -> tuple[object, ...]:
        """What must be equal for a resident to serve a request (requirements C1)."""
        return (self.backend, self.file_id, self.digest, self.config, self.adapters)
