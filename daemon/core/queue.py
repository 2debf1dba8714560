"""The turns that wait for the slot, first come, first served."""

from dataclasses import dataclass

from modeld.daemon.contract.errors import ErrorCode, ModeldError


@dataclass(frozen=True, slots=True)
class Entry:
    """One waiting request, by the id it is known as, and since when it waits (seconds)."""

    who: str
    since: float


class Queue:
    """A bounded line. Entries leave by their turn, or when their client is gone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, who: str) -> bool:
        return who in self._line

    def push(self, who: str, since: float) -> None:
        """``who`` is last in line. Raises ModeldError(active_limit_reached) if the line is full."""
        if len(self._line) >= self._limit:
            raise ModeldError(
                ErrorCode.ACTIVE_LIMIT_REACHED,
                f"{len(self._line)} turns wait already, as many as the queue holds",
                limit=self._limit,
                recovery="try again later, or raise queue.limit",
            )
        self._line[who] = Entry(who, since)

    def pop(self) -> Entry | None:
        """The first in line, which leaves it; ``None`` if nobody waits."""
        for who in self._line:
            return self._line.pop(who)
        return None

    def remove(self, who: str) -> Entry | None:
        """``who`` leaves the line without having had a turn; ``None`` if it was not in it."""
        return self._line.pop(who, None)

    def entries(self) -> tuple[Entry, ...]:
        """All that wait, the next one first."""
        return tuple(self._line.values())
