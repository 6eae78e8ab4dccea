"""Match tool outputs to calls: an output belongs to the first earlier call with its id that has none yet."""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from apps.dashboard.traces.bodies import Body, json_body, read_output
from apps.dashboard.traces.cards import Output
from apps.gym.traces.events import ToolResult, TraceUnion
from apps.gym.traces.items import Item, item_type

Position = tuple[int, int]
"""Index of the event in the list, and of the item in the event."""


@dataclass(frozen=True, slots=True)
class Read:
    """A stored event. `event` is None if its kind or shape is unknown. `tokens` is the header of the packed tokens."""

    seq: int
    kind: str
    payload: str
    event: TraceUnion | None
    tokens: bytes | None = None


class Pairing:
    def __init__(self, reads: list[Read]) -> None:
        self._unmatched: dict[str, deque[tuple[Position, Output]]] = defaultdict(deque)
        self._matched: set[Position] = set()
        for index, read in enumerate(reads):
            for position, call_id, output in _outputs(index, read):
                self._unmatched[call_id].append((position, output))

    def result_of(self, call_id: str, position: Position) -> Output | None:
        unmatched = self._unmatched[call_id]
        while unmatched and unmatched[0][0] < position:
            unmatched.popleft()
        if not unmatched:
            return None
        matched, output = unmatched.popleft()
        self._matched.add(matched)
        return output

    def is_shown(self, position: Position) -> bool:
        return position in self._matched


def tool_output(seq: int, event: ToolResult) -> Output:
    body = read_output(event.output).at(seq, "0")
    return Output(body=body, seq=seq, title=event.name, error=event.error, duration=event.duration)


def output_body(item: Item, seq: int, place: str) -> Body:
    output = item.get("output", "")
    body = read_output(output) if isinstance(output, str) else json_body(output)
    return body.at(seq, place)


def _outputs(index: int, read: Read) -> Iterator[tuple[Position, str, Output]]:
    event = read.event
    if isinstance(event, ToolResult):
        yield (index, 0), event.call_id, tool_output(read.seq, event)
    elif event is not None:
        for place, item in enumerate(event.new_items()):
            if item_type(item) == "function_call_output":
                yield (index, place), str(item.get("call_id", "")), Output(body=output_body(item, read.seq, str(place)))
