"""View models of a trace: a card per event, with blocks, and calls with their results."""

from dataclasses import dataclass
from itertools import groupby

from apps.dashboard.traces.bodies import Body
from apps.gym.traces.segments import Break, TokenFigures

Fact = tuple[str, str]
MOST_TOOLS = 8
"""Number of tools of a session up to which they are shown unfolded."""
_ROLES = frozenset({"system", "developer", "user", "assistant"})


@dataclass(frozen=True, slots=True)
class Output:
    """Output of a tool. `seq` is its own event; None if it came inside another event's items."""

    body: Body
    seq: int | None = None
    title: str = ""
    error: str = ""
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Image:
    """An image stored in the trace. `part` is its place, `address` a `data:` URL."""

    seq: int
    part: str
    kind: str
    size: int
    address: str


@dataclass(frozen=True, slots=True)
class Block:
    """One item or part: `text`, `reasoning`, `call`, `output`, `json`, `image` or `fold` (JSON behind a title)."""

    kind: str
    title: str
    body: Body
    mark: str = ""
    result: Output | None = None
    image: Image | None = None

    @property
    def role(self) -> str:
        """Return the role of the author, if it is a known one."""
        return self.title if self.title in _ROLES else ""


@dataclass(frozen=True, slots=True)
class Flag:
    """A warning. `tone` is `bad` or `warn`."""

    name: str
    tone: str = "warn"


@dataclass(frozen=True, slots=True)
class Card:
    """One event. `kind` is the event's tag, as stored."""

    seq: int
    kind: str
    title: str
    blocks: tuple[Block, ...] = ()
    facts: tuple[Fact, ...] = ()
    at: float = 0.0
    duration: float = 0.0
    reward: float | None = None
    components: tuple[tuple[str, float], ...] = ()
    flags: tuple[Flag, ...] = ()
    tokens: int = 0

    @property
    def last_seq(self) -> int:
        """Return the number of the last event in the card: its own, or that of a result in it."""
        return max([self.seq, *(block.result.seq or 0 for block in self.blocks if block.result)])

    @property
    def groups(self) -> list[tuple[Block, ...]]:
        """Return blocks in groups: calls of one turn are shown side by side, other blocks alone."""
        groups: list[tuple[Block, ...]] = []
        for is_call, blocks in groupby(self.blocks, key=lambda block: block.kind == "call"):
            run = tuple(blocks)
            groups += [run] if is_call else [(block,) for block in run]
        return groups

    @property
    def listed(self) -> tuple[Block, ...]:
        """Return the tools of a session if there are so many that they are folded, else nothing."""
        return self.blocks if self.kind == "session" and len(self.blocks) > MOST_TOOLS else ()

    @property
    def is_trouble(self) -> bool:
        return any(flag.tone == "bad" for flag in self.flags)

    @property
    def is_opening(self) -> bool:
        return self.kind in {"session", "prompt"}


@dataclass(frozen=True, slots=True)
class Capture:
    """Result of the prefix check of the captured tokens. `seqs` are the events of the model calls, by their number."""

    figures: TokenFigures
    seqs: dict[int, int]

    @property
    def first_break(self) -> Break | None:
        return self.figures.breaks[0] if self.figures.breaks else None

    @property
    def first_break_seq(self) -> int | None:
        return self.seqs[self.first_break.call] if self.first_break else None

    @property
    def more_breaks(self) -> int:
        return max(0, len(self.figures.breaks) - 1)


@dataclass(frozen=True, slots=True)
class Trace:
    """`last_seq` is the number of the last event; -1 without events."""

    cards: tuple[Card, ...]
    last_seq: int = -1

    @property
    def opening(self) -> tuple[Card, ...]:
        """Return the cards of session and prompt."""
        return tuple(card for card in self.cards if card.kind == "prompt")

    @property
    def attempt(self) -> tuple[Card, ...]:
        """Return the cards of the attempt itself and its verification."""
        return tuple(card for card in self.cards if not card.is_opening)
