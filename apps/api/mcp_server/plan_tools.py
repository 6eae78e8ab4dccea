"""Tools that list what a collection is planned from: datasets, agents and policy models."""

from functools import partial
from typing import Any

from apps.api.mcp_server.collection_tools import list_rows
from apps.api.mcp_server.operation_calls import Api, Operation
from apps.api.mcp_server.tool_declarations import DEFAULT_ROWS, PAGE, Arguments, Tool

_FIELDS = {
    "dataset": "slug,name,description,environment,latest_version",
    "agent": "slug,name,kind,max_steps,sampling",
    "policymodel": "slug,name,provider,model_name,input_price,output_price,concurrency,health",
}


def _list(noun: str, api: Api, given: Arguments) -> dict[str, Any]:
    query = {"limit": DEFAULT_ROWS, **given}
    return list_rows(api, Operation(f"{noun}-list"), query, _FIELDS[noun])


def _tool(noun: str, name: str, title: str, description: str, *filters: str) -> Tool:
    return Tool(
        name=name,
        title=title,
        description=f"{description} The slugs are the arguments of estimate_collection and start_collection.",
        operations=(Operation(f"{noun}-list"),),
        mapped_arguments={one: one for one in (*filters, "ordering", "cursor")},
        own_arguments=PAGE,
        run=partial(_list, noun),
    )


TOOLS = (
    _tool("dataset", "list_datasets", "List datasets", "List datasets with their environment.", "q", "environment"),
    _tool("agent", "list_agents", "List agents", "List agents with their kind and limits."),
    _tool(
        "policymodel",
        "list_policy_models",
        "List policy models",
        "List policy models with their health, and their prices in USD per million tokens.",
        *("q", "provider", "health"),
    ),
)
