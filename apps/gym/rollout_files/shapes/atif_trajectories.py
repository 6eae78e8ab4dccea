"""Read trajectories in ATIF (Agent Trajectory Interchange Format) 1.4 to 1.8.

Steps of the system and the user are input, steps of the agent are replies, and their observations are results of
tools. Embedded subagents become lineages. Copied context is input, never a reply.
"""

import re
from collections import Counter
from typing import Any

from apps.gym.rollout_files.shapes.stored_conversations import read_tools
from apps.gym.rollout_files.stored_calls import StoredCall, StoredTrace, number_lineages, read_counts, read_time
from apps.gym.tasks.file_rows import RowRefused, expect
from apps.gym.traces.chat_turns import call_item, message_item
from apps.gym.traces.items import Item, as_object, dump_json

Document = dict[str, Any]

VERSIONS = ("1.4", "1.5", "1.6", "1.7", "1.8")
MAX_SUBAGENT_DEPTH = 8
_VERSION = re.compile(r"(?:ATIF-)?v?(\d+\.\d+)")


def is_atif(row: Document) -> bool:
    return "steps" in row and ("schema_version" in row or "agent" in row)


def read_trajectory(row: Document) -> StoredTrace:
    """Return a trajectory. Raises RowRefused with the field."""
    _check_version(row)
    calls: list[StoredCall] = []
    left_out: Counter[str] = Counter()
    reader = _Steps(row, "", calls, left_out, depth=0)
    end = reader.read(root_reason="first", spawned_by=0)
    if not end:
        raise RowRefused("no_attempt", "has no step of the agent that a model wrote", pointer="/steps")
    number_lineages(calls, [end])
    ours = as_object(as_object(row.get("extra")).get("gymweb"))
    if row.get("continued_trajectory_ref"):
        left_out["continued_trajectory_ref"] += 1
    return StoredTrace(
        calls=calls,
        main=end,
        tools=reader.tools,
        tail=reader.waiting,
        session=_session(row),
        left_out=left_out,
        reward=ours.get("reward"),
        components=ours.get("reward_components"),
        stop_reason=str(ours.get("stop_reason") or ""),
        task_id=str(ours.get("task") or ""),
    )


def _check_version(row: Document) -> None:
    version = expect(row.get("schema_version"), str, "text", "/schema_version")
    found = _VERSION.fullmatch(version)
    if not found or found[1] not in VERSIONS:
        text = f"must be ATIF-v{VERSIONS[0]} to ATIF-v{VERSIONS[-1]}"
        raise RowRefused("unknown_version", text, pointer="/schema_version")


def _session(row: Document) -> dict[str, Any]:
    agent = row["agent"]
    told = {
        "id": row.get("session_id"),
        "trajectory_id": row.get("trajectory_id"),
        "agent": agent.get("name"),
        "agent_version": agent.get("version"),
        "notes": row.get("notes"),
    }
    return {"format": "atif", **{key: value for key, value in told.items() if isinstance(value, str)}}


