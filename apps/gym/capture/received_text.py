"""Keep the text of a streamed reply that a client has received, in case the stream breaks."""

from itertools import groupby

from apps.gym.wires.chat_deltas import Delta, OnDelta

MAX_RECEIVED = 10_000
"""Characters of a broken reply that are kept."""


class ReceivedText:
    """Passes deltas on to `report` and keeps their text."""

    def __init__(self, report: OnDelta) -> None:
        self._report = report
        self._deltas: list[Delta] = []

    def add(self, delta: Delta) -> None:
        self._deltas.append(delta)
        self._report(delta)

    @property
    def text(self) -> str:
        """Return at most MAX_RECEIVED characters of the text. Reasoning, text and calls begin on new lines."""
        parts = groupby(self._deltas, lambda delta: (delta.kind, delta.number))
        return "\n".join("".join(delta.text for delta in run) for _, run in parts)[:MAX_RECEIVED]
