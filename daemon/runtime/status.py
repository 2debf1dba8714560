"""What ``ps`` shows, read from the parts of the daemon without changing or waiting for any."""

import os
import time

import psutil

from modeld.daemon.contract import status as show
from modeld.daemon.contract.version import PROTOCOL, VERSION
from modeld.daemon.runtime.book import Book
from modeld.daemon.runtime.config import Settings
from modeld.daemon.runtime.supervisor import Supervisor
from modeld.daemon.runtime.timers import Timers


class StatusView:
    """Reads the daemon's state into one message. Never counts as use."""

    def __init__(
        self,
        *,
        owner: str,
        supervisor: Supervisor,
        book: Book,
        settings: Settings,
        timers: Timers,
    ) -> None:
        self._owner = owner
        self._supervisor = supervisor
        self._book = book
        self._settings = settings
        self._timers = timers
        self._start_time = psutil.Process().create_time()
        self.lost_owner = False

    def read(self, id_: str) -> show.Status:
        """The status, as the reply to request ``id_``."""
        supervisor, slot = self._supervisor, self._supervisor.slot
        worker = supervisor.worker
        return show.Status(
            id=id_,
            owner=self._owner,
            daemon=show.DaemonInfo(
                pid=os.getpid(),
                start_time=self._start_time,
                version=VERSION,
                protocol=PROTOCOL,
                uptime_s=round(time.time() - self._start_time, 3),
            ),
            state="LostOwner" if self.lost_owner else slot.name,
            generation=slot.generation,
            busy_operation=slot.busy_operation,
            last_error=supervisor.last_error,
            backend=None if worker is None else worker.plan.backend,
            active=self._active(),
            inflight=self._inflight(),
            queue=self._queue(),
            memory=self._memory(),
            policy_generation=0,
            idle=self._idle(),
            last_exit=supervisor.last_exit,
        )

    def _active(self) -> show.Active | None:
        resident, worker = self._supervisor.slot.resident, self._supervisor.worker
        if resident is None or worker is None or worker.id.allocation_id is None:
            return None
        plan = worker.plan
        return show.Active(
            model=plan.model,
            backend=plan.backend,
            digest=plan.digest,
            path=plan.path,
            config=worker.config or plan.config,
            adapters=tuple({"path": a.path, "scale": a.scale} for a in plan.adapters),
            generation=self._supervisor.slot.generation,
            explicit=resident.explicit,
            pinned=resident.pinned,
            allocation_id=worker.id.allocation_id,
            degraded=worker.degraded,
            worker=show.WorkerInfo(
                pid=worker.id.pid,
                start_time=worker.id.start_time,
                rss_bytes=worker.process.rss_bytes(),
            ),
        )

    def _inflight(self) -> tuple[show.Inflight, ...]:
        now = self._timers.clock()
        rows = []
        for inference in self._book.inferences.live.values():
            if inference.id in self._book.queue:
                continue
            decoded_s = None if inference.decode_since is None else now - inference.decode_since
            rows.append(
                show.Inflight(
                    id=inference.id,
                    kind=inference.kind,
                    model=inference.model,
                    phase=inference.phase,
                    client_pid=inference.client_pid,
                    age_s=round(now - inference.since, 3),
                    tokens=inference.tokens,
                    tokens_per_s=round(inference.tokens / decoded_s, 1) if decoded_s else None,
                )
            )
        return tuple(rows)

    def _queue(self) -> tuple[show.Waiting, ...]:
        now = self._timers.clock()
        return tuple(
            show.Waiting(
                id=entry.who,
                position=position,
                client_pid=self._book.calls[entry.who].conversation.client_pid,
                age_s=round(now - entry.since, 3),
            )
            for position, entry in enumerate(self._book.queue.entries(), start=1)
        )

    def _memory(self) -> show.Memory:
        accounts = self._supervisor.accounts
        verdict = accounts.weigh(0)
        return show.Memory(
            total=accounts.measure().total,
            free=verdict.free,
            reserve=verdict.reserve,
            usable=verdict.usable,
            charged=verdict.charged,
        )

    def _idle(self) -> show.Idle:
        own = self._supervisor.slot.resident
        idle_for = self._supervisor.idle_for_s()
        return show.Idle(
            ttl_s=self._supervisor.ttl_s,
            source="flag" if own and own.ttl_s is not None else self._settings.idle_ttl_source,
            idle_for_s=None if idle_for is None else round(idle_for, 3),
            reap_in_s=None if idle_for is None else self._timers.remaining_s("slot"),
        )
