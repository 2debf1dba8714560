"""What is charged for workers that are not proven gone, in bytes."""


class Ledger:
    """One entry a worker, by its serial: made before the spawn, dropped after the exit (E13)."""

    def __init__(self) -> None:
        self._charges: dict[int, int] = {}

    @property
    def charged(self) -> int:
        """The sum of all entries."""
        return sum(self._charges.values())

    def charge(self, serial: int, required: int) -> None:
        """Enter ``required`` bytes for a worker that is about to be made."""
        assert serial not in self._charges
        self._charges[serial] = required

    def retire(self, serial: int) -> None:
        """Drop the worker's entry. Only its collected exit is a reason, or that it never was."""
        del self._charges[serial]
