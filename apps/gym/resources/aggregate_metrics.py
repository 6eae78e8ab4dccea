"""Request the metrics that a resource server computes over a collection: NeMo Gym's `/aggregate_metrics`."""

from typing import Any, NamedTuple

import orjson

from apps.gym.errors import EnvironmentFault
from apps.gym.resources.server_calls import MAX_REPLY, Caller, check_success
from apps.gym.resources.verify_bodies import keep_small, parse_object
from apps.gym.storable import find_unstorable
from apps.gym.tasks.parameters import PARAMS
from apps.gym.tasks.rollout_keys import DETAILS, with_details
from apps.gym.traces.items import TaskRow

_ROUTE = "aggregate_metrics"
_MAX_METRICS = 5_000
_MISSING = (404, 405, 501)


class AggregatedMetrics(NamedTuple):
    """Metrics by name, as the server names them. `key_metrics` are its headlines. Values are usually numbers."""

    key_metrics: dict[str, Any]
    agent_metrics: dict[str, Any]


def verify_response(
    row: TaskRow,
    details: dict[str, Any],
    *,
    reward: float,
    components: dict[str, float],
    task_index: int,
    repeat: int,
    agent: str,
    tokens: tuple[int, int],
) -> dict[str, Any]:
    """Return one item of `verify_responses`: task row, verifier fields, reward and token usage.

    As NeMo Gym does, it leaves out the request and the response, except for the usage. `details` are the stored fields
    of the verifier, and `tokens` the numbers of input and output tokens.
    """
    whole, _ = with_details(row, details)
    left_out = {PARAMS, DETAILS}
    return {
        **{key: value for key, value in whole.items() if key not in left_out},
        "reward": reward,
        **({"reward_components": components} if components else {}),
        "_ng_task_index": task_index,
        "_ng_rollout_index": repeat,
        "agent_ref": {"type": "responses_api_agents", "name": agent},
        "response": {
            "usage": {"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": tokens[0] + tokens[1]}
        },
    }


async def ask_metrics(caller: Caller, verify_responses: bytes, *, seconds: float) -> AggregatedMetrics | None:
    """Send the JSON array of items of `verify_response`. Return None if the server has no such route.

    Raises EnvironmentFault or TimedOut.
    """
    body = b'{"verify_responses":' + verify_responses + b"}"
    # The reply has figures of each task and of each rollout, which are not kept.
    most = MAX_REPLY + 4 * len(body)
    reply = await caller.post(_ROUTE, body, cookies={}, seconds=seconds, patient=True, max_bytes=most)
    if reply.status in _MISSING:
        return None
    told = f"{caller.name}: POST /{_ROUTE}"
    check_success(reply, told)
    given = parse_object(reply.body, f"{caller.name}: the reply of /{_ROUTE}", EnvironmentFault, orjson.loads)
    return AggregatedMetrics(_metrics(caller, given, "key_metrics"), _metrics(caller, given, "agent_metrics"))


def _metrics(caller: Caller, given: dict[str, Any], name: str) -> dict[str, Any]:
    metrics = given.get(name) or {}
    if not isinstance(metrics, dict):
        raise EnvironmentFault(f"{caller.name}: `{name}` in the reply of /{_ROUTE} is not an object").permanent()
    if len(metrics) > _MAX_METRICS:
        told = f"`{name}` in the reply of /{_ROUTE} has {len(metrics):,} metrics; at most {_MAX_METRICS:,} are kept"
        raise EnvironmentFault(f"{caller.name}: {told}").permanent()
    if (path := find_unstorable(metrics)) is not None:
        where = "/".join(map(str, [name, *path]))
        told = f"the reply of /{_ROUTE} has a text or number at {where} that cannot be stored"
        raise EnvironmentFault(f"{caller.name}: {told}").permanent()
    numbers = {key: value for key, value in metrics.items() if value is None or isinstance(value, bool | int | float)}
    return {**numbers, **keep_small({key: value for key, value in metrics.items() if key not in numbers})}
