"""Match tool outputs to calls: an output belongs to the first call of the latest reply with its id and tool."""

from dataclasses import dataclass
from typing import Any

from apps.dashboard.traces.bodies import Body, json_body, read_output
from apps.dashboard.traces.cards import Image, Output
from apps.dashboard.traces.images import find_image
from apps.gym.traces.events import ToolResult, TraceUnion
from apps.gym.traces.items import Item, Named, item_type, named_calls, output_text, pair_results

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
        self._results: dict[Position, Output] = {}
        self._matched: set[Position] = set()
        unanswered: list[tuple[Position, Named]] = []
        for index, read in enumerate(reads):
            asked: list[tuple[Position, Named]] = []
            for place, item in enumerate(read.event.new_items() if read.event else []):
                asked += [((index, place), named) for named in named_calls([item])]
                if item_type(item) == "function_call_output":
                    output = _output(read, item, place)
                    # Calls of the latest reply come first: an earlier one may have no result.
                    calls = [*asked, *unanswered]
                    result = str(item.get("call_id", "")), output.title
                    for call in pair_results([named for _, named in calls], [result]).values():
                        self._results[calls[call][0]] = output
                        self._matched.add((index, place))
                        (asked if call < len(asked) else unanswered).remove(calls[call])
            unanswered = [*asked, *unanswered]

    def result_of(self, position: Position) -> Output | None:
        return self._results.get(position)

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


def _output(read: Read, item: Item, place: int) -> Output:
    if isinstance(read.event, ToolResult):
        return tool_output(read.seq, read.event)
    body, images = output_content(item.get("output", ""), read.seq, str(place))
    return Output(body=body, images=images)
