"""`/aggregate_metrics`: statistics of verify replies by task and overall, in the format of NeMo Gym.

Computes mean, max, min, median and sample standard deviation of every numeric column; Booleans count as 1 and 0.
Missing values, and numbers whose square overflows, are skipped. The standard deviation of fewer than two values is left
out, or 0 if no column has one.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from apps.gym.outcomes import read_mask
from apps.gym.rewards import MAX_REWARD
from apps.gym.serving.served_request import Answer, IncomingRequest, invalid, json_answer, read_object

_TOKENS = ("input_tokens", "output_tokens", "total_tokens")
_Columns = dict[str, list[float]]
_Groups = Mapping[int, dict[int, dict[str, Any]]]
"""Rows by task and rollout index."""


async def aggregate(incoming: IncomingRequest) -> Answer:
    """Handle the request; environments and agents share this route."""
    return json_answer(aggregate_metrics(read_object(incoming.body)))


def aggregate_metrics(body: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics. Masked rows only count in `coverage/…`, as in NeMo Gym 0.7.

    Raise Refused for a body without rows, and ValueError for two rows of the same rollout.
    """
    rows = body.get("verify_responses")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise invalid("list_type", ["body", "verify_responses"], "Input should be a valid list")
    groups: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        group = groups[_index(row.get("_ng_task_index"), 0)]
        number = _index(row.get("_ng_rollout_index"), len(group))
        if number in group:
            raise ValueError(f"two rows of task {row.get('_ng_task_index', 0)} have the rollout index {number}")
        group[number] = row
    scored = {
        index: {place: row for place, row in group.items() if not read_mask(row)} for index, group in groups.items()
    }
    measured = {index: group for index, group in scored.items() if group}
    overall = _figures(_columns([row for group in scored.values() for row in group.values()]))
    coverage = _coverage(groups, measured)
    return {
        "group_level_metrics": [_group(index, group) for index, group in sorted(measured.items())],
        "agent_metrics": {**overall, **coverage},
        "key_metrics": {**{name: value for name, value in overall.items() if name.startswith("mean/")}, **coverage},
    }


def _coverage(groups: _Groups, measured: _Groups) -> dict[str, int]:
    """Return how many rollouts and tasks the metrics cover; empty if no row is masked."""
    counts = [sum(map(len, each.values())) for each in (groups, measured)]
    if counts[0] == counts[1]:
        return {}
    return {
        "coverage/measured_rollouts": counts[1],
        "coverage/masked_rollouts": counts[0] - counts[1],
        "coverage/measured_tasks": len(measured),
        "coverage/fully_masked_tasks": len(groups) - len(measured),
    }


def _group(index: int, group: dict[int, dict[str, Any]]) -> dict[str, Any]:
    rows = [row for _, row in sorted(group.items())]
    agent = next((row["agent_ref"] for row in rows if isinstance(row.get("agent_ref"), dict)), {"name": "agent"})
    return {
        "_ng_task_index": index,
        **_figures(_columns(rows)),
        "sample": {"agent_ref": agent},
        "num_rollouts": len(rows),
        # A request names no plan, so NeMo Gym expects as many rollouts as there are.
        "expected_num_rollouts": len(rows),
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
        "rollout_infos": [
            {
                "rollout_id": f"{index}:{number}",
                "_ng_task_index": index,
                "_ng_rollout_index": number,
                **_numbers(row),
            }
            for number, row in sorted(group.items())
        ],
    }


def _columns(rows: list[dict[str, Any]]) -> _Columns:
    columns: _Columns = {}
    for row in rows:
        for name, value in _numbers(row).items():
            columns.setdefault(name, []).append(float(value))
    return columns


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    tokens = {name: usage.get(name) for name in _TOKENS} if isinstance(usage, dict) else {}
    own = {name: value for name, value in row.items() if not name.startswith("_ng_") and name != "mask_sample"}
    numbers = {**own, **tokens}
    return {
        name: float(value) if isinstance(value, float) else int(value)
        for name, value in numbers.items()
        if isinstance(value, int | float) and -MAX_REWARD <= value <= MAX_REWARD
    }


def _figures(columns: _Columns) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, reduce in (("mean", statistics.fmean), ("max", max), ("min", min), ("median", statistics.median)):
        figures.update({f"{name}/{column}": float(reduce(values)) for column, values in columns.items()})
    known = {column: values for column, values in columns.items() if len(values) > 1}
    if known:
        figures.update({f"std/{column}": statistics.stdev(values) for column, values in known.items()})
    else:
        figures.update({f"std/{column}": 0.0 for column in columns})
    return figures


def _index(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
