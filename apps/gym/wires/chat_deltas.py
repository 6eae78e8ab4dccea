"""Read the deltas of a streamed chat reply, to pass it on before it is complete."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from apps.gym.traces.items import as_object
from apps.gym.wires.hidden_secrets import SecretFilter, hide_secrets


class Delta(NamedTuple):
    """A piece of a reply: of its text or reasoning, the name of tool call `number`, or a piece of its arguments."""

    kind: Literal["text", "reasoning", "call", "arguments"]
    text: str
    number: int = 0
    call_id: str = ""


OnDelta = Callable[[Delta], None]


class DeltaReader:
    """Reports the deltas of a stream without the `secrets`. Ignores what it cannot read."""

    def __init__(self, report: OnDelta, secrets: Iterable[str] = ()) -> None:
        self.has_begun = False
        self._report = report
        self._secrets = list(secrets)
        self._filter = SecretFilter(self._secrets)
        self._last = Delta("text", "")
        self._calls: set[int] = set()

    def read(self, delta: dict[str, Any]) -> None:
        """Report what a delta of the first choice contains. Calls without an id get one."""
        places = (delta, as_object(delta.get("provider_specific_fields")))  # the latter of LiteLLM
        thought = next(filter(None, (each.get("reasoning_content") or each.get("reasoning") for each in places)), None)
        if thought and isinstance(thought, str):
            self._tell(Delta("reasoning", thought))
        if (text := delta.get("content")) and isinstance(text, str):
            self._tell(Delta("text", text))
        if (calls := delta.get("tool_calls")) and isinstance(calls, list):
            for call in calls:
                self._read_call(as_object(call))

    def _read_call(self, call: dict[str, Any]) -> None:
        index, function = call.get("index"), as_object(call.get("function"))
        if not isinstance(index, int):
            return
        name, call_id, arguments = function.get("name"), call.get("id"), function.get("arguments")
        if index not in self._calls and isinstance(name, str):
            if not call_id or not isinstance(call_id, str):
                # The reply that is stored must have the id that the client gets.
                call["id"] = call_id = f"call_{uuid4().hex}"
            self._calls.add(index)
            self._tell(Delta("call", name, index, call_id))
        if index in self._calls and isinstance(arguments, str) and arguments:
            self._tell(Delta("arguments", arguments, index))

    def finish(self) -> None:
        """Report the end of the last text, which was held back because it could be the start of a secret."""
        if text := self._filter.flush():
            self._pass_on(self._last._replace(text=text))

    def _tell(self, delta: Delta) -> None:
        if delta.kind != self._last.kind or delta.number != self._last.number:
            self.finish()
        self._last = delta
        if delta.kind == "call":
            name, call_id = (hide_secrets(text, self._secrets) for text in (delta.text, delta.call_id))
            self._pass_on(delta._replace(text=name, call_id=call_id))
        elif text := self._filter.feed(delta.text):
            self._pass_on(delta if text == delta.text else delta._replace(text=text))

    def _pass_on(self, delta: Delta) -> None:
        self.has_begun = True
        self._report(delta)
