"""Tools that read collections: figures, comparisons, changed tasks and failures."""

from typing import Any

from apps.api.mcp_server.operation_calls import Api, Operation, ToolError
from apps.api.mcp_server.tool_declarations import LIMIT, PAGE, Arguments, Tool, id_schema, pick

LIST = Operation("collection-list")
SHOW = Operation("collection-detail", numbered=True)
METRICS = Operation("collection-metrics", numbered=True)
BREAKDOWN = Operation("collection-breakdown", numbered=True)
CONTRAST = Operation("collection-contrast", numbered=True)
CHANGES = Operation("collection-changes", numbered=True)
FAILURES = Operation("collection-failures", numbered=True)
PROFILE = Operation("collection-profile", numbered=True)

COLLECTION = id_schema("collection")
_LISTED = (
    "id,name,dataset,version,environment,agent,policy_model,state,total,completed,failed,mean_reward,cost,created_at,"
    "finished_at"
)
_SHOWN = (
    *_LISTED.split(","),
    "cancelled",
    "rewarded",
    "repeats",
    "solve_threshold",
    "held_back_by",
    "max_cost",
    "cost",
)
_FIGURES = (
    "rollouts", "completed", "failed", "rewarded", "masked", "missing", "tasks", "mean_reward", "confidence",
    "pass_at_1", "pass_at_k", "no_answer", "groups", "stop_reasons", "errors", "components", "tokens", "cost",
    "mean_turns", "mean_duration", "trainability", "notices",
)  # fmt: skip
_MAX_K = 8
_MAX_SHARES = 10
_SHARE = ("label", "rollouts", "rewarded", "tasks", "mean_reward", "confidence", "pass_at_1")
_MAX_TOOLS = 15


def _figures(api: Api, given: Arguments) -> dict[str, Any]:
    collection = given["collection"]
    reply: dict[str, Any] = {"collection": pick(api.call(SHOW, collection), _SHOWN)}
    metrics = api.call(METRICS, collection)
    reply["figures"] = pick(metrics, _FIGURES)
    reply["figures"]["pass_at_k"] = dict([*metrics["pass_at_k"].items()][:_MAX_K])
    reply["tools"] = metrics["tools"][:_MAX_TOOLS]
    if by := given.get("by"):
        found = api.call(BREAKDOWN, collection, query={"by": by})
        reply["shares"] = [pick(share, _SHARE) for share in found["results"][:_MAX_SHARES]]
        reply["shares_left_out"] = found["left_out"] + len(found["results"]) - len(reply["shares"])
    return reply


def _compare(api: Api, given: Arguments) -> dict[str, Any]:
    found = api.call(CONTRAST, given["collection"], query={"with": given["other"]})
    return {name: value for name, value in found.items() if name not in ("regressions", "improvements")}


def _changes(api: Api, given: Arguments) -> dict[str, Any]:
    return _next_page(api.call(CHANGES, given["collection"], query=TASK_CHANGES.operation_arguments(given)))


def _failures(api: Api, given: Arguments) -> dict[str, Any]:
    offset = _read_place(given)
    query = {**LIST_FAILURES.operation_arguments(given), "offset": offset}
    found = api.call(FAILURES, given["collection"], query=query)
    place = found.pop("next_offset")
    return {**found, "next_cursor": place and str(place)}


def _profiles(api: Api, given: Arguments) -> dict[str, Any]:
    query = {**LIST_TASK_RESULTS.operation_arguments(given), "after": _read_place(given)}
    return _next_page(api.call(PROFILE, given["collection"], query=query))


def _read_place(given: Arguments) -> int:
    text = given.get("cursor", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ToolError("cursor: Give `next_cursor` of the previous reply, or leave it out.")
    return int(text)


def _next_page(found: dict[str, Any]) -> dict[str, Any]:
    place = found.pop("next_after")
    return {**found, "next_cursor": place and str(place)}


LIST_COLLECTIONS = Tool(
    name="list_collections",
    title="List collections",
    description="List collections, newest first. A collection runs an agent with a policy model on the tasks of a "
    "dataset. Start here to find ids.",
    operations=(LIST,),
    mapped_arguments=(
        *("q", "state", "dataset", "environment", "agent", "policy_model"),
        *("archived", "ordering", "cursor", "limit"),
    ),
    own_arguments=PAGE,
    listed=_LISTED,
)
COLLECTION_FIGURES = Tool(
    name="read_figures",
    title="Figures of a collection",
    description="Read the state and figures of a collection: mean reward with its 95 % interval, pass@k, stop reasons, "
    "errors, tools and cost. `by` adds figures for each split, tag or model version.",
    operations=(METRICS, SHOW, BREAKDOWN),
    own_arguments={
        "collection": COLLECTION,
        "by": {"type": "string", "enum": ["split", "tag", "version"], "description": "Group the figures by this."},
    },
    required=("collection",),
    run=_figures,
)
COMPARE_COLLECTIONS = Tool(
    name="compare_collections",
    title="Compare collections",
    description="Compare two collections of one dataset: mean rewards, significance, the number of improved and "
    "regressed tasks, and the settings that differ. Differences are `other` minus `collection`. For the tasks, call "
    "list_task_changes.",
    operations=(CONTRAST,),
    renamed_arguments={"other": "with"},
    own_arguments={"collection": {**COLLECTION, "description": "Id of the first collection, the baseline."}},
    required=("collection", "other"),
    run=_compare,
)
TASK_CHANGES = Tool(
    name="list_task_changes",
    title="Tasks that got better or worse",
    description="List the tasks that got worse (`regressed`, the default) or better between two collections, largest "
    "differences first. Each has two representative rollouts. To see why, pass them to compare_rollouts.",
    operations=(CHANGES,),
    mapped_arguments=("which", "limit"),
    renamed_arguments={"other": "with", "cursor": "after"},
    own_arguments={"collection": {**COLLECTION, "description": "Id of the first collection, the baseline."}, **PAGE},
    required=("collection", "other"),
    run=_changes,
)
LIST_FAILURES = Tool(
    name="list_failures",
    title="Causes of failures",
    description="Group the unsolved rollouts of a collection by cause, most frequent first, with example rollouts. The "
    "filter `q` of list_rollouts selects a group: `cause:NUMBER`.",
    operations=(FAILURES,),
    mapped_arguments=("by", "limit"),
    own_arguments={"collection": COLLECTION, **PAGE, "limit": {**LIMIT, "maximum": 10, "default": 5}},
    required=("collection",),
    run=_failures,
)
LIST_TASK_RESULTS = Tool(
    name="list_task_results",
    title="Results by task",
    description="List the tasks of a collection with the number of their rollouts, solved rollouts and rewards. "
    "`bucket` selects tasks that are never, sometimes or always solved.",
    operations=(PROFILE,),
    mapped_arguments=("bucket", "limit"),
    own_arguments={"collection": COLLECTION, **PAGE},
    required=("collection",),
    run=_profiles,
)
TOOLS = (
    LIST_COLLECTIONS,
    COLLECTION_FIGURES,
    COMPARE_COLLECTIONS,
    TASK_CHANGES,
    LIST_FAILURES,
    LIST_TASK_RESULTS,
)
