"""Tools that comment, flag and start collections. Each needs a scope beyond reading."""

from typing import Any

from apps.accounts.idempotent_requests import MAX_KEY_LENGTH
from apps.api.mcp_server.operation_calls import Api, Operation, ToolError
from apps.api.mcp_server.tool_declarations import Arguments, Tool, pick
from apps.api.mcp_server.untrusted_text import Own

COMMENT = Operation("comment-list", "post")
FLAG = Operation("flag-list", "post")
ESTIMATE = Operation("collection-estimate", "post")
START = Operation("collection-list", "post")

_PLAN = (
    *("dataset", "version", "agent", "policy_model", "repeats", "limit", "splits", "tags", "search"),
    *("unsolved_in", "resume_from", "only_failed", "sampling", "seed", "name"),
)
_PLANNED = ("dataset", "agent", "policy_model")
_STARTED = ("id", "name", "dataset", "version", "agent", "policy_model", "state", "total", "max_cost", "max_tokens")
_BUDGET = {
    "max_rollouts": {
        "type": "integer",
        "minimum": 1,
        "maximum": 10_000_000,
        "description": "Budget: start only if the plan has at most this many rollouts.",
    },
    "max_cost": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1e12,
        "description": "Budget in USD at the prices of the models. The collection pauses at this cost.",
    },
}
_KEY = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_KEY_LENGTH,
    "pattern": "^[!-~]+$",
    "description": "A random text. A repeated call with the same key does not start a second collection.",
}


_NO_COST = (
    "The estimated cost is 0 or unknown. If the models have no prices, max_cost cannot limit the collection: only "
    "max_rollouts and max_tokens can."
)


def _start(api: Api, given: Arguments) -> dict[str, Any]:
    plan = START_COLLECTION.operation_arguments(given)
    estimate = api.call(ESTIMATE, body=plan)
    rollouts, cost = estimate["rollouts"], estimate["cost"] or 0.0
    if rollouts > given["max_rollouts"]:
        raise ToolError(
            f"Not started: the plan has {rollouts:,} rollouts, and max_rollouts is {given['max_rollouts']:,}. Lower "
            "`limit` or `repeats`, or ask the user for a larger budget."
        )
    if cost > given["max_cost"]:
        raise ToolError(
            f"Not started: the estimated cost is {cost:,.2f} USD, and max_cost is {given['max_cost']:,.2f}. Lower "
            "`limit` or `repeats`, or ask the user for a larger budget."
        )
    # The version of the estimate, because a newer one may have more tasks.
    body = {**plan, "version": estimate["version"], "max_cost": given["max_cost"]}
    started = api.call(START, body=body, idempotency_key=given.get("idempotency_key", ""))
    reply: dict[str, Any] = {"collection": pick(started, _STARTED), "estimate": estimate}
    if not cost:
        reply["budget"] = Own(_NO_COST)
    return reply


ADD_COMMENT = Tool(
    name="add_comment",
    title="Comment on a rollout",
    description="Add a comment to a rollout, or to an event of its trace (`seq` of a step). It is shown as written by "
    "the owner of the API key.",
    operations=(COMMENT,),
    mapped_arguments=("rollout", "text", "seq", "quote", "start", "parent"),
    required=("rollout", "text"),
    writes=True,
    reply="comment",
)
FLAG_ROLLOUT = Tool(
    name="flag_rollout",
    title="Flag a rollout",
    description="Flag a problem of a rollout, or of an event of its trace (`seq` of a step), for reviewers.",
    operations=(FLAG,),
    mapped_arguments=("rollout", "kind", "seq", "note"),
    required=("rollout", "kind"),
    writes=True,
    idempotent=True,
    reply="flag",
)
ESTIMATE_COLLECTION = Tool(
    name="estimate_collection",
    title="Estimate a collection",
    description="Estimate rollouts, tokens, cost and time of a collection without starting it.",
    operations=(ESTIMATE,),
    mapped_arguments=_PLAN,
    required=_PLANNED,
    reply="estimate",
)
START_COLLECTION = Tool(
    name="start_collection",
    title="Start a collection",
    description="Start a collection within a budget of rollouts and cost. It calls models, which costs money, so agree "
    "on the budget with the user. It starts nothing if its plan exceeds the budget.",
    operations=(START, ESTIMATE),
    mapped_arguments=(*_PLAN, "max_tokens"),
    own_arguments={**_BUDGET, "idempotency_key": _KEY},
    required=(*_PLANNED, "max_rollouts", "max_cost"),
    writes=True,
    run=_start,
)
TOOLS = (ADD_COMMENT, FLAG_ROLLOUT, ESTIMATE_COLLECTION, START_COLLECTION)
