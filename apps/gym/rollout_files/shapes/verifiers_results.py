"""Convert results of the `verifiers` library to NeMo Gym rows.

A result is a line of results.jsonl, a row of a data set saved from them, or a v1 episode (a line of traces.jsonl). The
messages of an episode are a graph with a branch for each start of the conversation.
"""

from typing import Any, TypeGuard

from apps.gym.outcomes import VERIFIERS_STOPS
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import MAX_REWARD, REWARD_BOUNDS
from apps.gym.rollout_files.response_turns import TOKEN_FIELDS, TURN_ENDS
from apps.gym.rollout_files.rollout_rows import FAILURE_CLASS
from apps.gym.rollout_files.shapes.stored_conversations import (
    FINISHED,
    read_messages,
    read_usage,
    spoken_items,
    stored_task,
)
from apps.gym.tasks.file_rows import RowRefused, expect
from apps.gym.traces.items import Item, TaskRow, as_object, read_json

_NAMES = (
    "example_id id prompt completion answer task info reward metrics error error_chain long_error_chain timing "
    "generation_ms scoring_ms total_ms is_completed is_truncated stop_condition tool_defs token_usage model "
    "trajectory advantage"
)
_KNOWN = frozenset(_NAMES.split())


def is_metadata(row: dict[str, Any]) -> bool:
    """Return True for metadata.json next to the results, which has the model name."""
    return "env_id" in row and "rollouts_per_example" in row and "completion" not in row


def read_result(row: dict[str, Any]) -> tuple[dict[str, Any], TaskRow]:
    """Return the result as a NeMo Gym rollout row, and its task.

    A result with an error is a failure, and its reward of 0 is dropped. Raises RowRefused.
    """
    error = row.get("error")
    prompt = read_messages(row.get("prompt"), "/prompt", text_role="user")
    if not prompt:
        raise RowRefused("empty", "is empty. Give the prompt as messages or text", pointer="/prompt")
    if row.get("completion") is None and not error:
        text = "is missing. Give the reply as messages or text"
        raise RowRefused("missing", text, pointer="/completion")
    completion = read_messages(row.get("completion") or [], "/completion", text_role="assistant")
    task = _task(row, prompt)
    gym_row = {
        **task,
        **{key: row[key] for key in ("is_truncated", "stop_condition") if row.get(key)},
        **_own_columns(row),
        "response": {
            "model": str(row.get("model") or ""),
            "output": spoken_items(completion, len(prompt)),
            "usage": read_usage(row.get("token_usage")),
        },
    }
    if error:
        return {**gym_row, FAILURE_CLASS: class_of(error), "_ng_failure_message": _words_of(error)}, task
    stop = VERIFIERS_STOPS.get(str(row.get("stop_condition") or ""))
    if stop is None and row.get("is_truncated") is True:
        stop = "max_output_tokens"
    if stop:
        gym_row["gymweb"] = {"stop_reason": stop}
    return {**gym_row, "reward": row.get("reward"), "reward_components": _metrics(row)}, task


def _task(row: dict[str, Any], prompt: list[dict[str, Any]]) -> TaskRow:
    info = _info(row)
    offered = row.get("tool_defs") or (info.get("oai_tools") if isinstance(info, dict) else None)
    number = row.get("example_id", row.get("id"))
    task = stored_task(prompt, offered, "/tool_defs", number=number, answer=row.get("answer"))
    if row.get("task") not in (None, ""):
        task["task"] = row["task"]
    if info:
        task["info"] = {k: v for k, v in info.items() if k != "oai_tools"} if isinstance(info, dict) else info
    return task


def _info(row: dict[str, Any]) -> Any:
    """Return `info` as an object, which some data sets store as text."""
    info = row.get("info")
    return read_json(info or "{}", {"text": info}) if isinstance(info, str) else info


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    """Return the values of the rubric's functions. Older data sets store each in its own column."""
    if (columns := row.get("metrics")) is None:
        columns = {key: value for key, value in row.items() if key not in _KNOWN}
    expect(columns, dict, "an object of numbers", "/metrics")
    components = {key: value for key, value in columns.items() if is_number(value)}
    for key, value in components.items():
        if not abs(value) <= MAX_REWARD:
            raise RowRefused("reward", f"must be {REWARD_BOUNDS}", pointer=f"/metrics/{cut(key, 60)}")
    return components


