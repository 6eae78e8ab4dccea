"""Episodes of `verifiers` v1: a line of its traces.jsonl, whose messages are a graph with one branch for each time the
conversation was begun anew."""

from typing import Any

from apps.gym.loop.agent_loop import StopReason
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import MAX_REWARD
from apps.gym.rollout_files.response_turns import TOKEN_FIELDS, TURN_ENDS
from apps.gym.rollout_files.rollout_rows import FAILURE_CLASS
from apps.gym.rollout_files.shapes.chat_logs import FINISHED
from apps.gym.rollout_files.shapes.stored_conversations import prompt_items, read_messages, read_tools, spoken_items
from apps.gym.rollout_files.shapes.verifiers_results import class_of, is_number
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.parameters import PARAMS
from apps.gym.traces.items import Item, TaskRow

_STOPS: dict[str, StopReason] = {
    "max_turns": "max_steps",
    "max_input_tokens": "token_limit",
    "max_output_tokens": "token_limit",
    "max_total_tokens": "token_limit",
    "context_length": "context_length",
}
Node = dict[str, Any]


def is_episode(row: dict[str, Any]) -> bool:
    return isinstance(row.get("traces"), list) or isinstance(row.get("nodes"), list)


def read_episode(row: dict[str, Any]) -> tuple[dict[str, Any], TaskRow]:
    """The attempt of the agent that is trained as a NeMo Gym rollout row, and its task. What is kept is the last branch
    of its conversation, with its token ids. Raises RowRefused."""
    trace, at = _trained(row)
    path = _last_branch(trace, at)
    first = next((place for place, node in enumerate(path) if node.get("sampled") is True), len(path))
    failed = trace.get("ok") is False or (first == len(path) and bool(trace.get("errors")))
    if first == len(path) and not failed:
        raise RowRefused("no_attempt", "has no message that a model sampled", pointer=f"{at}/nodes")
    messages = read_messages([node.get("message") for node in path], f"{at}/nodes", text_role="user")
    if first == 0 or not messages:
        raise RowRefused(
            "no_prompt", "begins with the model: what it was asked has to stand first", pointer=f"{at}/nodes"
        )
    task = _task(row, trace, messages[:first], at)
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
    if stop := _STOPS.get(str(trace.get("stop_condition") or "")):
        gym_row["gymweb"] = {"stop_reason": stop}
    return {**gym_row, **_rewards(trace, at)}, task


def _trained(row: dict[str, Any]) -> tuple[dict[str, Any], str]:
    if isinstance(row.get("nodes"), list):
        return row, ""
    traces = _objects(row["traces"])
    trained = [trace for trace in traces if _object(trace.get("agent")).get("trainable") is not False]
    chosen = traces if len(traces) == 1 else trained
    if len(chosen) != 1:
        what = "holds no trace" if not traces else f"holds {len(chosen)} traces of agents that are trained"
        raise RowRefused("not_one_trace", f"{what}: give episodes with one, each in a line", pointer="/traces")
    return chosen[0], f"/traces/{traces.index(chosen[0])}"


def _last_branch(trace: dict[str, Any], at: str) -> list[Node]:
    """From the root to the node that was added last and that nothing follows."""
    nodes = trace.get("nodes") or []
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise RowRefused("wrong_type", "must be a list of nodes with messages", pointer=f"{at}/nodes")
    path: list[Node] = []
    here = len(nodes)
    place: object = here - 1 if nodes else None
    while place is not None:
        # Parents stand before their children, so that the walk ends.
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < here:
            where = f"{at}/nodes/{here}/parent"
            raise RowRefused("wrong_type", "must be the number of an earlier node", pointer=where)
        here = place
        path.append(nodes[here])
        place = nodes[here].get("parent")
    return path[::-1]


def _task(row: dict[str, Any], trace: dict[str, Any], prompt: list[dict[str, Any]], at: str) -> TaskRow:
    data = dict(_object(_object(trace.get("task") or row.get("task")).get("data")))
    params: dict[str, Any] = {"input": prompt_items(prompt)}
    if tools := read_tools(trace.get("tools"), f"{at}/tools"):
        params["tools"] = tools
    task: TaskRow = {PARAMS: params}
    number = data.pop("idx", None)
    number = data.get("name") if number is None else number
    if isinstance(number, int | str) and not isinstance(number, bool):
        task["id"] = number
    if data.get("answer") not in (None, ""):
        task["expected_answer"] = data["answer"]
    info = {key: value for key, value in data.items() if key not in ("prompt", "system_prompt") and value is not None}
    return {**task, "info": info} if info else task


def _rewards(trace: dict[str, Any], at: str) -> dict[str, Any]:
    """Each reward counts with its weight, and stands as a component; the metrics do without counting."""
    given = _object(trace.get("rewards"))
    rewards = {
        name: _worth(reward, f"{at}/rewards/{cut(name, 60)}") for name, reward in given.items() if reward is not None
    }
    metrics = {name: value for name, value in _object(trace.get("metrics")).items() if is_number(value)}
    components = {name: value for name, value in {**metrics, **rewards}.items() if abs(value) <= MAX_REWARD}
    if not rewards:
        return {"verification_skipped": True, "reward_components": components}
    return {"reward": sum(rewards.values()), "reward_components": components}


def _worth(reward: object, pointer: str) -> float:
    score, weight = _object(reward).get("score"), _object(reward).get("weight", 1.0)
    if not is_number(score) or not is_number(weight):
        raise RowRefused("reward", "must have a score and a weight, both numbers", pointer=pointer)
    return float(score) * float(weight)


def _with_tokens(spoken: list[Node], asked: list[Node], items: list[Item]) -> list[Item]:
    """The last item of each turn with the token ids of its node: what came before is its prompt."""
    before = [token for node in asked for token in _tokens(node)]
    turns = [item for item in items if TURN_ENDS in item]
    said = [node for node in spoken if _object(node.get("message")).get("role") == "assistant"]
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
    """Their count of the prompt leaves out what was cached."""
    told = [usage for call in calls if (usage := _object(call.get("usage")))]

    def total(*names: str) -> int:
        return int(sum(usage[name] for usage in told for name in names if is_number(usage.get(name))))

    if not told:
        return {}
    return {"input_tokens": total("prompt_tokens", "cached_input_tokens"), "output_tokens": total("completion_tokens")}


def _model(trace: dict[str, Any], call: dict[str, Any]) -> str:
    return str(call.get("model") or _object(_object(trace.get("agent")).get("config")).get("model") or "")


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
