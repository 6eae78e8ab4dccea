"""The view models of a trace: a card an event, with blocks, and each call with its result."""

from dataclasses import dataclass
from itertools import groupby

from apps.dashboard.traces.bodies import Body
from apps.gym.traces.segments import Break, TokenFigures

Fact = tuple[str, str]
MOST_TOOLS = 8
"""Of a session, that stand in the open."""
_ROLES = frozenset({"system", "developer", "user", "assistant"})


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool gave back. `seq` is its own event; None when it came inside another event's items."""

    body: Body
    seq: int | None = None
    title: str = ""
    error: str = ""
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that is stored in the trace itself; `part` is where, `address` its own `data:` address."""

    seq: int
    part: str
    kind: str
    size: int
    address: str


@dataclass(frozen=True, slots=True)
class Block:
    """One item, or one part of it: `text`, `reasoning`, `call`, `output`, `json`, `image` or `fold` (JSON behind its
    title)."""

    kind: str
    title: str
    body: Body
    mark: str = ""
    result: Output | None = None
    image: Image | None = None

    @property
    def role(self) -> str:
        """Whose words they are, where that is one of the roles we know."""
        return self.title if self.title in _ROLES else ""


@dataclass(frozen=True, slots=True)
class Flag:
    """Something to look at; `tone` is `bad` or `warn`."""

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
    has_tokens: bool = False

    @property
    def last_seq(self) -> int:
        """The last event that it shows: its own, or that of a result that stands within it."""
        return max([self.seq, *(block.result.seq or 0 for block in self.blocks if block.result)])

    @property
    def groups(self) -> list[tuple[Block, ...]]:
        """Blocks that stand side by side: the calls of one turn; every other one by itself."""
        groups: list[tuple[Block, ...]] = []
        for is_call, blocks in groupby(self.blocks, key=lambda block: block.kind == "call"):
            run = tuple(blocks)
            groups += [run] if is_call else [(block,) for block in run]
        return groups

    @property
    def listed(self) -> tuple[Block, ...]:
        """The tools of a session that has more than the prompt below them should wait for: behind one fold."""
        return self.blocks if self.kind == "session" and len(self.blocks) > MOST_TOOLS else ()

    @property
    def is_trouble(self) -> bool:
        return any(flag.tone == "bad" for flag in self.flags)

    @property
    def is_opening(self) -> bool:
        return self.kind in {"session", "prompt"}


@dataclass(frozen=True, slots=True)
class Capture:
    """What the prefix check found in the captured tokens; `seqs` are the events of the model calls."""

    figures: TokenFigures
    seqs: tuple[int, ...]

    @property
    def first_break(self) -> Break | None:
        return self.figures.breaks[0] if self.figures.breaks else None

    @property
    def first_break_seq(self) -> int | None:
        return self.seqs[self.first_break.call - 1] if self.first_break else None

    @property
    def more_breaks(self) -> int:
        return max(0, len(self.figures.breaks) - 1)


@dataclass(frozen=True, slots=True)
class Trace:
    """`last_seq` is that of the last event, -1 without any."""

    cards: tuple[Card, ...]
    event_count: int
    last_seq: int = -1

    @property
    def opening(self) -> tuple[Card, ...]:
        """What the attempt started from."""
        return tuple(card for card in self.cards if card.kind == "prompt")

    @property
    def attempt(self) -> tuple[Card, ...]:
        """What the attempt itself did, and how it was judged."""
        return tuple(card for card in self.cards if not card.is_opening)
