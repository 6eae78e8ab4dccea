"""Places of captured calls on a page: lane, links to other calls, and the results of tool calls."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from apps.dashboard.traces.call_outputs import Position, output_content, tool_output
from apps.dashboard.traces.cards import CardLink, Lane, Output
from apps.gym.traces.authorship import Author, Authors
from apps.gym.traces.events import AgentEnd, ModelCall, ToolResult, TraceUnion
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import Item, function_calls, is_by_model, item_type, named_calls, pair_results, text_of
from apps.gym.traces.main_path import MainPath

REQUEST = "in"
"""Prefix of the parts that are items of a request."""
_MARKS = {"compaction": "compaction", "rewritten": "rewritten history"}
_EXCERPT = 120


@dataclass(frozen=True, slots=True)
class CallResults:
    """The results of the tool calls in a request or a reply, by place; `shown` are the places of outputs."""

    by_place: dict[int, Output] = field(default_factory=dict)
    shown: set[int] = field(default_factory=set)
    edited: set[int] = field(default_factory=set)
    """The places of outputs that differ from the result that the call got before."""

    def result_of(self, position: Position) -> Output | None:
        return self.by_place.get(position[1])

    def is_shown(self, position: Position) -> bool:
        return position[1] in self.shown

    def is_edited(self, position: Position) -> bool:
        return position[1] in self.edited


@dataclass(frozen=True, slots=True)
class CallPlace:
    """How a captured call is shown.

    `before` are the tool calls of its parent, and `mark` says how its request differs. `authors` has the author of each
    item that its request adds (apps.gym.traces.authorship).
    """

    lane: Lane | None
    mark: str
    links: tuple[CardLink, ...]
    before: list[Item]
    request: CallResults
    reply: CallResults
    repeats_request: bool
    authors: list[Author]


class Lanes:
    """All calls of an attempt, from the events of its calls and tool results."""

    def __init__(self, events: Iterable[tuple[int, TraceUnion | None]]) -> None:
        found: dict[int, tuple[int, ModelCall]] = {}
        self._recorded: dict[str, list[tuple[int, ToolResult]]] = defaultdict(list)
        ends: list[TraceUnion] = []
        for seq, event in events:
            if isinstance(event, AgentEnd):
                ends.append(event)
            if isinstance(event, ModelCall) and event.call:
                found[event.call] = seq, event
            elif isinstance(event, ToolResult):
                self._recorded[event.call_id].append((seq, event))
        self._calls = {number: event for number, (_, event) in sorted(found.items())}
        self._seqs = {number: seq for number, (seq, _) in sorted(found.items())}
        self._graph = TraceGraph([*self._calls.values(), *ends])
        self._authors = Authors(self._calls)
        self._requests: dict[int, CallResults] = defaultdict(CallResults)
        self._replies: dict[int, CallResults] = defaultdict(CallResults)
        self._claimed: set[int] = set()
        self._sources: dict[int, set[int]] = defaultdict(set)
        self._spawned: dict[int, list[Lane]] = defaultdict(list)
        self._writers = {
            str(one.get("call_id", "")): number
            for number, call in self._calls.items()
            for one in function_calls(call.items)
        }
        self._lanes = self._find_lanes()
        for number, call in self._calls.items():
            if not self._is_repeated(call):
                self._match_request(number, call)
        for number, call in self._calls.items():
            self._match_recorded(number, call)

    def place(self, number: int) -> CallPlace:
        call = self._calls[number]
        parent = self._calls.get(call.parent)
        mark = "repeated request" if call.retry_of else _MARKS.get(call.root_reason, "")
        mark = mark or ("edited history" if call.edited else "")
        return CallPlace(
            lane=self._lanes.get(call.lineage),
            mark=mark,
            links=tuple(self._links(number, call)),
            before=function_calls(parent.items) if parent else [],
            request=self._requests[number],
            reply=self._replies[number],
            repeats_request=self._is_repeated(call),
            authors=self._authors.of(call.items_in, number),
        )

    def main_path(self) -> tuple[MainPath, int | None]:
        """Return the main path of a captured attempt that has ended, and the event of its last call."""
        found = self._graph.main_path
        return found, self._seqs.get(found.leaf)

    def is_claimed(self, seq: int) -> bool:
        """Return True if a tool result is shown with its call."""
        return seq in self._claimed

    def changed_since(self, seq: int) -> set[int]:
        """Return earlier events whose cards changed because of calls from `seq` on: new results, new subagents."""
        new = [number for number, place in self._seqs.items() if place >= seq]
        calls = {other for number in new for other in (self._calls[number].spawned_by, *self._sources[number])}
        return {self._seqs[number] for number in calls if number in self._seqs and self._seqs[number] < seq}

    def _is_repeated(self, call: ModelCall) -> bool:
        return call.retry_of in self._calls and self._calls[call.retry_of] is not call

    def _find_lanes(self) -> dict[int, Lane]:
        """Return the lanes of all lineages except those of the main agent."""
        lanes: dict[int, Lane] = {}
        started: set[int] = set()
        titles = self._graph.titles
        numbers: Counter[str] = Counter()
        for number, call in self._calls.items():
            if call.lineage in started:
                continue
            started.add(call.lineage)
            reason = "auxiliary" if number in titles else call.root_reason
            if (call.lineage > 1 and reason != "first") or reason == "auxiliary":
                name = {"": "branch", "auxiliary": "auxiliary call", **_MARKS}.get(reason, reason)
                numbers[name] += 1
                name += f" {numbers[name]}" if name in ("subagent", "branch") else ""
                texts = [text_of(item) for item in call.items_in if not is_by_model(item)]
                excerpt = " ".join((texts or [""])[-1][: 4 * _EXCERPT].split())[:_EXCERPT]
                lanes[call.lineage] = Lane(call.lineage, name, self._seqs[number], excerpt)
                self._spawned[call.spawned_by].append(lanes[call.lineage])
        return lanes

    def _links(self, number: int, call: ModelCall) -> Iterator[CardLink]:
        if call.retry_of in self._seqs:
            yield CardLink("same request as", self._seqs[call.retry_of])
        elif call.spawned_by in self._seqs:
            yield CardLink("started by", self._seqs[call.spawned_by])
        elif call.root_reason in _MARKS:
            earlier = [n for n, one in self._calls.items() if n < number and one.lineage == call.lineage]
            if earlier:
                yield CardLink("replaces the conversation of", self._seqs[earlier[-1]])
        before = max((seq for seq in self._seqs.values() if seq < self._seqs[number]), default=-1)
        if call.parent in self._seqs and (call.ambiguous or self._seqs[call.parent] != before):
            yield CardLink(
                "probably continues (several calls match)" if call.ambiguous else "continues", self._seqs[call.parent]
            )
        for lane in self._spawned[number]:
            yield CardLink(f"started {lane.label}", lane.seq)

    def _match_request(self, number: int, call: ModelCall) -> None:
        """Give the outputs in a request to the calls that they answer, in this request or on the path before it."""
        seq, results = self._seqs[number], self._requests[number]
        within: dict[str, list[int]] = defaultdict(list)
        asked: dict[int, list[tuple[int, str, Output]]] = defaultdict(list)
        for place, item in enumerate(call.items_in):
            call_id = str(item.get("call_id", ""))
            if item_type(item) == "function_call":
                within[call_id].append(place)
            if item_type(item) != "function_call_output":
                continue
            body, images = output_content(item.get("output", ""), seq, f"{REQUEST}{place}")
            output = Output(body=body, images=images)
            if within[call_id]:
                results.by_place[within[call_id].pop(0)] = output
                results.shown.add(place)
                if writer := self._writers.get(call_id, 0):
                    asked[writer].append((place, call_id, output))
            elif asker := self._asker(number, call_id):
                asked[asker].append((place, call_id, output))
        for asker, outputs in asked.items():
            self._match_reply(number, asker, outputs)

    def _match_reply(self, number: int, asker: int, outputs: list[tuple[int, str, Output]]) -> None:
        """Give the outputs in a request to the calls of the reply that they answer."""
        reply, results, items = self._replies[asker].by_place, self._requests[number], self._calls[number].items_in
        places = [place for place, item in enumerate(self._calls[asker].items) if item.get("type") == "function_call"]
        given = [
            (call_id, items[place].get("output", ""), self._recorded.get(call_id, ())) for place, call_id, _ in outputs
        ]
        told = [(one, next((event.name for _, event in made if event.output == text), "")) for one, text, made in given]
        calls = named_calls(self._calls[asker].items)
        paired = pair_results(calls, told)
        for one, (place, call_id, output) in enumerate(outputs):
            # A second result of one call is compared with the first.
            spot = places[paired.get(one, next(at for at, (own, _) in enumerate(calls) if own == call_id))]
            if spot not in reply:
                reply[spot] = self._recorded_output(call_id, output, items[place].get("output", ""))
                self._sources[number].add(asker)
            if place not in results.shown:
                (results.shown if reply[spot].body.text == output.body.text else results.edited).add(place)

    def _asker(self, number: int, call_id: str) -> int:
        """Return the call before this one whose reply has the tool call, or 0."""
        while (parent := self._calls[number].parent) in self._calls and parent < number:
            if any(str(each.get("call_id", "")) == call_id for each in function_calls(self._calls[parent].items)):
                return parent
            number = parent
        return 0

    def _recorded_output(self, call_id: str, output: Output, given: object) -> Output:
        """Return the output with error and duration of its recorded result, if there is one."""
        recorded = [one for one in self._recorded[call_id] if one[0] not in self._claimed]
        equal = [one for one in recorded if one[1].output == given]
        if not equal and len(recorded) != 1:
            return output
        seq, event = (equal or recorded)[0]
        self._claimed.add(seq)
        found = tool_output(seq, event)
        return found if equal else replace(found, body=output.body)

    def _match_recorded(self, number: int, call: ModelCall) -> None:
        """Give recorded results to calls whose result no request has yet."""
        reply = self._replies[number].by_place
        for place, each in enumerate(call.items):
            if each.get("type") != "function_call" or place in reply:
                continue
            call_id = str(each.get("call_id", ""))
            later = [one for one in self._recorded.get(call_id, ()) if one[0] > self._seqs[number]]
            free = [one for one in later if one[0] not in self._claimed]
            if free:
                found = next((one for one in free if one[1].name == each.get("name")), free[0])
                self._claimed.add(found[0])
                reply[place] = tool_output(*found)
