"""``modeld ps``: what the slot holds and does, and how the last worker ended."""

import os

import click

from modeld.cli import render, session
from modeld.cli.app import Command
from modeld.cli.client import new_id
from modeld.cli.settings import Settings
from modeld.daemon.contract import wire
from modeld.daemon.contract.exit import Ack
from modeld.daemon.contract.status import Active, Idle, Inflight, Memory, Status, Waiting

WIDTH = 80


@click.command("ps", cls=Command)
@click.pass_obj
def command(settings: Settings, /) -> None:
    """Show the slot, its worker, the queue, memory and the last exit. Never counts as use."""

    def make(owner: str) -> wire.GetStatus:
        return wire.GetStatus(id=new_id(), owner=owner, client_pid=os.getpid())

    status = session.ask(settings, make)
    assert isinstance(status, Status)
    if settings.json:
        render.json_line(render.without_envelope(status))
        return
    render.lines(_clip(text) for text in _rows(status))


def _rows(status: Status) -> list[str]:
    """Label and value, one a row; what is absent has no row."""
    busy = f" ({status.busy_operation})" if status.busy_operation else ""
    rows = [("state", f"{status.state}{busy}, generation {status.generation}")]
    if status.active is not None:
        rows += _of_active(status.active)
    rows += [("running", _of_inflight(one)) for one in status.inflight]
    rows += [("queued", _of_waiting(one)) for one in status.queue]
    if status.active is not None:
        rows.append(("idle", _of_idle(status.idle, pinned=status.active.pinned)))
    rows.append(("memory", _of_memory(status.memory)))
    if status.last_error:
        rows.append(("error", status.last_error))
    if status.last_exit is not None:
        rows.append(("last exit", _of_exit(status.last_exit)))
    daemon = status.daemon
    up = render.duration(daemon.uptime_s)
    rows.append(("daemon", f"pid {daemon.pid}, up {up}, modeld {daemon.version}"))
    return [f"{label:<10} {value}" for label, value in rows]


def _of_active(active: Active) -> list[tuple[str, str]]:
    config = active.config
    traits = ["explicit" if active.explicit else "implicit"]
    if active.pinned:
        traits.append("pinned")
    if active.degraded:
        traits.append(f"degraded ({'; '.join(active.degraded)})")
    return [
        ("model", f"{active.model} ({active.backend}), {', '.join(traits)}"),
        (
            "config",
            (
                f"ctx {config.ctx}, batch {config.batch}, threads {config.threads}, "
                f"gpu-layers {config.gpu_layers}, kv {config.kv_type}"
            ),
        ),
        ("worker", f"pid {active.worker.pid}, {render.size(active.worker.rss_bytes)} resident"),
    ]


def _of_inflight(one: Inflight) -> str:
    speed = "" if one.tokens_per_s is None else f" ({one.tokens_per_s:.1f}/s)"
    tokens = f", {one.tokens} tokens{speed}" if one.tokens else ""
    return (
        f"{one.id}: {one.kind}, {one.phase}{tokens}, {render.duration(one.age_s)}, "
        f"client {one.client_pid}"
    )


def _of_waiting(one: Waiting) -> str:
    age = render.duration(one.age_s)
    return f"{one.position}. {one.id}, {age}, client {one.client_pid}"


def _of_idle(idle: Idle, *, pinned: bool) -> str:
    since = "in use" if idle.idle_for_s is None else f"for {render.duration(idle.idle_for_s)}"
    if pinned or not idle.ttl_s:
        return f"{since}; never reaped ({'pinned' if pinned else f'ttl off, {idle.source}'})"
    ttl = f"ttl {render.duration(idle.ttl_s)}, {idle.source}"
    if idle.reap_in_s is None:
        return f"{since} ({ttl})"
    return f"{since}; reaped in {render.duration(max(idle.reap_in_s, 0.0))} ({ttl})"


def _of_exit(ack: Ack) -> str:
    if ack.worker is None:
        return f"{ack.cause}: {render.ack_text(ack)}"
    model = f" of {ack.model}" if ack.model else ""
    return f"{ack.cause}: worker {ack.worker.pid}{model} {render.exit_words(ack.exit)}"


def _of_memory(memory: Memory) -> str:
    return (
        f"{render.size(memory.charged)} charged; {render.size(memory.free)} free "
        f"of {render.size(memory.total)}, {render.size(memory.usable)} usable"
    )


def _clip(text: str) -> str:
    shown = render.plain(text)
    return shown if len(shown) <= WIDTH else f"{shown[: WIDTH - 1]}…"
