"""Calls of the MCP endpoint in process: requests as clients of version 2025-11-25 send them."""

import json
from typing import Any

from django.test import Client

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import User

HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}


def client_of(user: User, *scopes: str) -> Client:
    _, token = create_api_key(user=user, name="agent", scopes=list(scopes))
    return Client(headers={**HEADERS, "Authorization": f"Bearer {token}"}, enforce_csrf_checks=True)


def send(client: Client, method: str, params: dict[str, Any] | None = None, **extra: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    return client.post("/mcp", json.dumps(body), content_type="application/json", **extra)


def ask(client: Client, method: str, params: dict[str, Any] | None = None) -> Any:
    response = send(client, method, params)
    assert response.status_code == 200, response.text
    return response.json()["result"]


def tool_names(client: Client) -> set[str]:
    return {tool["name"] for tool in ask(client, "tools/list")["tools"]}


def call(client: Client, name: str, **arguments: Any) -> Any:
    """Return the reply of a tool."""
    result = ask(client, "tools/call", {"name": name, "arguments": arguments})
    assert not result.get("isError"), result
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert len(result["content"][0]["text"].encode()) <= 20_000
    return result["structuredContent"]


def refused(client: Client, name: str, **arguments: Any) -> str:
    """Return the error of a tool."""
    result = ask(client, "tools/call", {"name": name, "arguments": arguments})
    assert result["isError"], result
    assert "structuredContent" not in result
    return str(result["content"][0]["text"])


def unmarked(reply: Any, marked: Any) -> str:
    """Return the text between the markers of a reply."""
    about = reply["untrusted_content"]
    text = marked["untrusted"]
    assert set(marked) == {"untrusted"}
    assert text.startswith(about["begin"]) and text.endswith(about["end"])
    inner = text.removeprefix(about["begin"]).removesuffix(about["end"])
    assert about["begin"] not in inner and about["end"] not in inner
    return str(inner)
