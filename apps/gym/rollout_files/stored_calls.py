"""Model calls of a stored trajectory with their parents, and the events of a trace made from them.

A conversation without branches becomes a line, as the built-in loop writes it. Subagents, compactions and abandoned
turns make it a graph, as captured agents have it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, cast

from msgspec.structs import replace

from apps.gym.tasks.file_rows import RowRefused, wrong_type
from apps.gym.traces.events import (
    EnvironmentTurn,
    ModelCall,
    Prompt,
    RootReason,
    SessionOpened,
    ToolResult,
    TraceUnion,
)
from apps.gym.traces.graph import result_text
from apps.gym.traces.graph_tokens import TokenPacker
from apps.gym.traces.items import Item, TokenUsage, Tool, ToolNames, function_calls, text_of
from apps.gym.traces.tokens import TokenCapture, TokensMissing, capture_tokens, pack_tokens
from apps.gym.wires.chat_tokens import check_counts
from apps.gym.wires.protocol import has_all_counts, lacks_usage

MAX_COUNT = 2**31
MAX_CHARACTERS = 32
"""Characters of a reply per output token, on average, above which the token count is not the final one."""


@dataclass(slots=True, kw_only=True)
class StoredCall:
    """One reply. Its request is the parent's conversation, then `items_in`.

    `parent` and `spawned_by` are numbers of earlier calls from 1; 0 for none. `at` is in seconds since 1970. `tokens`
    are the ids of prompt and reply, and the logprobs. If `is_unfinished`, the output tokens are only those so far.
    """

    items_in: list[Item]
    items: list[Item]
    parent: int = 0
    root_reason: RootReason = ""
    spawned_by: int = 0
    lineage: int = 0
    tools: list[Tool] | None = None
    model: str = ""
    response_id: str = ""
    finish_reason: str = ""
    is_unfinished: bool = False
    usage: TokenUsage = field(default_factory=TokenUsage)
    sampling: dict[str, Any] = field(default_factory=dict)
    at: float | None = None
    tokens: tuple[Any, Any, Any] | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class StoredTrace:
    """A trajectory. `main` is the number of the call with the final answer.

    `tail` are the items after that call. `session` describes the origin. `left_out` counts what GymWeb does not import.
    """

    calls: list[StoredCall]
    main: int
    tools: list[Tool] = field(default_factory=list)
    tail: list[Item] = field(default_factory=list)
    session: dict[str, Any] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    reward: float | None = None
    components: dict[str, Any] | None = None
    stop_reason: str = ""
    task_id: str = ""

    @property
    def prompt(self) -> list[Item]:
        return next(call.items_in for call in self.calls if call.root_reason == "first")

    @property
    def model(self) -> str:
        return self.calls[self.main - 1].model or next((call.model for call in self.calls if call.model), "")


def path_to(calls: list[StoredCall], number: int) -> list[int]:
    """Return the numbers of the calls from the root to this call."""
    path = []
    while number:
        path.append(number)
        number = calls[number - 1].parent
    return path[::-1]


def number_lineages(calls: list[StoredCall], ends: list[int]) -> None:
    """Give every call its lineage, and roots without a reason theirs.

    The paths to `ends`, in order, are lineage 1; other branches get the next numbers.
    """
    first = path_to(calls, ends[0])[0]
    for number, call in enumerate(calls, start=1):
        if not call.parent and not call.root_reason:
            call.root_reason = "first" if number == first else "rewritten"
    for end in ends:
        for number in path_to(calls, end):
            calls[number - 1].lineage = 1
    last = 1
    continued = {(call.parent, call.lineage) for call in calls if call.lineage}
    for call in calls:
        if call.lineage:
            continue
        lineage = calls[call.parent - 1].lineage if call.parent else 0
        if not lineage or (call.parent, lineage) in continued:
            last += 1
            lineage = last
        call.lineage = lineage
        continued.add((call.parent, lineage))


def trace_events(trace: StoredTrace, environment: str) -> list[TraceUnion]:
    """Return the events of the trajectory, without a verification."""
    opened = SessionOpened(environment=environment, tools=trace.tools)
    is_line = all(call.parent == number for number, call in enumerate(trace.calls))
    return [opened, *_Events(trace, is_line=is_line).made()]


class _Events:
    def __init__(self, trace: StoredTrace, *, is_line: bool) -> None:
        self._trace = trace
        self._is_line = is_line
        self._began = min((call.at for call in trace.calls if call.at is not None), default=0.0)
        self._sizes = [0]
        self._before = b""
        """In a line, the token IDs of the last call with tokens."""
        self._packer = TokenPacker()
        self._names = ToolNames()
        self._told = Counter[str]()

    def made(self) -> Iterator[TraceUnion]:
        for number, call in enumerate(self._trace.calls, start=1):
            self._names.add(call.items)
            at = self._at(call)
            if self._is_line and number == 1:
                yield Prompt(items=call.items_in)
            else:
                yield from self._answers(call.items_in, at)
            yield self._call(number, call, at)
        yield from self._answers(self._trace.tail, self._at(self._trace.calls[-1]))

    def _at(self, call: StoredCall) -> float:
        return max(0.0, call.at - self._began) if call.at is not None else 0.0

    def _answers(self, items: list[Item], at: float) -> Iterator[TraceUnion]:
        """Yield the results of tools. In a line, other items are turns of the environment."""
        for is_result, run in groupby(items, lambda item: result_text(item) is not None):
            if is_result:
                yield from self._results(run, at)
            elif self._is_line:
                yield EnvironmentTurn(items=list(run), at=at)

    def _results(self, items: Iterator[Item], at: float) -> Iterator[TraceUnion]:
        seen = Counter[str]()
        for item in items:
            call_id, output = str(item.get("call_id", "")), result_text(item) or ""
            seen[call_id] += 1
            if seen[call_id] <= self._told[call_id] and not self._is_line:
                continue  # Several branches of a graph may continue one result.
            self._told[call_id] += 1
            error = output if item.get("status") == "incomplete" else ""
            yield ToolResult(call_id=call_id, name=self._names.take(call_id) or "", output=output, error=error, at=at)

    def _call(self, number: int, call: StoredCall, at: float) -> ModelCall:
        kept = self._sizes[call.parent]
        seen = kept + len(call.items_in)
        self._sizes.append(seen + len(call.items))
        packed, note = self._tokens(number, call)
        made = ModelCall(
            seen=seen,
            items=call.items,
            model=call.model,
            response_id=call.response_id,
            finish_reason=call.finish_reason or ("tool_calls" if function_calls(call.items) else "stop"),
            usage=call.usage,
            sampling=call.sampling,
            tokens=packed,
            tokens_note=note,
            notes=call.notes,
            at=at,
        )
        if not self._is_line:
            made.call, made.parent, made.kept, made.items_in = number, call.parent, kept, call.items_in
            made.lineage, made.root_reason, made.spawned_by = call.lineage, call.root_reason, call.spawned_by
            made.tools_in = call.tools
        return drop_partial_count(made, is_unfinished=call.is_unfinished)

    def _tokens(self, number: int, call: StoredCall) -> tuple[bytes | None, str]:
        """Return the packed tokens, and the reason for missing ones."""
        capture, note = _captured(call)
        if not self._is_line:
            return self._packer.pack(number, call.parent, capture), note
        if capture is None:
            return None, note
        packed, self._before = pack_tokens(capture, before=self._before), capture.ids
        return packed, ""


def _captured(call: StoredCall) -> tuple[TokenCapture | None, str]:
    if call.tokens is None:
        return None, ""
    if not all(isinstance(ids, list) for ids in call.tokens):
        return None, "incomplete"
    try:
        return check_counts(capture_tokens(*call.tokens), "", {} if call.is_unfinished else call.usage)
    except TokensMissing as missing:
        return None, missing.note


def count_without_usage(events: Iterable[TraceUnion]) -> int:
    """Return the number of replies of an imported attempt whose usage the file does not have.

    In rows of responses, the last reply has the usage of the whole attempt.
    """
    calls = [event for event in events if isinstance(event, ModelCall)]
    is_whole = bool(calls) and has_all_counts(calls[-1].usage) and not any(call.usage for call in calls[:-1])
    return 0 if is_whole else sum(map(lacks_usage, calls))


def drop_partial_count(call: ModelCall, *, is_unfinished: bool = False) -> ModelCall:
    """Return the call without a count of output tokens that is not final, and with a note about it.

    Agents that stream replies may store the count of the first event, which is far below the final one.
    """
    least = call.usage.get("output_tokens")
    length = sum(len(text_of(item)) + len(str(item.get("arguments", ""))) for item in call.items)
    if least is None or not (is_unfinished or length > MAX_CHARACTERS * max(least, 1)):
        return call
    usage: Any = {
        name: count for name, count in call.usage.items() if name not in ("output_tokens", "reasoning_tokens")
    }
    note = f"output tokens: at least {least}, because the file has no final count"
    return replace(call, usage=usage, notes=[*call.notes, note])


def read_counts(usage: object, **names: tuple[str, ...]) -> TokenUsage:
    """Return token counts. Each name of ours is the sum of the given names, if one of them is a count."""
    if not isinstance(usage, dict):
        return {}
    counts: dict[str, int] = {}
    for ours, theirs in names.items():
        found = [value for value in map(usage.get, theirs) if type(value) is int and 0 <= value < MAX_COUNT]
        if found:
            counts[ours] = min(sum(found), MAX_COUNT - 1)
    return cast(TokenUsage, counts)


def read_time(value: object, pointer: str) -> float | None:
    """Return an ISO 8601 time as seconds since 1970. Raises RowRefused."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise wrong_type(pointer, "an ISO 8601 time", value)
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        raise RowRefused("wrong_time", "must be an ISO 8601 time", pointer=pointer) from None