def _own_columns(row: dict[str, Any]) -> dict[str, Any]:
    """Return additional columns, except metrics, each of which is also a separate column."""
    metrics = row.get("metrics") or {}
    return {
        key: value
        for key, value in row.items()
        if key not in _KNOWN and key not in metrics and not (row.get("metrics") is None and is_number(value))
    }


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


_CLASSES = {"ModelError": "model_error", "InvalidModelResponseError": "model_error", "ProviderError": "model_error"}


def class_of(error: object) -> str:
    """Return the class of the error, from its record or its `repr`."""
    name = error.get("error") if isinstance(error, dict) else str(error).partition("(")[0]
    return _CLASSES.get(str(name), cut(str(name), 100) or "error")


def _words_of(error: object) -> str:
    if not isinstance(error, dict):
        return str(error)
    return str(error.get("message") or error.get("error_chain_str") or error.get("error") or "")


Node = dict[str, Any]


def is_episode(row: dict[str, Any]) -> bool:
    return isinstance(row.get("traces"), list) or isinstance(row.get("nodes"), list)


def read_episode(row: dict[str, Any]) -> tuple[dict[str, Any], TaskRow]:
    """Return the attempt of the trained agent as a NeMo Gym rollout row, and its task.

    Only the last branch of the conversation is kept, with token IDs. Raises RowRefused.
    """
    trace, at = _trained(row)
    path = _last_branch(trace, at)
    first = next((place for place, node in enumerate(path) if node.get("sampled") is True), len(path))
    failed = trace.get("ok") is False or (first == len(path) and bool(trace.get("errors")))
    if first == len(path) and not failed:
        raise RowRefused("no_attempt", "has no sampled message", pointer=f"{at}/nodes")
    messages = read_messages([node.get("message") for node in path], f"{at}/nodes", text_role="user")
    if first == 0 or not messages:
        raise RowRefused("no_prompt", "starts with the model. Put the prompt first", pointer=f"{at}/nodes")
    task = _episode_task(row, trace, messages[:first], at)
    calls = [call for call in _objects(trace.get("calls")) if not call.get("error")]
    last = calls[-1] if calls else {}
    cut = FINISHED.get(str(last.get("finish_reason") or ""))
    gym_row = {
        **task,
        **{key: trace[key] for key in ("stop_condition", "timing") if trace.get(key)},
        "response": {
            "model": _model(trace, last),
            "output": _with_tokens(path[first:], path[:first], spoken_items(messages[first:], first)),
            "usage": _usage(calls),
            **({"incomplete_details": {"reason": cut}} if cut else {}),
        },
    }
    if failed:
        error = (_objects(trace.get("errors")) or _objects(row.get("errors")) or [{}])[-1]
        told = {
            FAILURE_CLASS: class_of({"error": error.get("type")}),
            "_ng_failure_message": error.get("message") or "",
        }
        return {**gym_row, **told}, task
    if stop := VERIFIERS_STOPS.get(str(trace.get("stop_condition") or "")):
        gym_row["gymweb"] = {"stop_reason": stop}
    return {**gym_row, **_rewards(trace, at)}, task


def _trained(row: dict[str, Any]) -> tuple[dict[str, Any], str]:
    if isinstance(row.get("nodes"), list):
        return row, ""
    traces = _objects(row["traces"])
    trained = [trace for trace in traces if as_object(trace.get("agent")).get("trainable") is not False]
    chosen = traces if len(traces) == 1 else trained
    if len(chosen) != 1:
        what = "holds no trace" if not traces else f"has {len(chosen)} traces of trained agents"
        raise RowRefused(
            "not_one_trace", f"{what}. Give episodes with one trained agent, one per line", pointer="/traces"
        )
    return chosen[0], f"/traces/{traces.index(chosen[0])}"


