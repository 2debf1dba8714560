"""The ledger beside this machine's memory: what is charged, and what may still be."""

from modeld.daemon.core.admission import Limits, Verdict, admit
from modeld.daemon.core.ledger import Ledger
from modeld.daemon.runtime.memory import Measured, Probe


class Accounts:
    """Weighs what a load requires, in bytes, against what is free at that moment."""

    def __init__(self, probe: Probe, limits: Limits) -> None:
        self.ledger = Ledger()
        self._probe = probe
        self._limits = limits

    def measure(self) -> Measured:
        """This machine's memory now."""
        return self._probe()

    def weigh(self, required: int, *, credit: bool = False) -> Verdict:
        """Whether ``required`` fits now, or (``credit``) if the present worker made room."""
        measured = self._probe()
        charged = self.ledger.charged
        give_back = charged if credit else 0
        return admit(
            required,
            total=measured.total,
            free=measured.free + give_back,
            charged=charged - give_back,
            limits=self._limits,
        )
