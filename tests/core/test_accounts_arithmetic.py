"""What is charged, and whether a model fits: the numbers of requirements E7, E8 and E13."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.daemon.core.admission import GIB, Limits, admit
from modeld.daemon.core.ledger import Ledger

MIB = 1024**2
FREE_OF_LIMITS = Limits(cap=2**60, reserve=0, headroom=0.0)


def usable(*, free: int, limits: Limits, total: int = 64 * GIB, charged: int = 0) -> int:
    return admit(0, total=total, free=free, charged=charged, limits=limits).usable


def test_headroom_is_a_tenth_by_default() -> None:
    """E7: 512 MiB free leave a budget of int(512 Mi x 0.9)."""
    assert usable(free=512 * MIB, limits=Limits(cap=2**60, reserve=0)) == int(512 * MIB * 0.9)


def test_the_cap_is_four_fifths_of_what_is_free_now() -> None:
    limits = Limits(reserve=0, headroom=0.0)
    assert usable(free=10 * GIB, limits=limits) == 8 * GIB
    assert usable(free=20 * GIB, limits=limits) == 16 * GIB


def test_the_default_cap_is_no_smaller_for_what_is_charged_already() -> None:
    limits = Limits(reserve=0, headroom=0.0)
    assert usable(free=10 * GIB, charged=5 * GIB, limits=limits) == 8 * GIB


def test_an_explicit_cap_counts_what_is_charged() -> None:
    limits = Limits(cap=6 * GIB, reserve=0, headroom=0.0)
    assert usable(free=50 * GIB, limits=limits) == 6 * GIB
    assert usable(free=50 * GIB, charged=5 * GIB, limits=limits) == GIB
    assert usable(free=50 * GIB, charged=7 * GIB, limits=limits) == 0


def test_a_cap_of_nothing_admits_nothing() -> None:
    verdict = admit(1, total=GIB, free=GIB, charged=0, limits=Limits(cap=0, reserve=0))
    assert (verdict.usable, verdict.fits) == (0, False)


@pytest.mark.parametrize(
    ("total", "reserve"), [(8 * GIB, 2 * GIB), (20 * GIB, 2 * GIB), (100 * GIB, 10 * GIB)]
)
def test_the_reserve_is_two_gib_or_a_tenth(total: int, reserve: int) -> None:
    """A9."""
    verdict = admit(0, total=total, free=total, charged=0, limits=Limits(cap=2**60, headroom=0.0))
    assert verdict.reserve == reserve
    assert verdict.usable == total - reserve


def test_an_explicit_reserve_wins() -> None:
    assert usable(free=3 * GIB, limits=Limits(cap=2**60, reserve=GIB, headroom=0.0)) == 2 * GIB


def test_less_free_than_reserved_is_nothing_and_not_less() -> None:
    assert usable(free=GIB, limits=Limits()) == 0


def test_what_is_required_may_be_all_that_is_usable_and_no_byte_more() -> None:
    assert admit(GIB, total=GIB, free=GIB, charged=0, limits=FREE_OF_LIMITS).fits
    assert not admit(GIB + 1, total=GIB, free=GIB, charged=0, limits=FREE_OF_LIMITS).fits


def test_a_refusal_has_the_numbers_that_it_follows_from() -> None:
    verdict = admit(5 * GIB, total=40 * GIB, free=6 * GIB, charged=GIB, limits=Limits())
    assert (verdict.required, verdict.free, verdict.charged) == (5 * GIB, 6 * GIB, GIB)
    assert verdict.reserve == 4 * GIB
    assert verdict.cap == GIB + 6 * GIB * 8 // 10
    assert verdict.usable == int(2 * GIB * 0.9)


SIZES = st.integers(0, 2**44)


@given(SIZES, SIZES, SIZES, SIZES, st.none() | SIZES, st.none() | SIZES)
def test_the_budget_is_never_negative_nor_more_than_is_free(
    required: int, total: int, free: int, charged: int, cap: int | None, reserve: int | None
) -> None:
    verdict = admit(
        required, total=total, free=free, charged=charged, limits=Limits(cap=cap, reserve=reserve)
    )
    assert 0 <= verdict.usable <= free
    assert verdict.fits == (required <= verdict.usable)


def test_what_was_charged_stays_until_it_is_retired() -> None:
    ledger = Ledger()
    ledger.charge(1, 10)
    ledger.charge(2, 5)
    assert ledger.charged == 15
    ledger.retire(1)
    assert ledger.charged == 5
    ledger.retire(2)
    assert ledger.charged == 0


def test_nothing_is_charged_or_retired_twice() -> None:
    ledger = Ledger()
    ledger.charge(1, 10)
    with pytest.raises(AssertionError):
        ledger.charge(1, 10)
    ledger.retire(1)
    with pytest.raises(KeyError):
        ledger.retire(1)
