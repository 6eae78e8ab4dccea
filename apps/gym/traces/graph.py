"""Read a trace as a graph of calls, and each path of it as a line.

A line is a linear trace: each call answers the whole conversation so far. Traces of the built-in loop are lines. Calls
captured from an external agent form a graph: every path from a root to a call can be converted to a line, as the
built-in loop would have written it. Verifiers and most exporters read only lines, and so does the code that makes
responses, messages and segments of a trace.

Other modules must not interpret the order of calls themselves.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from apps.gym.traces.authorship import Authors
from apps.gym.traces.call_records import Place
from apps.gym.traces.events import (
    AgentEnd,
    EnvironmentTurn,
    ModelCall,
    Prompt,
    RootReason,
    SessionOpened,
    ToolResult,
    TraceUnion,
)
from apps.gym.traces.graph_tokens import GraphTokens, leave_out_unusable
from apps.gym.traces.items import Item, Tool, ToolNames, is_by_model, item_type
from apps.gym.traces.main_path import MainPath, choose_path

Numbered = tuple[int, TraceUnion]
"""(seq, event). An event derived from the request of a call has the seq of that call."""

_LINE_CALL = ModelCall(seen=0, items=[])
_GRAPH_DEFAULTS = {
    name: getattr(_LINE_CALL, name) for name in (*Place.__struct_fields__, "served") if name != "tools_in"
}
"""Values of the graph fields of a call in a line."""


class Lineage(NamedTuple):
    """The calls that continue one conversation. `spawned_by`: the call whose tool call started it, 0 if unknown."""

    number: int
    calls: list[int]
    root_reason: RootReason
    spawned_by: int


class TraceGraph:
    """The calls of an attempt by number. In a line they are numbered from 1, in a graph as captured.

    `seqs` are the stored numbers of the events, by default their positions.
    """

    def __init__(self, events: Sequence[TraceUnion], seqs: Sequence[int] | None = None) -> None:
        self.events, unusable = leave_out_unusable(list(events))
        self.seqs = list(range(len(self.events)) if seqs is None else seqs)
        found = [
            (event, seq) for event, seq in zip(self.events, self.seqs, strict=True) if isinstance(event, ModelCall)
        ]
        self.is_line = not is_captured(self.events)
        if self.is_line:
            numbered = dict(enumerate(found, start=1))
        else:
            numbered = {one[0].call: one for one in sorted(found, key=lambda one: one[0].call) if one[0].call}
        self.calls: dict[int, ModelCall] = {number: event for number, (event, _) in numbered.items()}
        self.seq_of: dict[int, int] = {number: seq for number, (_, seq) in numbered.items()}
        notes = {self.seqs[place]: note for place, note in unusable.items()}
        self.left_out = {call: notes[seq] for call, seq in self.seq_of.items() if seq in notes}
        """Why calls have no tokens although some are stored."""
        self._tokens = GraphTokens(self.calls, self.parent)

    def parent(self, call: int) -> int:
        """Return the number of the parent; 0 for a root, or if the parent is missing."""
        parent = call - 1 if self.is_line else self.calls[call].parent
        return parent if parent in self.calls and parent < call else 0

    def path(self, call: int) -> list[int]:
        """Return the numbers of the calls from the root to this call."""
        found = [call]
        while parent := self.parent(found[-1]):
            found.append(parent)
        return found[::-1]

    @cached_property
    def effective_calls(self) -> frozenset[int]:
        """Return the calls that count: those whose reply the client received, as far as known.

        If other calls continue a call, the client received its reply.
        """
        continued = {self.parent(call) for call in self.calls}
        unserved = {call for event in self.events if isinstance(event, AgentEnd) for call in event.unserved}
        return frozenset(
            call for call, event in self.calls.items() if call in continued or (event.served and call not in unserved)
        )

    @cached_property
    def leaves(self) -> list[int]:
        """Return the effective calls that no effective call continues, in order."""
        continued = {self.parent(call) for call in self.effective_calls}
        return sorted(self.effective_calls - continued)

    @cached_property
    def lineages(self) -> list[Lineage]:
        numbers: dict[int, list[int]] = defaultdict(list)
        for call, event in self.calls.items():
            numbers[event.lineage or 1].append(call)
        return [
            Lineage(number, calls, self.reason_of(calls[0]), self.calls[calls[0]].spawned_by)
            for number, calls in sorted(numbers.items())
        ]

    @cached_property
    def main_path(self) -> MainPath:
        """Return the last call of the main path, and why it was chosen."""
        return choose_path(self)

    @property
    def main_leaf(self) -> int:
        """Return the last call of the main path; 0 without calls."""
        return self.main_path.leaf

    def ended_at(self, call: int) -> tuple[float, int]:
        """Return a key that sorts calls by the time when they completed."""
        return self.calls[call].at + self.calls[call].duration, call

    def is_aside(self, call: int) -> bool:
        """Return True for an auxiliary conversation, and for a subagent that a tool call, a thread or the client names.

        The first call of a lineage decides for all of them, also after its history was rewritten.
        """
        origin = self._origin(call)
        if self.reason_of(origin.call) == "auxiliary" or origin.declared in ("auxiliary", "subagent"):
            return True
        first = next(iter(self.calls.values()))
        other_thread = bool(origin.thread and first.thread and origin.thread != first.thread and not origin.declared)
        return origin.root_reason == "subagent" and bool(origin.spawned_by or other_thread)

    def is_declared_main(self, call: int) -> bool:
        """Return True if the client declared the conversation of a call as the main one."""
        return self._origin(call).declared == "main"

    def _origin(self, call: int) -> ModelCall:
        return self.calls[self._firsts[self.calls[self.path(call)[0]].lineage]]

    @cached_property
    def _firsts(self) -> dict[int, int]:
        """Return the first call of each lineage."""
        return {event.lineage: call for call, event in reversed(self.calls.items())}

    def reason_of(self, root: int) -> RootReason:
        """Return why a root has no parent.

        Some agents first generate a title for the conversation, in a separate call. It is stored as `first`, since the
        other calls were not known yet.
        """
        reason = self.calls[root].root_reason if root in self.calls else ""
        if reason == "first" and root in self.titles:
            return "auxiliary"
        return reason

    @cached_property
    def titles(self) -> frozenset[int]:
        """Return the first roots that nothing continues, if a later root is the first with tools."""
        firsts = [call for call, event in self.calls.items() if event.root_reason == "first" and not event.retry_of]
        continued = {self.parent(call) for call in self.calls}
        return frozenset(call for call in firsts[:-1] if call not in continued)

    @cached_property
    def conversation_leaves(self) -> list[int]:
        """Return the ends of the segments of the main conversation, in order.

        A compaction or an edit of the history replaces the conversation that ended last in its lineage. Forks, other
        samples of a request, subagents and auxiliary calls are left out.
        """
        lineages: dict[int, list[int]] = defaultdict(list)
        for call in sorted(self.effective_calls):
            lineages[self.calls[call].lineage].append(call)
        found, covered = [self.main_leaf], set(self.path(self.main_leaf)) if self.main_leaf else set[int]()
        for leaf in found:
            for call in self.path(leaf) if leaf else ():
                event = self.calls[call]
                before = [one for one in lineages[event.lineage] if one < call and one not in covered]
                if before and (event.edited or event.root_reason in ("compaction", "rewritten")):
                    found.append(before[-1])
                    covered.update(self.path(before[-1]))
        return sorted(found) if self.main_leaf else []

    @cached_property
    def longest_leaf(self) -> int:
        """Return the leaf with the most calls before it, the latest of several; 0 for none."""
        return max(self.leaves, key=lambda leaf: (len(self.path(leaf)), leaf), default=0)

    @property
    def main(self) -> list[TraceUnion]:
        """Return the main path as a line. Verifiers, reviewers and exporters read it."""
        return self.line(self.main_leaf)

    def line(self, leaf: int) -> list[TraceUnion]:
        """Return the path to a call as a line. If the trace is a line, all its events are returned unchanged."""
        return [event for _, event in self.numbered_line(leaf)]

    def numbered_line(self, leaf: int) -> list[Numbered]:
        """Return `line` with the stored number of each event."""
        stored = list(zip(self.seqs, self.events, strict=True))
        if self.is_line:
            return stored
        opened = [(seq, self._opened(event, leaf)) for seq, event in stored if isinstance(event, SessionOpened)]
        conversation_types = (SessionOpened, Prompt, ModelCall, ToolResult, EnvironmentTurn)
        return [
            *opened,
            *self._conversation(leaf),
            *(one for one in stored if not isinstance(one[1], conversation_types)),
        ]

    def calls_on(self, leaf: int) -> list[int]:
        """Return the numbers of the calls in `line(leaf)`, in order."""
        numbers = {seq: call for call, seq in self.seq_of.items()}
        return [numbers[seq] for seq, event in self.numbered_line(leaf) if isinstance(event, ModelCall)]

    def request(self, call: int) -> list[Item]:
        """Return the conversation that a call answers, as items."""
        items = [item for _, event in self._conversation(call) for item in event.new_items()]
        own = len(self.calls[call].items)
        return items[: len(items) - own]

    def tools(self, call: int) -> list[Tool]:
        """Return the tools that were offered to a call."""
        for number in reversed(self.path(call)):
            tools = self.calls[number].tools_in
            if tools is not None:
                return tools
        return next((event.tools for event in self.events if isinstance(event, SessionOpened)), [])

    def _opened(self, event: SessionOpened, leaf: int) -> SessionOpened:
        tools = self.tools(self.path(leaf)[0]) if leaf else event.tools
        return event if tools == event.tools else replace(event, tools=tools)

    def _conversation(self, leaf: int) -> list[Numbered]:
        """Return the prompt, model calls, tool results and environment turns on the path to a call."""
        if self.is_line:
            conversation_types = (Prompt, ModelCall, ToolResult, EnvironmentTurn)
            end = self.seq_of.get(leaf, -1)
            stored = zip(self.seqs, self.events, strict=True)
            return [(seq, event) for seq, event in stored if isinstance(event, conversation_types) and seq <= end]
        line = _Line(self._recorded, self._tokens, self._authors)
        for number in self.path(leaf) if leaf else ():
            line.add(number, self.seq_of[number], self.calls[number], is_root=not self.parent(number))
        return line.events

    @cached_property
    def _authors(self) -> Authors:
        return Authors({call: self.calls[call] for call in self.effective_calls})

    @cached_property
    def _recorded(self) -> dict[str, list[Numbered]]:
        """Return the stored tool results by call id."""
        found: dict[str, list[Numbered]] = defaultdict(list)
        for seq, event in zip(self.seqs, self.events, strict=True):
            if isinstance(event, ToolResult):
                found[event.call_id].append((seq, event))
        return found


class _Line:
    """Builds the events of one path, call by call."""

    def __init__(self, recorded: dict[str, list[Numbered]], tokens: GraphTokens, authors: Authors) -> None:
        self._authors = authors
        self.events: list[Numbered] = []
        self._size = 0
        self._recorded = recorded
        self._tokens = tokens
        self._names = ToolNames()
        self._with_tokens = [0]  # numbers of the calls with tokens so far; 0 stands for none
        self._tools: list[Tool] | None = None  # of the latest call; None: the root's tools
        self._noted: list[list[Tool] | None] = [None]  # tools of each call so far

    def add(self, number: int, seq: int, call: ModelCall, *, is_root: bool) -> None:
        """Append a call, after the events that its request adds."""
        began = max(0.0, call.at - call.duration)
        if is_root:
            authors = self._authors_of(call.items_in, number)
            self._append(seq, Prompt(items=call.items_in, authors=authors, at=began))
        else:
            self._cut(call.kept)
            for answer in self._answers(number, seq, call.items_in, began):
                self._append(*answer)
        packed = None
        if call.tokens is not None:
            packed = self._tokens.in_line(number, self._with_tokens[-1])
            self._with_tokens.append(number)
        self._tools = self._tools if is_root or call.tools_in is None else call.tools_in
        changed = None if self._tools is self._noted[-1] else self._tools
        self._noted.append(self._tools)
        self._append(seq, replace(call, **_GRAPH_DEFAULTS, tokens=packed, tools_in=changed))

    def _append(self, seq: int, event: TraceUnion) -> None:
        items = event.new_items()
        self._size += len(items)
        self._names.add(items)
        self.events.append((seq, event))

    def _cut(self, kept: int) -> None:
        """Drop the items after the first `kept`, and the events that have no items left."""
        while self._size > kept and self.events:
            seq, event = self.events.pop()
            items = event.new_items()
            self._size -= len(items)
            if self._size < kept and not isinstance(event, ToolResult):
                assert isinstance(event, Prompt | ModelCall | EnvironmentTurn)
                left = items[: kept - self._size]
                if not isinstance(event, ModelCall):
                    event = replace(event, authors=event.authors[: len(left)])
                self._append(seq, replace(event, items=left))
            elif isinstance(event, ModelCall):
                self._noted.pop()
                if event.tokens is not None:
                    self._with_tokens.pop()

    def _authors_of(self, items: list[Item], call: int) -> list[str]:
        return list[str](self._authors.of(items, call)) if any(map(is_by_model, items)) else []

    def _answers(self, number: int, seq: int, items: list[Item], began: float) -> Iterator[Numbered]:
        """Yield the added items of a request as events: tool results, and environment turns for other items."""
        authors = self._authors_of(items, number)
        place = 0
        for is_result, run in groupby(items, lambda item: result_text(item) is not None):
            turn = list(run)
            written = authors[place : place + len(turn)]
            place += len(turn)
            if not is_result:
                yield seq, EnvironmentTurn(items=turn, authors=written if any(written) else [], at=began)
                continue
            for item in turn:
                yield self._result(seq, str(item.get("call_id", "")), result_text(item) or "", began)

    def _result(self, seq: int, call_id: str, output: str, began: float) -> Numbered:
        """Return the recorded tool result, or a new one if none fits, with the output from the request."""
        found = self._recorded.get(call_id, [])
        equal = [one for one in found if isinstance(one[1], ToolResult) and one[1].output == output]
        if equal or len(found) == 1:
            seq, event = (equal or found)[-1]
            assert isinstance(event, ToolResult)
            return seq, event if event.output == output else replace(event, output=output)
        return seq, ToolResult(call_id=call_id, name=self._names.take(call_id) or "", output=output, at=began)


def result_text(item: Item) -> str | None:
    """Return the output of a `function_call_output` item if it is text, None for other items and outputs."""
    if item_type(item) != "function_call_output":
        return None
    output = item.get("output")
    if isinstance(output, list) and len(output) == 1 and isinstance(output[0], dict):
        part = output[0]
        output = part.get("text") if part.get("type") in ("input_text", "output_text", "text") else None
    return output if isinstance(output, str) else None


def is_captured(events: Iterable[TraceUnion]) -> bool:
    """Return True if one of the events is a captured call."""
    return any(isinstance(event, ModelCall) and event.call for event in events)


def main_line(events: list[TraceUnion]) -> list[TraceUnion]:
    """Return the main path as a line, see `TraceGraph.main`."""
    # Fast path: a line needs no graph.
    return TraceGraph(events).main if is_captured(events) else leave_out_unusable(events)[0]
