"""View models of a trace: one card per event, made of blocks. Calls include their results."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from apps.dashboard.traces.bodies import Body
from apps.gym.traces.segments import Break, TokenFigures
from apps.tasks.stored_images import read_url

Fact = tuple[str, str]
MOST_TOOLS = 8
"""Sessions with more tools show them folded."""
_ROLES = frozenset({"system", "developer", "user", "assistant"})


@dataclass(frozen=True, slots=True)
class Output:
    """A tool output. `seq` is its own event, or None if it is an item of another event."""

    body: Body
    images: "tuple[Image, ...]" = ()
    seq: int | None = None
    title: str = ""
    error: str = ""
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a trace. `part` locates it in the event.

    `address` is a `data:` URL, or a reference to a stored image with this `sha256`.
    """

    seq: int
    part: str
    kind: str
    size: int
    address: str
    sha256: str = ""

    @property
    def embedded(self) -> str:
        """Return the image as a data URL, for pages without a server."""
        return read_url(self.sha256) if self.sha256 else self.address


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a card.

    `text`, `reasoning`, `call`, `output`, `json`, `image` or `fold` (collapsed, with a title). `is_input` is True for
    items of a captured request. `author` says who wrote a turn of the model in it.
    """

    kind: str
    title: str
    body: Body
    mark: str = ""
    result: Output | None = None
    image: Image | None = None
    is_input: bool = False
    author: str = ""

    @property
    def role(self) -> str:
        """Return the role of the author, or an empty string if it is unknown."""
        return self.title if self.title in _ROLES else ""


@dataclass(frozen=True, slots=True)
class Flag:
    """A warning. `tone` is `bad` or `warn`."""

    name: str
    tone: str = "warn"


@dataclass(frozen=True, slots=True)
class Lane:
    """A lineage of captured calls besides the main one. `seq` is the event of its first call."""

    number: int
    label: str
    seq: int
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class CardLink:
    """A link to the card of another event, for example "started by" 2."""

    label: str
    seq: int


@dataclass(frozen=True, slots=True)
class Card:
    """A card: one event of the trace. `kind` is the stored kind of the event."""

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
    is_captured: bool = False
    lane: Lane | None = None
    mark: str = ""
    links: tuple[CardLink, ...] = ()

    @property
    def last_seq(self) -> int:
        """Return the highest event number in the card: its own, or that of a result."""
        return max([self.seq, *(block.result.seq or 0 for block in self.blocks if block.result)])

    @property
    def groups(self) -> list[tuple[Block, ...]]:
        """Return the blocks in groups: the calls of a turn form one group, every other block its own."""
        groups: list[tuple[Block, ...]] = []
        for is_call, blocks in groupby(self.blocks, key=lambda block: block.kind == "call"):
            run = tuple(blocks)
            groups += [run] if is_call else [(block,) for block in run]
        return groups

    @property
    def listed(self) -> tuple[Block, ...]:
        """Return the tools of a session if they are folded, else an empty list."""
        return self.blocks if self.kind == "session" and len(self.blocks) > MOST_TOOLS else ()

    @property
    def has_problem(self) -> bool:
        return any(flag.tone == "bad" for flag in self.flags)

    @property
    def is_opening(self) -> bool:
        return self.kind in {"session", "prompt"}


@dataclass(frozen=True, slots=True)
class LaneRun:
    """Consecutive cards of one lane; None is the main lane."""

    lane: Lane | None
    cards: tuple[Card, ...]


def group_lanes(cards: Iterable[Card]) -> list[LaneRun]:
    return [LaneRun(lane, tuple(run)) for lane, run in groupby(cards, key=lambda card: card.lane)]


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
    """All cards of a trace. `last_seq` is the number of the last event, or -1 if there are none."""

    cards: tuple[Card, ...]
    last_seq: int = -1

    @property
    def opening(self) -> tuple[Card, ...]:
        """Return the cards of the session and the prompt."""
        return tuple(card for card in self.cards if card.kind == "prompt")

    @property
    def attempt(self) -> tuple[Card, ...]:
        """Return the remaining cards: the attempt and its verification."""
        return tuple(card for card in self.cards if not card.is_opening)
