"""The table of exit statuses leaves nothing out."""

import pytest

from modeld.cli import exits
from modeld.daemon.contract.errors import ErrorCode
from modeld.daemon.contract.exit import AckStatus


def test_every_error_code_has_a_status() -> None:
    assert set(exits.OF_ERROR) == set(ErrorCode)


def test_every_ack_status_has_a_status() -> None:
    assert set(exits.OF_ACK) == set(AckStatus)


def test_no_error_is_success() -> None:
    assert exits.DONE not in exits.OF_ERROR.values()


@pytest.mark.parametrize("status", list(AckStatus))
def test_only_kill_fails_on_an_empty_slot(status: AckStatus) -> None:
    expected = 3 if status is AckStatus.NOTHING_RESIDENT else exits.OF_ACK[status]
    assert exits.of_kill(status) == expected