def _last_branch(trace: dict[str, Any], at: str) -> list[Node]:
    """Return the path from the root to the newest leaf."""
    nodes = trace.get("nodes") or []
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise RowRefused("wrong_type", "must be a list of nodes with messages", pointer=f"{at}/nodes")
    path: list[Node] = []
    here = len(nodes)
    place: object = here - 1 if nodes else None
    while place is not None:
        # Parents come before their children, so the loop ends.
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < here:
            where = f"{at}/nodes/{here}/parent"
            raise RowRefused("wrong_type", "must be the number of an earlier node", pointer=where)
        here = place
        path.append(nodes[here])
        place = nodes[here].get("parent")
    return path[::-1]


def _episode_task(row: dict[str, Any], trace: dict[str, Any], prompt: list[dict[str, Any]], at: str) -> TaskRow:
    data = dict(as_object(as_object(trace.get("task") or row.get("task")).get("data")))
    number = data.pop("idx", None)
    number = data.get("name") if number is None else number
    task = stored_task(prompt, trace.get("tools"), f"{at}/tools", number=number, answer=data.get("answer"))
    info = {key: value for key, value in data.items() if key not in ("prompt", "system_prompt") and value is not None}
    return {**task, "info": info} if info else task


def _rewards(trace: dict[str, Any], at: str) -> dict[str, Any]:
    """Return the rewards as weighted components, and metrics without weights."""
    given = as_object(trace.get("rewards"))
    rewards = {
        name: _worth(reward, f"{at}/rewards/{cut(name, 60)}") for name, reward in given.items() if reward is not None
    }
    metrics = {name: value for name, value in as_object(trace.get("metrics")).items() if is_number(value)}
    components = {name: value for name, value in {**metrics, **rewards}.items() if abs(value) <= MAX_REWARD}
    if not rewards:
        return {"verification_skipped": True, "reward_components": components}
    return {"reward": sum(rewards.values()), "reward_components": components}


def _worth(reward: object, pointer: str) -> float:
    score, weight = as_object(reward).get("score"), as_object(reward).get("weight", 1.0)
    if not is_number(score) or not is_number(weight):
        raise RowRefused("reward", "must have a score and a weight, both numbers", pointer=pointer)
    return float(score) * float(weight)


def _with_tokens(spoken: list[Node], asked: list[Node], items: list[Item]) -> list[Item]:
    """Return the items, with the token IDs of its node on the last item of each turn. Earlier tokens are its prompt."""
    before = [token for node in asked for token in _tokens(node)]
    turns = [item for item in items if TURN_ENDS in item]
    said = [node for node in spoken if as_object(node.get("message")).get("role") == "assistant"]
    ends = dict(zip(map(id, said), turns, strict=True))
    for node in spoken:
        tokens, mask, logprobs = _tokens(node), node.get("mask"), node.get("logprobs")
        sampled = sum(mask) if isinstance(mask, list) and all(isinstance(one, bool) for one in mask) else 0
        if sampled and id(node) in ends and isinstance(logprobs, list) and len(tokens) == len(mask or ()):
            begin = len(tokens) - sampled
            values = (before + tokens[:begin], tokens[begin:], logprobs)
            ends[id(node)].update(zip(TOKEN_FIELDS, values, strict=True))
        before = before + tokens
    return items


def _tokens(node: Node) -> list[Any]:
    tokens = node.get("token_ids")
    return tokens if isinstance(tokens, list) else []


def _usage(calls: list[dict[str, Any]]) -> dict[str, int]:
    """Return the token usage. Prompt counts of `verifiers` exclude cached tokens, so these are added."""
    told = [usage for call in calls if (usage := as_object(call.get("usage")))]

    def total(*names: str) -> int:
        return int(sum(usage[name] for usage in told for name in names if is_number(usage.get(name))))

    if not told:
        return {}
    return {"input_tokens": total("prompt_tokens", "cached_input_tokens"), "output_tokens": total("completion_tokens")}


def _model(trace: dict[str, Any], call: dict[str, Any]) -> str:
    return str(call.get("model") or as_object(as_object(trace.get("agent")).get("config")).get("model") or "")


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
