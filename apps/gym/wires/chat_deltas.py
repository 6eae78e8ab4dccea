"""Read a streamed chat reply while it arrives, to pass it on before it is complete."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import orjson

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
    """Feed it the bytes of a stream; it reports the deltas of the first choice. What it cannot read, it ignores.

    The complete reply is read separately, and errors are found then. Deltas contain none of the `secrets`.
    """

    def __init__(self, report: OnDelta, secrets: Iterable[str] = ()) -> None:
        self.has_begun = False
        self._report = report
        self._secrets = list(secrets)
        self._filter = SecretFilter(self._secrets)
        self._last = Delta("text", "")
        self._rest = b""
        self._calls: set[int] = set()

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (chunk := _parse(line[5:])):
                self._read(chunk)

    def _read(self, chunk: dict[str, Any]) -> None:
        choices = chunk.get("choices")
        choice = as_object(choices[0]) if isinstance(choices, list) and choices else {}
        delta = as_object(choice.get("delta"))
        if not delta or choice.get("index") not in (0, None):
            return
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and isinstance(thought, str):
            self._tell(Delta("reasoning", thought))
        if (text := delta.get("content")) and isinstance(text, str):
            self._tell(Delta("text", text))
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._read_call(as_object(call))

    def _read_call(self, call: dict[str, Any]) -> None:
        index, function = call.get("index"), as_object(call.get("function"))
        if not isinstance(index, int):
            return
        name, call_id, arguments = function.get("name"), call.get("id"), function.get("arguments")
        if index not in self._calls and isinstance(name, str) and isinstance(call_id, str):
            self._calls.add(index)
            self._tell(Delta("call", name, index, call_id))
        if index in self._calls and isinstance(arguments, str) and arguments:
            self._tell(Delta("arguments", arguments, index))

    def finish(self) -> None:
        """Report the end of the last text, which was held back because it could be the start of a secret."""
        if text := self._filter.flush():
            self._pass_on(self._last._replace(text=text))

    def _tell(self, delta: Delta) -> None:
        if (delta.kind, delta.number) != (self._last.kind, self._last.number):
            self.finish()
        self._last = delta
        if delta.kind == "call":
            name, call_id = (hide_secrets(text, self._secrets) for text in (delta.text, delta.call_id))
            self._pass_on(delta._replace(text=name, call_id=call_id))
        elif text := self._filter.feed(delta.text):
            self._pass_on(delta._replace(text=text))

    def _pass_on(self, delta: Delta) -> None:
        self.has_begun = True
        self._report(delta)


def _parse(line: bytes) -> dict[str, Any]:
    try:
        return as_object(orjson.loads(line))
    except orjson.JSONDecodeError:
        return {}  # for example [DONE]
