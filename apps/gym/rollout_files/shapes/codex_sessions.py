"""Read session files of Codex (`rollout-*.jsonl`): lines with `timestamp`, `type` and `payload`.

The payloads of `response_item` are Responses items. `event_msg` repeats them for display, apart from token counts,
which end a reply, and rollbacks.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from apps.gym.rollout_files.stored_calls import (
    StoredCall,
    StoredTrace,
    number_lineages,
    path_to,
    read_counts,
    read_time,
)
from apps.gym.tasks.file_rows import RowRefused, expect
from apps.gym.traces.events import RootReason
from apps.gym.traces.items import Item, TokenUsage, as_object, dump_json, is_by_model, item_type, message, text_of
from apps.gym.wires.tool_namespaces import join_names

Line = dict[str, Any]

_TYPES = frozenset(
    {"session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state", "token_usage_record"}
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_CONTEXT = ("<", "# AGENTS.md")
"""Beginnings of user messages that Codex writes itself."""


def is_codex_line(row: Line) -> bool:
    return row.get("type") in _TYPES and isinstance(row.get("payload"), dict)


def read_codex(lines: list[tuple[int, Line]]) -> StoredTrace:
    """Return the trajectory of a session. Raises RowRefused with line and field."""
    session = _Session()
    for number, line in lines:
        try:
            session.take(line)
        except RowRefused as refusal:
            raise RowRefused(refusal.code, refusal.message, line=number) from None
    return session.trace(lines[0][0])


class _Session:
    def __init__(self) -> None:
        self._calls: list[StoredCall] = []
        self._waiting: list[Item] = []
        """Items since the last reply."""
        self._parent = 0
        self._is_open = False
        """Whether further items of the model belong to the last reply."""
        self._reason: RootReason = ""
        self._model = ""
        self._sampling: dict[str, Any] = {}
        self._ends: list[int] = []
        self._session: dict[str, Any] = {"format": "codex"}
        self._left_out: Counter[str] = Counter()

    def take(self, line: Line) -> None:
        kind = str(line.get("type"))
        payload = expect(line.get("payload"), dict, "an object", "/payload")
        takers: dict[str, Callable[[Line], None]] = {
            "session_meta": self._take_meta,
            "turn_context": self._take_context,
            "compacted": self._take_compaction,
            "event_msg": self._take_event,
        }
        if kind == "response_item":
            self._take_item(payload, read_time(line.get("timestamp"), "/timestamp"))
        elif kind in takers:
            takers[kind](payload)
        else:
            self._left_out[kind] += 1

    def _take_meta(self, payload: Line) -> None:
        for ours, theirs in (("id", "id"), ("agent_version", "cli_version"), ("folder", "cwd")):
            if isinstance(payload.get(theirs), str):
                self._session.setdefault(ours, payload[theirs])
        text = as_object(payload.get("base_instructions")).get("text") or payload.get("instructions")
        if isinstance(text, str) and text and not self._calls and not self._waiting:
            self._waiting.append(message("system", text))

    def _take_context(self, payload: Line) -> None:
        self._model = payload["model"] if isinstance(payload.get("model"), str) else self._model
        effort = payload.get("effort")
        self._sampling = {"reasoning": {"effort": effort}} if isinstance(effort, str) else {}

    def _take_event(self, payload: Line) -> None:
        kind = str(payload.get("type"))
        if kind == "token_count":
            usage = as_object(payload.get("info")).get("last_token_usage")
            if self._calls and not self._calls[-1].usage:
                self._calls[-1].usage = _usage(usage)
            self._is_open = False
        elif kind == "thread_rolled_back":
            turns = payload.get("num_turns")
            if type(turns) is not int or turns < 1:
                raise RowRefused("wrong_type", "must be a number of turns", pointer="/payload/num_turns")
            self._roll_back(turns)
        else:
            self._left_out[f"event_msg/{kind}"] += 1

    def _take_item(self, payload: Line, at: float | None) -> None:
        item = _plain_item(payload)
        kind = item_type(item)
        if is_by_model(item):
            call = self._calls[-1] if self._is_open else self._open_call()
            call.items.append(item)
            call.at = at if at is not None else call.at
        elif kind in ("function_call_output", "message"):
            self._is_open = False
            self._waiting.append(item)
        else:
            self._left_out[kind] += 1

    def _open_call(self) -> StoredCall:
        if not self._parent and not self._waiting:
            raise RowRefused("no_prompt", "the reply has no prompt before it", pointer="/payload")
        call = StoredCall(
            items_in=self._waiting,
            items=[],
            parent=self._parent,
            root_reason="" if self._parent else self._reason,
            model=self._model,
            sampling=self._sampling,
        )
        self._calls.append(call)
        self._waiting, self._parent, self._is_open = [], len(self._calls), True
        return call

    def _take_compaction(self, payload: Line) -> None:
        """Begin a new conversation with the history that replaces the old one."""
        history = payload.get("replacement_history")
        if history is None:
            summary = expect(payload.get("message"), str, "text", "/payload/message")
            items = [item for item in self._waiting if item.get("role") == "user"]
            items.append(message("user", summary))
        else:
            given = expect(history, list, "a list of items", "/payload/replacement_history")
            items = [
                _plain_item(expect(item, dict, "an item", f"/payload/replacement_history/{place}"))
                for place, item in enumerate(given)
            ]
        if self._parent:
            self._ends.append(self._parent)
            self._reason = "compaction"
        self._waiting, self._parent, self._is_open = items, 0, False

    def _roll_back(self, turns: int) -> None:
        """Go back to before the last `turns` messages of the user. Their replies stay as a branch."""
        self._is_open = False
        parts = [(call, self._calls[call - 1].items_in) for call in path_to(self._calls, self._parent)]
        parts.append((0, self._waiting))
        asked = [(call, items[:place]) for call, items in parts for place, item in enumerate(items) if _is_asked(item)]
        if len(asked) < turns:
            text = "rolls back more turns than the conversation has"
            raise RowRefused("no_turn", text, pointer="/payload/num_turns")
        call, self._waiting = asked[-turns]
        self._parent = self._calls[call - 1].parent if call else self._parent

    def trace(self, first: int) -> StoredTrace:
        if not self._calls:
            raise RowRefused("no_attempt", "the session has no reply of a model", line=first)
        # After a compaction or a rollback without a reply, the last reply ends the conversation.
        main = self._parent or len(self._calls)
        number_lineages(self._calls, [*(end for end in self._ends if end != main), main])
        tail = self._waiting if self._parent else []
        return StoredTrace(calls=self._calls, main=main, tail=tail, session=self._session, left_out=self._left_out)


def _is_asked(item: Item) -> bool:
    """Return True for a message that the user wrote."""
    return item.get("role") == "user" and not text_of(item).lstrip().startswith(_CONTEXT)


def _plain_item(given: Line) -> Item:
    """Return an item with calls and outputs as functions. Raises RowRefused."""
    item = {key: value for key, value in given.items() if value is not None and not key.startswith("internal_")}
    kind = item.get("type")
    if not isinstance(kind, str):
        raise RowRefused("missing", "must be the type of an item", pointer="/payload/type")
    if kind == "custom_tool_call":
        item["arguments"] = dump_json({"input": item.pop("input", "")})
    elif kind == "local_shell_call":
        item |= {"name": "local_shell", "arguments": dump_json(item.pop("action", {}))}
    if kind in _CALLS:
        for key in ("call_id", "name", "arguments"):
            expect(item.get(key), str, "text", f"/payload/{key}")
        return join_names({**item, "type": "function_call"})
    if kind in _OUTPUTS:
        expect(item.get("call_id"), str, "text", "/payload/call_id")
        output = item.get("output", "")
        output = output.get("content", "") if isinstance(output, dict) else output
        return {**item, "type": "function_call_output", "output": output}
    if kind == "message":
        expect(item.get("role"), str, "text", "/payload/role")
        _check_content(item.get("content"))
    return item


def _check_content(content: object) -> None:
    if not isinstance(content, str):
        for place, part in enumerate(expect(content, list, "text or a list of parts", "/payload/content")):
            expect(part, dict, "a part", f"/payload/content/{place}")


def _usage(given: object) -> TokenUsage:
    return read_counts(
        given,
        input_tokens=("input_tokens",),
        output_tokens=("output_tokens",),
        cached_tokens=("cached_input_tokens",),
        reasoning_tokens=("reasoning_output_tokens",),
    )
