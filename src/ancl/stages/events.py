"""What happens while stages are computed, for whoever wants to know."""

from typing import Any


class Events:
    """Receives what happens while stages are computed. Silent: subclasses show it."""

    def say(self, message: str) -> None:
        """Something a user must know."""

    def note(self, message: str) -> None:
        """News that may be left out."""

    def work_begins(self, graph: Any, store: Any, workers: int) -> None:
        """A graph of stages is about to be computed."""
