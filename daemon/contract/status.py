"""What ``ps`` shows, as it travels. All sizes are bytes, all times seconds."""

from typing import Any, Literal

import msgspec

from modeld.daemon.contract.exit import Ack
from modeld.daemon.contract.model import BackendName, Config


class DaemonInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon itself."""

    pid: int
    start_time: float
    version: str
    protocol: int
    uptime_s: float


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The worker process as the kernel shows it now."""

    pid: int
    start_time: float
    rss_bytes: int


class Active(msgspec.Struct, frozen=True, kw_only=True):
    """The resident model."""

    model: str
    backend: BackendName
    digest: str | None
    path: str
    config: Config
    adapters: tuple[dict[str, Any], ...]
    generation: int
    explicit: bool
    pinned: bool
    allocation_id: str
    degraded: tuple[str, ...]
    worker: WorkerInfo


class Inflight(msgspec.Struct, frozen=True, kw_only=True):
    """An inference or a load that the slot runs now."""

    id: str
    kind: str
    model: str
    phase: str
    client_pid: int
    age_s: float
    tokens: int
    tokens_per_s: float | None


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A turn in the queue; ``position`` counts from 1."""

    id: str
    position: int
    client_pid: int
    age_s: float


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes. ``charged`` is what the ledger holds for a worker that is not proven gone."""

    total: int
    free: int
    reserve: int
    usable: int
    charged: int


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """When the reaper comes.

    ``ttl_s`` 0 is off; the others are null with nothing resident and idle.
    """

    ttl_s: float
    source: Literal["flag", "env", "config", "default"]
    idle_for_s: float | None
    reap_in_s: float | None


class Status(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """What ``ps`` shows."""

    id: str
    owner: str
    daemon: DaemonInfo
    state: str
    generation: int
    busy_operation: str | None
    last_error: str | None
    backend: BackendName | None
    active: Active | None
    inflight: tuple[Inflight, ...]
    queue: tuple[Waiting, ...]
    memory: Memory
    policy_generation: int
    idle: Idle
    last_exit: Ack | None
