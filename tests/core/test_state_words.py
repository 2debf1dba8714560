"""What ``ps`` calls the slot's state, and what it is busy with."""

import pytest

from modeld.daemon.contract.exit import Cause
from modeld.daemon.contract.model import Config, Plan
from modeld.daemon.contract.version import PROTOCOL, VERSION
from modeld.daemon.core.events import Wanted
from modeld.daemon.core.state import Phase, Rest, Slot, Stopping

CONFIG = Config(ctx=512, gpu_layers=0, threads=1, batch=64, kv_type="f16", flash_attn=False)
WANTED = Wanted(
    "t", Plan(model="a", backend="echo", path="/a", file_id="a", config=CONFIG), runs=True
)
NEXT = Wanted(
    "n", Plan(model="b", backend="echo", path="/b", file_id="b", config=CONFIG), runs=True
)
REAPED = Stopping(Cause.REAP, 1)


@pytest.mark.parametrize(
    ("slot", "name", "busy"),
    [
        (Slot(), "Empty", None),
        (Slot(rest=Rest.IDLE), "Idle", None),
        (Slot(rest=Rest.FAILED), "Failed", None),
        (Slot(phase=Phase.LOADING), "Loading", "load"),
        (Slot(phase=Phase.READY), "Ready", None),
        (Slot(phase=Phase.BUSY), "Busy", "decode"),
        (Slot(phase=Phase.STOPPING, stopping=REAPED), "Unloading", "reap"),
        (Slot(phase=Phase.STOPPING), "Unloading", None),
        (Slot(phase=Phase.STOPPING, stopping=REAPED, switching=True), "Switching", "switch"),
        (Slot(phase=Phase.LOADING, switching=True), "Switching", "switch"),
        (Slot(phase=Phase.UNCONFIRMED, stopping=REAPED, closing=True), "Unconfirmed", "reap"),
        (Slot(phase=Phase.BUSY, closing=True), "ShuttingDown", "decode"),
        (Slot(closing=True), "ShuttingDown", None),
    ],
)
def test_a_state_has_its_word(slot: Slot, name: str, busy: str | None) -> None:
    assert (slot.name, slot.busy_operation) == (name, busy)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_resident_is_only_what_is_loaded_and_not_on_its_way_out(phase: Phase) -> None:
    slot = Slot(phase=phase, wanted=WANTED)
    assert slot.resident == (WANTED if phase in {Phase.READY, Phase.BUSY} else None)


@pytest.mark.parametrize("phase", list(Phase))
def test_in_view_is_the_next_else_what_is_coming_or_there(phase: Phase) -> None:
    there = phase in {Phase.LOADING, Phase.READY, Phase.BUSY}
    assert Slot(phase=phase, wanted=WANTED).in_view == (WANTED if there else None)
    assert Slot(phase=phase, wanted=WANTED, upcoming=NEXT).in_view == NEXT


def test_the_protocol_is_a_number_of_its_own() -> None:
    """W2."""
    assert isinstance(PROTOCOL, int)
    assert all(part.isdigit() for part in VERSION.split("."))
