"""An MCP server of the official package, as somebody's own: python mcp_lab.py stdio | http PORT.

It counts in memory, so that whoever shares it with another attempt is found out.
"""

import asyncio
import base64
import os
import sys

from mcp.server.mcpserver import Image, MCPServer

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


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        lab.run("stdio")
    else:
        lab.run("streamable-http", port=int(sys.argv[2]))
