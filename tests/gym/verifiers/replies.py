"""Makers of the Responses objects that verifiers read."""

import json
from typing import Any


def response(*texts: str) -> dict[str, Any]:
    """A finished attempt in which the assistant wrote these texts, with a tool call before the last."""
    said = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}
        for text in texts
    ]
    call = {"type": "function_call", "call_id": "c1", "name": "note", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "\\boxed{999}"}
    return {"object": "response", "output": [*said[:-1], call, result, *said[-1:]]}


def says(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def calls(name: str, arguments: Any = None, call_id: str = "c1") -> dict[str, Any]:
    """A tool call; arguments that are text go as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


def returns(output: Any, call_id: str = "c1") -> dict[str, Any]:
    text = output if isinstance(output, str) else json.dumps(output)
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def attempt(*items: dict[str, Any], **usage: int) -> dict[str, Any]:
    return {"object": "response", "output": list(items), "usage": usage}
