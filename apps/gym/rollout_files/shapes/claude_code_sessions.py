"""Read session files of Claude Code: a tree of lines, in which each reply is one or several lines.

Lines name the line before them by `parentUuid`. Lines with the same `message.id` are one reply. A reply with several
tool calls has their results on side branches. Subagents (`isSidechain`), turns that the user rewound and compactions
are separate branches. Where the file has the requests of the replies, prompts and tools come from them.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from apps.gym.rollout_files.shapes.claude_code_requests import RecordedRequest, RecordedRequests
from apps.gym.rollout_files.stored_calls import (
    StoredCall,
    StoredTrace,
    number_lineages,
    path_to,
    read_counts,
    read_time,
)
from apps.gym.tasks.file_rows import RowRefused, expect
from apps.gym.traces.items import Item, as_object
from apps.gym.wires.messages_content import assistant_items, input_content, read_call_id

Line = dict[str, Any]

_FINISHED = {
    "max_tokens": "max_output_tokens",
    "refusal": "content_filter",
    "model_context_window_exceeded": "context_length",
}


def is_claude_code_line(row: Line) -> bool:
    """Return True for a line of a session. Files may begin with lines that are not part of the conversation."""
    if not isinstance(row.get("type"), str):
        return False
    in_tree = "uuid" in row and "parentUuid" in row
    return in_tree or ("sessionId" in row and "payload" not in row) or (row["type"] == "summary" and "leafUuid" in row)


def read_claude_code(lines: list[tuple[int, Line]]) -> StoredTrace:
    """Return the trajectory of a session. Raises RowRefused with line and field."""
    return _Session(lines).trace()


class _Reply:
    """The lines of one reply: the number of its first line, and its content."""

    def __init__(self, number: int, line: Line) -> None:
        self.number = number
        self.first = self.last = line
        self.blocks: list[dict[str, Any]] = []
        self.stop: Any = ""
        """The stop reason, or None if each line says that there is none yet."""


class _Session:
    def __init__(self, lines: list[tuple[int, Line]]) -> None:
        self._lines = {str(line["uuid"]): (number, line) for number, line in lines if line.get("uuid")}
        self._left_out: Counter[str] = Counter()
        self._replies: dict[str, _Reply] = {}
        self._reply_of: dict[str, str] = {}
        """The reply of each line by `uuid`."""
        self._results: dict[str, tuple[int, Line]] = {}
        """The first line with the result of each tool call."""
        self._requests = RecordedRequests()
        self._session: dict[str, Any] = {"format": "claude_code"}
        for number, line in lines:
            self._take(number, line)
        if not self._replies:
            raise RowRefused("no_attempt", "the session has no reply of a model", line=lines[0][0])
        replies = list(self._replies.values())
        self._all_side = all(reply.first.get("isSidechain") for reply in replies)

    def _take(self, number: int, line: Line) -> None:
        kind = line.get("type")
        for ours, theirs in (("id", "sessionId"), ("agent_version", "version"), ("folder", "cwd")):
            if isinstance(line.get(theirs), str):
                self._session.setdefault(ours, line[theirs])
        if kind == "assistant" and not _is_error(line):
            self._take_reply(number, line)
        elif kind == "user":
            for block in _blocks(number, line):
                if block.get("type") == "tool_result":
                    self._results.setdefault(str(block.get("tool_use_id")), (number, line))
        elif not self._requests.take(line) and not _is_used(line):
            subtype = f"/{line['subtype']}" if isinstance(line.get("subtype"), str) else ""
            self._left_out[f"{kind}{subtype}"] += 1

    def _take_reply(self, number: int, line: Line) -> None:
        blocks, own = _blocks(number, line), str(line.get("uuid") or number)
        name = str(line["message"].get("id") or own)
        reply = self._replies.setdefault(name, _Reply(number, line))
        reply.last = line
        reply.blocks += blocks
        stop = line["message"].get("stop_reason", reply.stop)
        reply.stop = stop or reply.stop or stop
        self._reply_of[own] = name

    def trace(self) -> StoredTrace:
        numbers = {name: number for number, name in enumerate(self._replies, start=1)}
        calls: list[StoredCall] = []
        requests: list[RecordedRequest | None] = []
        befores = []
        for name, reply in self._replies.items():
            parent, between = self._before(reply)
            if parent and numbers[parent] > len(calls):
                raise RowRefused("wrong_order", "names a later line", pointer="/parentUuid", line=reply.number)
            befores.append(between)
            calls.append(self._call(name, reply, numbers[parent] if parent else 0, between))
            requests.append(self._requests.find(reply.first.get("requestRef")))
        _use_requests(calls, requests)
        ends = self._explain_roots(calls, befores)
        number_lineages(calls, ends)
        tail = self._tail(list(self._replies)[ends[-1] - 1])
        return StoredTrace(
            calls=calls,
            main=ends[-1],
            tools=requests[0].tools if requests[0] else [],
            tail=tail,
            session=self._session,
            left_out=self._left_out,
        )

    def _before(self, reply: _Reply) -> tuple[str, list[tuple[int, Line]]]:
        """Return the reply before, and the lines between both in the order of the file."""
        between: dict[int, Line] = {}
        here, parent = reply.first.get("parentUuid"), ""
        while here in self._lines:
            if here in self._reply_of:
                parent = self._reply_of[here]
                break
            number, line = self._lines[here]
            if number in between:
                raise RowRefused("loop", "leads back to the same line", pointer="/parentUuid", line=reply.number)
            between[number] = line
            here = line.get("parentUuid")
        if parent:
            results = self._results_of(self._replies[parent])
            between |= {number: line for number, line in results if number < reply.number}
        return parent, sorted(between.items())

    def _results_of(self, reply: _Reply) -> Iterator[tuple[int, Line]]:
        ids = (str(block.get("id")) for block in reply.blocks if block.get("type") == "tool_use")
        return (self._results[call_id] for call_id in ids if call_id in self._results)

    def _call(self, name: str, reply: _Reply, parent: int, between: list[tuple[int, Line]]) -> StoredCall:
        dropped: list[str] = []
        items = assistant_items(reply.blocks, name, dropped=dropped)
        items_in = [item for number, line in between for item in _input_items(number, line, dropped)]
        told = reply.last["message"]
        if not parent and not items_in:
            raise RowRefused("no_prompt", "the reply has no prompt before it", pointer="/parentUuid", line=reply.number)
        try:
            at = read_time(reply.last.get("timestamp"), "/timestamp")
        except RowRefused as refusal:
            raise RowRefused(refusal.code, refusal.message, line=reply.number) from None
        return StoredCall(
            items_in=items_in,
            items=items,
            parent=parent,
            model=str(told.get("model") or ""),
            response_id=str(told.get("id") or ""),
            finish_reason=_FINISHED.get(str(reply.stop), ""),
            is_unfinished=reply.stop is None,
            usage=read_counts(
                told.get("usage"),
                input_tokens=("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
                output_tokens=("output_tokens",),
                cached_tokens=("cache_read_input_tokens",),
                cache_write_tokens=("cache_creation_input_tokens",),
            ),
            at=at,
            notes=[f"left out: {kind}" for kind in dropped],
        )

    def _explain_roots(self, calls: list[StoredCall], befores: list[list[tuple[int, Line]]]) -> list[int]:
        """Set why calls have no parent. Return the last call of the conversation, and those before compactions."""
        sides = [self._is_side(reply) for reply in self._replies.values()]
        main = max(number for number, is_side in enumerate(sides, start=1) if not is_side)
        ends = [main]
        while _is_compacted(befores[(root := path_to(calls, ends[0])[0]) - 1]):
            earlier = [number for number in range(1, root) if not sides[number - 1]]
            if not earlier:
                break
            calls[root - 1].root_reason = "compaction"
            ends.insert(0, earlier[-1])
        for place, call in enumerate(calls):
            if sides[place] and not call.parent:
                call.root_reason = "subagent"
                spawner = self._spawner(befores[place])
                call.spawned_by = spawner if spawner <= place else 0
        return ends

    def _is_side(self, reply: _Reply) -> bool:
        return bool(reply.first.get("isSidechain")) and not self._all_side

    def _spawner(self, before: list[tuple[int, Line]]) -> int:
        """Return the call that started a subagent: its prompt is an argument, or its result names the agent."""
        asked = [block.get("text") for number, line in before for block in _blocks(number, line)]
        agent = next((line["agentId"] for _, line in before if line.get("agentId")), None)
        for number, reply in enumerate(self._replies.values(), start=1):
            for block in reply.blocks:
                prompt = as_object(block.get("input")).get("prompt")
                _, answer = self._results.get(str(block.get("id")), (0, {}))
                told = as_object(answer.get("toolUseResult")).get("agentId")
                if (prompt and prompt in asked) or (agent and told == agent):
                    return number
        return 0

    def _tail(self, name: str) -> list[Item]:
        """Return the results of the last calls, which no reply followed."""
        lines = dict(self._results_of(self._replies[name]))
        return [item for number, line in sorted(lines.items()) for item in _input_items(number, line, [])]


def _use_requests(calls: list[StoredCall], requests: list[RecordedRequest | None]) -> None:
    """Give calls the sampling and tools of their requests, and conversations their whole prompts."""
    first = requests[0].tools if requests[0] else []
    for call, request in zip(calls, requests, strict=True):
        if request is None:
            continue
        call.sampling = request.sampling
        before = requests[call.parent - 1] if call.parent else None
        offered = before.tools if before else first
        call.tools = request.tools if request.tools != offered else None
        if not call.parent and request.items:
            call.items_in = request.items


def _is_error(line: Line) -> bool:
    """Return True for an error of the API, which Claude Code writes like a reply."""
    return bool(line.get("isApiErrorMessage")) or as_object(line.get("message")).get("model") == "<synthetic>"


def _is_compacted(before: list[tuple[int, Line]]) -> bool:
    return any(line.get("subtype") == "compact_boundary" or line.get("isCompactSummary") for _, line in before)


def _blocks(number: int, line: Line) -> list[dict[str, Any]]:
    """Return the content blocks of a line of the conversation. Raises RowRefused."""
    if line.get("type") not in ("user", "assistant"):
        return []
    try:
        content = expect(line.get("message"), dict, "an object", "/message").get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        blocks = expect(content, list, "text or a list of blocks", "/message/content")
        return [expect(one, dict, "a block", f"/message/content/{place}") for place, one in enumerate(blocks)]
    except RowRefused as refusal:
        raise RowRefused(refusal.code, refusal.message, line=number) from None


def _is_used(line: Line) -> bool:
    """Return True for a line whose content becomes part of the trace."""
    return line.get("subtype") == "compact_boundary" or (line.get("type") == "attachment" and bool(_attached(line)))


def _attached(line: Line) -> str:
    """Return the text that an attachment put into the request."""
    given = line.get("rendered") or as_object(line.get("attachment")).get("rendered")
    texts = [one.get("content") for one in given if isinstance(one, dict)] if isinstance(given, list) else [given]
    return "\n".join(text for text in texts if isinstance(text, str))


def _input_items(number: int, line: Line, dropped: list[str]) -> Iterator[Item]:
    if line.get("type") == "attachment" and (text := _attached(line)):
        role = line.get("renderedRole") or as_object(line.get("attachment")).get("renderedRole")
        yield {"type": "message", "role": "system" if role == "system" else "user", "content": text}
    if line.get("type") != "user":
        return
    for is_result, run in groupby(_blocks(number, line), lambda block: block.get("type") == "tool_result"):
        if is_result:
            yield from (_result(block, dropped) for block in run)
        elif content := input_content(run, dropped=dropped):
            yield {"type": "message", "role": "user", "content": content}


def _result(block: dict[str, Any], dropped: list[str]) -> Item:
    content = block.get("content")
    given = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    output = content if isinstance(content, str) else input_content(given, dropped=dropped)
    failed = {"status": "incomplete"} if block.get("is_error") else {}
    call_id = read_call_id(str(block.get("tool_use_id") or ""))
    return {"type": "function_call_output", "call_id": call_id, "output": output, **failed}
