"""A finished attempt as a verifier likes to read it."""

from typing import Any

import msgspec

from apps.gym.environments.task_generation import Call
from apps.gym.traces.items import Item, assistant_text, function_calls, item_type, text_of
from apps.gym.verifiers.answer_extraction import extract_answer


class Attempted(msgspec.Struct, frozen=True):
    """`response` is the Responses object of the whole attempt; the rest is read from it."""

    response: dict[str, Any]

    @property
    def items(self) -> list[Item]:
        """All after the prompt, in order: messages, reasoning, calls and their outputs."""
        items: list[Item] = self.response["output"]
        return items

    @property
    def text(self) -> str:
        """What the assistant's messages say, one below the other."""
        return assistant_text(self.items)

    @property
    def last_message(self) -> str:
        said = [item for item in self.items if item_type(item) == "message" and item.get("role") == "assistant"]
        return text_of(said[-1]) if said else ""

    @property
    def answer(self) -> str:
        """What stands in the last box, else the last line less a label such as "Answer:"; empty without either."""
        return extract_answer(self.last_message) or ""

    @property
    def calls(self) -> list[Call]:
        """The tool calls, in order; arguments that are no JSON object are the text that they were."""
        return [
            Call(str(item.get("name", "")), _arguments(item.get("arguments"))) for item in function_calls(self.items)
        ]


def _arguments(given: object) -> dict[str, Any] | str:
    try:
        read = msgspec.json.decode(given) if isinstance(given, str) else given
    except msgspec.DecodeError:
        read = None
    return read if isinstance(read, dict) else str(given)
