"""A simulated user: a second model writes the user's messages and calls the user's own tools."""

from collections.abc import Callable
from typing import Any

from apps.gym.errors import JudgeError
from apps.gym.judging.judge import Judgement
from apps.gym.traces.items import Item, Tool, assistant_text, call_arguments, function_calls, message
from apps.gym.traces.responses import user_calls

MAX_CALLS = 10
"""Maximum replies with tool calls before one message."""


class UserModel:
    """The user of one attempt. `calls` has the tool calls of the user, each with the number of its turn.

    `use_tool` returns the output of one of the user's tools, also for a call that fails.
    """

    def __init__(
        self,
        judgement: Judgement,
        *,
        conversation: list[Item],
        tools: list[Tool],
        stop_words: tuple[str, ...],
        use_tool: Callable[[str, dict[str, Any]], str],
    ) -> None:
        self.calls: list[dict[str, Any]] = []
        self._judgement = judgement
        self._tools = tools
        self._stop_words = stop_words
        self._use_tool = use_tool
        self._seen: list[Item] = []
        self._new = conversation
        self._turn = 0

    async def answer(self, said: str) -> str | None:
        """Return the user's next message, or None if it has a stop word. Raises JudgeError."""
        self._new = [*self._new, message("user", said)]
        for _ in range(MAX_CALLS + 1):
            self._seen, prompt = [*self._seen, *self._new], self._new
            items = await self._judgement.play_user(prompt, self._seen, self._tools)
            self._seen = [*self._seen, *items]
            self.calls += user_calls(items, self._turn)
            self._new = [self._call(call) for call in function_calls(items)]
            if not self._new:
                return self._read(assistant_text(items))
        raise JudgeError(f"The user model made more than {MAX_CALLS} tool calls without a message.").permanent()

    def _call(self, call: Item) -> Item:
        arguments = call_arguments(call)
        if arguments is None:
            output = "The arguments are not a JSON object."
        else:
            output = self._use_tool(str(call.get("name", "")), arguments)
        return {"type": "function_call_output", "call_id": call.get("call_id"), "output": output}

    def _read(self, text: str) -> str | None:
        if any(word in text for word in self._stop_words):
            return None
        if not text.strip():
            raise JudgeError("The user model returned neither a message nor a tool call.")
        self._turn += 1
        return text
