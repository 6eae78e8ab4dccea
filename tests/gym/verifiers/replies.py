"""Makers of the Responses objects that verifiers read."""

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
