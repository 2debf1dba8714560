"""What the supervisor tells of, to whoever speaks with the clients."""

from typing import Protocol

from modeld.daemon.contract import pipe
from modeld.daemon.contract.errors import ErrorBody, ErrorCode
from modeld.daemon.contract.exit import Ack, Cause, Exit


class Outcomes(Protocol):
    """What becomes of requests, as the slot decides it. ``who`` and ``turn`` are their ids."""

    def run(self, turn: str) -> pipe.RunTurn:
        """The turn begins now; the order for it."""

    def report(self, report: pipe.Report) -> None:
        """The worker said something of the running turn."""

    def loading(self, turn: str) -> None:
        """A worker was started for this request."""

    def load_failed(self, turn: str, error: ErrorBody) -> None:
        """Why the load for this request failed; its failure follows."""

    def loaded(self, turn: str, *, already: bool) -> None:
        """Answer a load."""

    def finish(self, turn: str) -> None:
        """Answer a turn that ended."""

    def fail(self, turn: str, cause: Cause, exit_: Exit | None, *, confirmed: bool) -> None:
        """Answer a request whose worker was ended."""

    def refuse(self, who: str, code: ErrorCode) -> None:
        """Answer that it cannot be done now."""

    def answer(self, who: str, ack: Ack) -> None:
        """Send an ack."""

    def settled(self, waiters: tuple[str, ...], turn: str | None, ack: Ack) -> None:
        """A worker's end is known: record it for ``turn``, tell the waiters."""

    def wait(self, who: str) -> None:
        """Put the request in the queue."""

    def offer(self) -> bool:
        """Feed the next waiting request; whether there was one."""

    def turn_away(self) -> None:
        """Refuse all that wait."""

    def quit(self) -> None:
        """The slot is empty for good."""
