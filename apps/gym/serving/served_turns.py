"""Serve an attempt turn by turn, as in Gymnasium: `/reset`, then `/step` for each reply of the policy model."""

import asyncio
from collections.abc import Sequence
from typing import Any

from apps.gym.resources.protocol import Session, Step, SteppedSession, ToolOutput, failed_call
from apps.gym.traces.items import Item, encode_json, function_calls, text_of

MOST_STEPS = 1_000
MOST_CHARACTERS = 4_000_000
"""Maximum characters of the conversation. Longer attempts are truncated."""


class Turns(Session):
    """A session with its conversation. The final step verifies the attempt and returns the reward."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._output: list[Item] = []
        self._steps = 0
        self._characters_left = MOST_CHARACTERS
        self._turn = asyncio.Lock()
        self._end: dict[str, Any] | None = None

    def open(self) -> dict[str, Any]:
        """Return the reply to `/reset`."""
        return {"observation": _text(self.session.opening), "info": {"supports_explicit_close": True}}

    async def step(self, response: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to `/step`. After the end, the final reply is repeated."""
        async with self._turn:
            if self._end is not None:
                return self._end
            result = await self._step(response)
            if result["terminated"] or result["truncated"]:
                self._end = result
            return result

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        return await self.session.call_tool(name, arguments)

    async def close(self) -> None:
        await self.session.close()

    async def _step(self, response: dict[str, Any]) -> dict[str, Any]:
        self._steps += 1
        given: list[Item] = response["output"]
        step = await self._answer(given, response)
        outputs = [
            {"type": "function_call_output", "call_id": call_id, "output": output.output}
            for call_id, output in step.outputs
        ]
        new_items = [*given, *outputs, *step.items]
        self._output += new_items
        self._characters_left -= len(encode_json(new_items))
        truncated = not step.done and (self._steps >= MOST_STEPS or self._characters_left < 0)
        info: dict[str, Any] = {"tool_outputs": outputs}
        result = {
            "observation": _text(step.items),
            "reward": 0.0,
            "terminated": step.done,
            "truncated": truncated,
            "info": info,
        }
        if step.done or truncated:
            status = response.get("status", "completed")
            reward = await self.session.verify({**response, "status": status, "output": self._output})
            result["reward"] = reward.value or 0.0
            info |= {"reward_components": reward.components, "explanation": reward.explanation}
        return result

    async def _answer(self, given: list[Item], response: dict[str, Any]) -> Step:
        if isinstance(self.session, SteppedSession):
            return await self.session.step(response)
        if calls := function_calls(given):
            outputs = [(str(call.get("call_id", "")), await self._call(call)) for call in calls]
            return Step(outputs=outputs)
        observations = await self.session.respond(given)
        return Step(done=True) if observations is None else Step(items=observations)

    async def _call(self, call: Item) -> ToolOutput:
        try:
            arguments = self.session.read_arguments(call.get("arguments"))
        except ValueError as problem:
            return failed_call(f"Invalid tool call arguments: {problem}", "invalid_arguments")
        return await self.session.call_tool(str(call.get("name", "")), arguments)


def _text(items: Sequence[Item]) -> str:
    return "\n".join(map(text_of, items))
