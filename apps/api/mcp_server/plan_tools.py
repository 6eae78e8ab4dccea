"""Tools that list what a collection is planned from: datasets, agents and policy models."""

from apps.api.mcp_server.operation_calls import Operation
from apps.api.mcp_server.tool_declarations import PAGE, Tool


def _tool(noun: str, listed: str, name: str, title: str, description: str, *, filters: tuple[str, ...]) -> Tool:
    return Tool(
        name=name,
        title=title,
        description=f"{description} The slugs are the arguments of estimate_collection and start_collection.",
        operations=(Operation(f"{noun}-list"),),
        mapped_arguments=(*filters, "ordering", "cursor", "limit"),
        own_arguments=PAGE,
        listed=listed,
    )


TOOLS = (
    _tool(
        "dataset",
        "slug,name,description,environment,latest_version",
        "list_datasets",
        "List datasets",
        "List datasets with their environment.",
        filters=("q", "environment"),
    ),
    _tool(
        "agent",
        "slug,name,kind,max_steps,sampling",
        "list_agents",
        "List agents",
        "List agents with their kind and limits.",
        filters=(),
    ),
    _tool(
        "policymodel",
        "slug,name,provider,model_name,input_price,output_price,concurrency,health",
        "list_policy_models",
        "List policy models",
        "List policy models with their health, and their prices in USD per million tokens.",
        filters=("q", "provider", "health"),
    ),
)
