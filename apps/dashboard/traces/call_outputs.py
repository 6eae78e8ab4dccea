"""Match tool outputs to calls: an output belongs to the first earlier call with its id that has none yet.

If a reply repeats an id, the first output of the call's tool comes before other outputs of the id.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apps.dashboard.traces.bodies import Body, json_body, read_output
from apps.dashboard.traces.cards import Image, Output
from apps.dashboard.traces.images import find_image
from apps.gym.traces.events import ModelCall, ToolResult, TraceUnion
from apps.gym.traces.items import function_calls, item_type, output_text

_TEXT_PARTS = ("input_text", "output_text", "text")

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
        self._repeats: Counter[tuple[int, str]] = Counter()
        for index, read in enumerate(reads):
            if isinstance(read.event, ModelCall):
                ids = (str(item.get("call_id", "")) for item in function_calls(read.event.items))
                self._repeats.update((index, call_id) for call_id in ids)
            for position, call_id, output in _outputs(index, read):
                self._unmatched[call_id].append((position, output))

    def result_of(self, call_id: str, position: Position, tool: str = "") -> Output | None:
        unmatched = self._unmatched[call_id]
        while unmatched and unmatched[0][0] < position:
            unmatched.popleft()
        if not unmatched:
            return None
        repeats = self._repeats.get((position[0], call_id), 1)
        place = next((one for one in range(min(repeats, len(unmatched))) if unmatched[one][1].title == tool), 0)
        matched, output = unmatched[place]
        del unmatched[place]
        self._repeats[position[0], call_id] = repeats - 1
        self._matched.add(matched)
        return output

    def is_shown(self, position: Position) -> bool:
        return position in self._matched

    def is_edited(self, position: Position) -> bool:
        return False


def tool_output(seq: int, event: ToolResult) -> Output:
    body, images = output_content(event.output, seq, "0")
    return Output(body=body, images=images, seq=seq, title=event.name, error=event.error, duration=event.duration)


def output_content(output: Any, seq: int, place: str) -> tuple[Body, tuple[Image, ...]]:
    """Return text and images of an output. An output with other parts is shown as JSON."""
    found = [
        find_image(part, seq, f"{place}.{sub}") for sub, part in enumerate(output if isinstance(output, list) else [])
    ]
    images = tuple(image for image in found if image)
    texts = sum(isinstance(part, dict) and part.get("type") in _TEXT_PARTS for part in output) if images else 0
    is_text = isinstance(output, str) or (bool(images) and len(images) + texts == len(output))
    body = read_output(output_text(output)) if is_text else json_body(output)
    return body.at(seq, place), images if is_text else ()


def _outputs(index: int, read: Read) -> Iterator[tuple[Position, str, Output]]:
    event = read.event
    if isinstance(event, ToolResult):
        yield (index, 0), event.call_id, tool_output(read.seq, event)
    elif event is not None:
        for place, item in enumerate(event.new_items()):
            if item_type(item) == "function_call_output":
                body, images = output_content(item.get("output", ""), read.seq, str(place))
                yield (index, place), str(item.get("call_id", "")), Output(body=body, images=images)
