"""Whether a model fits into memory, by arithmetic alone; all numbers are bytes.

usable = (min(free - reserve, cap - charged)) x (1 - headroom), never below 0.
"""

from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Limits:
    """What an owner allows. ``cap`` ``None`` is 80 % of what is free now, whatever is charged.

    ``reserve`` ``None`` is the emergency reserve: the larger of 2 GiB and 10 % of all memory.
    """

    cap: int | None = None
    reserve: int | None = None
    headroom: float = 0.1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, with the numbers that it follows from."""

    required: int
    free: int
    reserve: int
    cap: int
    charged: int
    usable: int

    @property
    def fits(self) -> bool:
        """Whether the required bytes may be used."""
        return self.required <= self.usable


def admit(required: int, *, total: int, free: int, charged: int, limits: Limits) -> Verdict:
    """Weigh ``required`` against what may be used.

    ``free`` and ``charged`` are given with the credit for a resident that would make room.
    """
    reserve = limits.reserve
    if reserve is None:
        reserve = max(2 * GIB, total // 10)
    cap = charged + free * 8 // 10 if limits.cap is None else limits.cap
    room = max(0, min(free - reserve, cap - charged))
    usable = int(room * (1 - limits.headroom))
    return Verdict(required, free, reserve, cap, charged, usable)
