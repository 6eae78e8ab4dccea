"""An MCP server of the official package, as somebody's own: python mcp_lab.py stdio | http PORT.

It counts in memory, so that whoever shares it with another attempt is found out.
"""

import asyncio
import base64
import os
import sys

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

lab = MCPServer("lab", log_level="CRITICAL")
marbles: list[int] = []
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAAAAACcgYFdAAAAC0lEQVR4nGNggAIAAAkAAftSuKkAAAAASUVORK5CYII="


@lab.tool()
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@lab.tool()
def take_marble() -> str:
    """Take one more marble."""
    marbles.append(1)
    return f"{len(marbles)} taken"


@lab.tool(name="look.up/word")
def look_up(word: str) -> str:
    raise ValueError(f"no entry for {word}")


@lab.tool()
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


@lab.tool()
def environment() -> list[str]:
    """The names of this process's environment."""
    return sorted(os.environ)


@lab.tool()
def fall() -> str:
    sys.stderr.write("the lab is on fire\n")
    sys.stderr.flush()
    os._exit(3)


@lab.tool()
def shout() -> str:
    return "x" * (4 * 1024 * 1024 + 1)


@lab.tool()
def draw() -> list[str | Image]:
    return ["A dot:", Image(data=base64.b64decode(PNG), format="png")]


@lab.tool()
def process() -> int:
    return os.getpid()


def broken(name, schema, structured, *content):
    """Add a tool whose result does not fit the output schema that it declares."""

    @lab.tool(name=name)
    def tool() -> CallToolResult:
        return CallToolResult(content=[TextContent(text=text) for text in content], structured_content=structured)

    lab._tool_manager.get_tool(name).fn_metadata.output_schema = schema


def add_broken():
    count = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    broken("text_for_integer", count, {"count": "seven"}, "seven marbles")
    broken("missing_member", count, {}, "no marbles")
    broken("no_structure", count, None, "some marbles")
    broken("no_text", count, {"count": "eight"})
    broken("bad_schema", {"type": "object", "properties": {"count": {"type": "thing"}}}, {"count": 1}, "one marble")
    broken("unresolved", {"type": "object", "$ref": "#/$defs/none"}, {"count": 1}, "two marbles")
    broken("endless", {"type": "object", "$ref": "#"}, {"count": 1}, "three marbles")


@lab.tool()
async def grow(context: Context) -> str:
    """Add tools, and announce them."""
    add_broken()
    lab.add_tool(lambda: "grown", name="grown.later")
    lab.add_tool(lambda: "another", name="look_up_word")
    await context.session.send_tool_list_changed()
    return "there are more tools now"


@lab.tool()
def shrink() -> str:
    """Remove a tool without announcing it."""
    lab.remove_tool("take_marble")
    return "no more marbles"


@lab.tool()
def hide() -> str:
    """Refuse to list the tools."""

    async def refuse(context, params):
        raise MCPError(-32603, "the list is lost")

    server = lab._lowlevel_server
    server.add_request_handler("tools/list", server.get_request_handler("tools/list").params_type, refuse)
    return "hidden"


def repeat_pages():
    """List all tools on each page, twice, with a cursor that never changes."""
    server = lab._lowlevel_server
    listed = server.get_request_handler("tools/list")

    async def handle(context, params):
        page = await listed.handler(context, params)
        return page.model_copy(update={"tools": [*page.tools, *page.tools], "next_cursor": "again"})

    server.add_request_handler("tools/list", listed.params_type, handle)


if __name__ == "__main__":
    if "repeat" in sys.argv:
        repeat_pages()
    if sys.argv[1] == "stdio":
        lab.run("stdio")
    else:
        lab.run("streamable-http", port=int(sys.argv[2]))
