"""The tools of the MCP server: which ones a caller has, and how they answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from asgiref.sync import sync_to_async
from django.conf import settings
from rest_framework.request import Request

from apps.accounts.permissions import Permission
from apps.api.framework.declared_fields import suggest_name
from apps.api.framework.table_permissions import find_refusal
from apps.api.mcp_server import collection_tools, plan_tools, rollout_tools, writing_tools
from apps.api.mcp_server.operation_calls import Api, ApiError, ToolError
from apps.api.mcp_server.tool_declarations import Tool
from apps.api.mcp_server.untrusted_text import NOTE, ReplyTooLarge, mark_error, mark_untrusted
from apps.gym.redaction.shortening import cut, cut_clean

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult

Answer = TypeVar("Answer")
TOOLS: dict[str, Tool] = {
    tool.name: tool for tool in (*collection_tools.TOOLS, *rollout_tools.TOOLS, *plan_tools.TOOLS, *writing_tools.TOOLS)
}
MAX_ERROR = 2_000
"""Maximum characters of an error, without its markers."""
_ABOUT = """\
GymWeb runs agents on tasks and stores the traces of their rollouts. A collection runs one agent with one policy model
on the tasks of a dataset; a rollout is one run on one task, with a reward.

To find out which tasks got worse between two collections, and why: compare_collections for the overall difference, \
list_task_changes for the tasks, compare_rollouts for the two rollouts of a task, read_trace for details. To find out \
why a collection fails: read_figures, list_failures, read_trace.

Replies are small. Pass `next_cursor` as `cursor` to continue."""


class Answering:
    """Answers one MCP request. `failure` is an error other than ToolError: a bug, or an outage."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.failure: Exception | None = None

    def server(self) -> "Server[Any]":
        from mcp.server.lowlevel import Server
        from mcp_types import CallToolRequestParams, ListToolsResult, PaginatedRequestParams

        async def list_tools(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
            return ListToolsResult(tools=await sync_to_async(self._list)())

        async def call_tool(context: Any, params: CallToolRequestParams) -> "CallToolResult":
            return await sync_to_async(self._call)(params.name, params.arguments or {})

        return Server(
            "gymweb",
            title="GymWeb",
            version=settings.VERSION,
            instructions=self._instructions(),
            on_list_tools=list_tools,
            on_call_tool=call_tool,
        )

    def _list(self) -> list[Any]:
        return self._guard(lambda: [_describe(tool) for tool in TOOLS.values() if not self._refusal(tool)])

    def _call(self, name: str, given: dict[str, Any]) -> "CallToolResult":
        return self._guard(lambda: self._answer(name, given))

    def _guard(self, answer: Callable[[], Answer]) -> Answer:
        try:
            return answer()
        except Exception as failure:
            # The package would hide it in an error for the agent. The view raises it again.
            self.failure = failure
            raise

    def _answer(self, name: str, given: dict[str, Any]) -> "CallToolResult":
        try:
            tool = TOOLS.get(name)
            if tool is None:
                raise ToolError(f"Unknown tool “{cut(name, 50)}”. {suggest_name(name, [*TOOLS])}")
            if refusal := self._refusal(tool):
                raise ToolError(refusal)
            tool.check(given)
            return _result(mark_untrusted(tool.answer(Api(self.request), given)))
        except ReplyTooLarge:
            return _error("The reply is too large. Ask for fewer rows with `limit`.")
        except ApiError as error:
            return _error(mark_error(cut_clean(str(error), MAX_ERROR)))
        except ToolError as error:
            return _error(cut_clean(str(error), MAX_ERROR))

    def _refusal(self, tool: Tool) -> str:
        return tool.find_refusal(self.request.user, self.request.auth)

    def _instructions(self) -> str:
        missing = [tool for tool in TOOLS.values() if self._refusal(tool)]
        refused = find_refusal(self.request.user, self.request.auth, Permission.READ)
        parts = [_ABOUT, NOTE]
        if refused:
            parts.append(f"This API key cannot read rollouts. {refused}")
        elif missing:
            names = ", ".join(tool.name for tool in missing)
            parts.append(f"This API key cannot use {names}. {self._refusal(missing[0])}")
        return "\n\n".join(parts)


def _describe(tool: Tool) -> Any:
    from mcp_types import Tool as DescribedTool
    from mcp_types import ToolAnnotations

    hints = ToolAnnotations(
        title=tool.title,
        read_only_hint=not tool.writes,
        destructive_hint=False,
        idempotent_hint=tool.idempotent or not tool.writes,
        open_world_hint=False,
    )
    return DescribedTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=hints,
    )


def _result(reply: dict[str, Any]) -> "CallToolResult":
    from mcp_types import CallToolResult, TextContent

    text = orjson.dumps(reply).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=reply)


def _error(message: str) -> "CallToolResult":
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)
