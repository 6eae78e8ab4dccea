"""Read a conversation that a trainer rendered, piece by piece, against the facts it was made of."""

import json
from typing import Any

from tests.trainers.plans import Plan

END = "<|im_end|>"
ASSISTANT = "<|im_start|>assistant\n"


class Reader:
    """What is expected stands at the current place, or the test fails with what stands there. Text is compared byte for
    byte, tools and arguments as JSON values."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def literal(self, expected: str) -> None:
        found = self.text[self.place : self.place + len(expected)]
        assert found == expected, f"after {self.text[: self.place][-200:]!r}"
        self.place += len(expected)

    def value(self, expected: Any) -> None:
        found, end = json.JSONDecoder().raw_decode(self.text, self.place)
        assert exactly(found) == exactly(expected)
        self.place = end

    def end(self) -> None:
        assert self.text[self.place :] == ""

    def prompt(self, plan: Plan) -> None:
        if plan["tools"]:
            self.literal("<|im_start|>tools\n")
            self.value([nested(tool) for tool in plan["tools"]])
            self.literal(f"{END}\n")
        for message in plan["prompt"]:
            self.message(message)

    def message(self, message: dict[str, Any], *, closed: bool = True) -> None:
        self.literal(f"<|im_start|>{message['role']}\n")
        if message["role"] == "assistant":
            self.turn(message)
        else:
            self.literal(message["text"] + END)
        if closed:
            self.literal("\n")

    def turn(self, message: dict[str, Any]) -> None:
        """What the model said, with its end of turn: that, and nothing else, is to be learned."""
        if message["reasoning"]:
            self.literal(f"<think>\n{message['reasoning']}\n</think>\n\n")
        self.literal(message["text"])
        for call in message["calls"]:
            self.literal(f'\n<tool_call>\n{{"name": {json.dumps(call["name"])}, "arguments": ')
            self.arguments(call["arguments"])
            self.literal("}\n</tool_call>")
        self.literal(END)

    def arguments(self, written: str) -> None:
        """Empty text means no arguments, as the loop took it."""
        self.value(json.loads(written) if written.strip() else {})


class TextReader(Reader):
    """Arguments are the text that the model wrote."""

    def arguments(self, written: str) -> None:
        self.literal(written if written.strip() else "{}")


def exactly(value: Any) -> str:
    """Equal for equal JSON values only: in Python 1 equals 1.0 and True."""
    return json.dumps(value, sort_keys=True)


def nested(tool: dict[str, Any]) -> dict[str, Any]:
    function = {name: tool[name] for name in ("name", "description", "parameters")}
    return {"type": "function", "function": function}


def turns_of(plan: Plan) -> list[dict[str, Any]]:
    return [turn for turn in plan["turns"] if turn["role"] == "assistant"]