class _Steps:
    """The steps of one document. Calls are appended to `calls`, of subagents before the reply that follows them."""

    def __init__(self, row: Document, at: str, calls: list[StoredCall], left_out: Counter[str], *, depth: int) -> None:
        if depth > MAX_SUBAGENT_DEPTH:
            raise RowRefused("too_deep", f"has subagents nested deeper than {MAX_SUBAGENT_DEPTH}", pointer=at)
        agent = expect(row.get("agent"), dict, "an object", f"{at}/agent")
        self._at = at
        self._steps = expect(row.get("steps"), list, "a list of steps", f"{at}/steps")
        self._model = str(agent.get("model_name") or "")
        self.tools = read_tools(agent.get("tool_definitions"), f"{at}/agent/tool_definitions")
        self._calls, self._left_out, self._depth = calls, left_out, depth
        self.waiting: list[Item] = []
        self._parent = 0
        self._subagents = self._embedded(row)

    def read(self, *, root_reason: Any, spawned_by: int) -> int:
        """Append the calls. Return the number of the last one, 0 without any."""
        steps = [self._checked(step, place) for place, step in enumerate(self._steps)]
        for place, step in enumerate(steps):
            at = f"{self._at}/steps/{place}"
            if step["source"] != "agent":
                self.waiting.append({"type": "message", "role": step["source"], "content": self._content(step, at)})
                self._observe(step, [], at, spawned_by=self._parent)
                continue
            items = self._reply(step, place, at)
            if step.get("is_copied_context") or step.get("llm_call_count") == 0:
                self._take_context(step, items, at)
                continue
            if not self._parent and not self.waiting:
                raise RowRefused("no_prompt", "starts with the agent. Put the prompt first", pointer=at)
            call = self._call(step, items, at)
            if not self._parent:
                call.root_reason, call.spawned_by = root_reason, spawned_by
                call.tools = self.tools if self._depth and self.tools else None
            self._calls.append(call)
            self.waiting, self._parent = [], len(self._calls)
            self._observe(step, items, at, spawned_by=self._parent)
        for name, place in self._subagents.items():
            self._start(name, place, spawned_by=0)
        return self._parent

    def _take_context(self, step: Document, items: list[Item], at: str) -> None:
        """Add a step that no model wrote, or that an earlier trajectory has, to the input."""
        if self._parent:
            text = (
                "is no reply of the model, but follows one. Only steps before the first reply may have "
                "is_copied_context or llm_call_count 0"
            )
            raise RowRefused("context_after_reply", text, pointer=at)
        self.waiting += items
        self._observe(step, items, at, spawned_by=0)

    def _checked(self, step: object, place: int) -> Document:
        at = f"{self._at}/steps/{place}"
        read = expect(step, dict, "a step", at)
        if read.get("step_id") != place + 1:
            raise RowRefused(
                "wrong_step_id", f"must be {place + 1}: steps are numbered from 1", pointer=f"{at}/step_id"
            )
        if read.get("source") not in ("system", "user", "agent"):
            raise RowRefused("unknown_source", "must be system, user or agent", pointer=f"{at}/source")
        return read

    def _reply(self, step: Document, place: int, at: str) -> list[Item]:
        name, content = f"{len(self._calls)}_{place}", self._content(step, at)
        items: list[Item] = []
        if thought := step.get("reasoning_content"):
            summary = [{"type": "summary_text", "text": expect(thought, str, "text", f"{at}/reasoning_content")}]
            items.append({"type": "reasoning", "id": f"rs_{name}", "summary": summary})
        texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        parts: list[dict[str, Any]] = [
            {"type": "output_text", "text": text, "annotations": []} for text in texts if text
        ]
        if parts:
            items.append(message_item(name, parts))
        given = expect(step.get("tool_calls") or [], list, "a list of calls", f"{at}/tool_calls")
        return items + [self._tool_call(one, name, number, at) for number, one in enumerate(given)]

    def _tool_call(self, given: object, name: str, number: int, at: str) -> Item:
        here = f"{at}/tool_calls/{number}"
        call = expect(given, dict, "a call", here)
        call_id = expect(call.get("tool_call_id"), str, "text", f"{here}/tool_call_id")
        tool = expect(call.get("function_name"), str, "text", f"{here}/function_name")
        arguments = expect(call.get("arguments"), dict, "an object", f"{here}/arguments")
        raw = as_object(call.get("extra")).get("raw_arguments")
        written = raw if isinstance(raw, str) else dump_json(arguments)
        return call_item(name, number, call_id=call_id, tool=tool, arguments=written)

    def _call(self, step: Document, items: list[Item], at: str) -> StoredCall:
        metrics = expect(step.get("metrics") or {}, dict, "an object", f"{at}/metrics")
        ids = (metrics.get("prompt_token_ids"), metrics.get("completion_token_ids"), metrics.get("logprobs"))
        count = step.get("llm_call_count")
        effort = step.get("reasoning_effort")
        return StoredCall(
            items_in=self.waiting,
            items=items,
            parent=self._parent,
            model=str(step.get("model_name") or self._model),
            usage=read_counts(
                metrics,
                input_tokens=("prompt_tokens",),
                output_tokens=("completion_tokens",),
                cached_tokens=("cached_tokens",),
            ),
            sampling={"reasoning": {"effort": effort}} if isinstance(effort, str) else {},
            at=read_time(step.get("timestamp"), f"{at}/timestamp"),
            tokens=ids if any(value is not None for value in ids) else None,
            notes=[f"metrics of {count} calls"] if type(count) is int and count > 1 else [],
        )

    def _observe(self, step: Document, items: list[Item], at: str, *, spawned_by: int) -> None:
        """Add the results of a step to the input of the next reply, and start the subagents that they name."""
        observation = expect(step.get("observation") or {}, dict, "an object", f"{at}/observation")
        results = expect(observation.get("results") or [], list, "a list of results", f"{at}/observation/results")
        ids = [str(item["call_id"]) for item in items if item["type"] == "function_call"]
        for number, given in enumerate(results):
            here = f"{at}/observation/results/{number}"
            result = expect(given, dict, "a result", here)
            refs = expect(
                result.get("subagent_trajectory_ref") or [], list, "a list", f"{here}/subagent_trajectory_ref"
            )
            for ref in refs:
                self._refer(as_object(ref), spawned_by)
            self._take_result(result, ids, here)

    def _take_result(self, result: Document, ids: list[str], at: str) -> None:
        source, content = result.get("source_call_id"), self._content(result, at, key="content")
        if source is not None and source not in ids:
            raise RowRefused("unknown_call", "must name a call of the same step", pointer=f"{at}/source_call_id")
        if source is None and len(ids) == 1:
            source = ids[0]
        if source is not None:
            self.waiting.append({"type": "function_call_output", "call_id": source, "output": content})
        elif content:
            self.waiting.append({"type": "message", "role": "user", "content": content})

    def _content(self, given: Document, at: str, *, key: str = "message") -> str | list[dict[str, Any]]:
        """Return text or parts. Files beside the trajectory are left out by name."""
        value = given.get(key)
        if isinstance(value, str) or (value is None and key == "content"):
            return value or ""
        parts = expect(value, list, "text or a list of parts", f"{at}/{key}")
        return [self._part(part, f"{at}/{key}/{place}") for place, part in enumerate(parts)]

    def _part(self, given: object, at: str) -> dict[str, Any]:
        part = expect(given, dict, "a part", at)
        if part.get("type") == "text":
            return {"type": "input_text", "text": expect(part.get("text"), str, "text", f"{at}/text")}
        source = expect(part.get("source"), dict, "an object", f"{at}/source")
        path = expect(source.get("path"), str, "text", f"{at}/source/path")
        if part.get("type") == "image" and path.startswith(("data:", "https://", "http://")):
            return {"type": "input_image", "image_url": path}
        self._left_out[f"file {path}"] += 1
        return {"type": "input_text", "text": f"[{part.get('type')} left out: {path}]"}

    def _embedded(self, row: Document) -> dict[str, int]:
        """Return the places of the subagents by `trajectory_id`."""
        at = f"{self._at}/subagent_trajectories"
        self._documents = expect(row.get("subagent_trajectories") or [], list, "a list of trajectories", at)
        places: dict[str, int] = {}
        for place, document in enumerate(self._documents):
            read = expect(document, dict, "a trajectory", f"{at}/{place}")
            name = expect(read.get("trajectory_id"), str, "text", f"{at}/{place}/trajectory_id")
            if name in places:
                raise RowRefused("repeated_id", "is already used", pointer=f"{at}/{place}/trajectory_id")
            places[name] = place
        return places

    def _refer(self, ref: Document, spawned_by: int) -> None:
        name = ref.get("trajectory_id")
        place = self._subagents.get(name) if isinstance(name, str) else None
        if isinstance(name, str) and place is not None:
            self._start(name, place, spawned_by=spawned_by)
            self._subagents = {one: at for one, at in self._subagents.items() if one != name}
        else:
            self._left_out[f"subagent {ref.get('trajectory_path') or name}"] += 1

    def _start(self, name: str, place: int, *, spawned_by: int) -> None:
        at = f"{self._at}/subagent_trajectories/{place}"
        steps = _Steps(self._documents[place], at, self._calls, self._left_out, depth=self._depth + 1)
        if not steps.read(root_reason="subagent", spawned_by=spawned_by):
            self._left_out[f"subagent {name} without replies"] += 1
