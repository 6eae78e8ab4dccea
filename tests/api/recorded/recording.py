"""Answers of the API as they are recorded: without what differs from run to run."""

import json
import re
from types import SimpleNamespace
from typing import Any

from asgiref.sync import async_to_sync
from django.core.signals import request_finished
from django.db import close_old_connections, transaction
from django.test import Client
from rest_framework.settings import api_settings

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import Role, Scope
from apps.api.collections.stream_viewsets import StreamResponse
from tests.api.recorded.requests import Ask, encode, every_story

HEADERS = (
    "Allow",
    "Content-Disposition",
    "Content-Type",
    "GymWeb-Redacted",
    "Idempotency-Replayed",
    "Location",
    "Retry-After",
    "WWW-Authenticate",
)
MEASURED = {"at", "duration", "heartbeat_age", "seconds"}
VARIES = {
    re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"): "TIME",
    re.compile(r"gw_[\w-]+|\b[0-9a-f]{12}\b|(?<=/sign-in/)[\w-]+|(?<=testserver/invitations/)[\w-]+"): "KEY",
    re.compile(r"\b[0-9a-f]{32}\b"): "REQUEST",
    re.compile(r'(?<="seconds":)[\d.e-]+'): "SECONDS",
    re.compile(r"\b[\d.]+ ms\b"): "LATENCY",
}


def record_answers(rows: SimpleNamespace) -> dict[str, list[Any]]:
    """Status, headers and body of the answer to each request."""
    clients = {"": Client(raise_request_exception=False)}
    for role, user in {Role.ADMIN: rows.admin, Role.VIEWER: rows.viewer}.items():
        clients[role] = Client(raise_request_exception=False)
        clients[role].force_login(user)
    for scope in Scope.values:
        _, token = create_api_key(user=rows.admin, name=scope, scopes=[scope])
        clients.setdefault(scope, Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}"}))
    recorded: dict[str, list[Any]] = {}
    for name, story in every_story(rows):
        with transaction.atomic():
            answers = [_answer(clients[ask.caller], ask) for ask in story]
            transaction.set_rollback(True)
        recorded |= {f"{name} {place}" if place else name: answer for place, answer in enumerate(answers)}
    return recorded


def _answer(client: Client, ask: Ask) -> list[Any]:
    response = client.generic(
        ask.method, ask.path, encode(ask.body), content_type=ask.content_type, headers=ask.headers
    )
    headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
    return [response.status_code, _settle(headers), _settle(_read(response), ask.path.partition("?")[0])]


def _read(response: Any) -> Any:
    if isinstance(response, StreamResponse):
        # It waits for a worker. Closing it ends the request, which must not close the connection of the test.
        request_finished.disconnect(close_old_connections)
        response.close()
        request_finished.connect(close_old_connections)
        return None

    async def read() -> bytes:
        return b"".join([piece async for piece in response])

    content = async_to_sync(read)() if response.streaming and response.is_async else b"".join(response)
    is_json = response.headers.get("Content-Type", "").endswith(("/json", "+json"))
    return json.loads(content) if is_json and content else content.decode(errors="replace")


def render(error: Exception) -> list[Any]:
    """The problem that one exception is answered with, whatever raised it."""
    answer = api_settings.EXCEPTION_HANDLER(error, {})
    return [answer.status_code, dict(answer.headers), json.loads(json.dumps(answer.data))]


def _settle(value: Any, path: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _settle_member(key, one, path) for key, one in value.items()}
    if isinstance(value, list):
        return [_settle(one) for one in value]
    if isinstance(value, int | float) and (value > 10**12 or value != round(value, 4)):
        return "NUMBER"
    if isinstance(value, str):
        for pattern, name in VARIES.items():
            value = pattern.sub(name, value)
    return value


def _settle_member(name: str, value: Any, path: str) -> Any:
    if name == "instance" and value == path:
        return "PATH"
    # Measured times; most others are told by their many digits.
    return "NUMBER" if name in MEASURED and isinstance(value, float) else _settle(value)
