"""Every operation that reads JSON, with every field of its body: what nothing could follow, count with or store is
refused with its place, whatever the field is for."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Role
from apps.api.framework.body_examples import REQUESTS
from tests.api.rows import MAKERS
from tests.factories import make_user
from tests.openapi import DOCUMENT

pytestmark = pytest.mark.django_db


def nested(levels: int, start: str, end: str) -> str:
    return start * levels + "1" + end * levels


# As JSON, with what the pointer has after the field's own name.
HOSTILE = {
    nested(101, '{"a":', "}"): "",
    nested(300, "[", "]"): "",
    nested(5_000, '{"a":', "}"): "",
    "1e400": "",
    '{"x": [0, -1e400]}': "/x/1",
    '{"x": NaN}': "/x",
    "1" + "0" * 400: "",
    "[-1" + "0" * 5_000 + "]": "/0",
    r'"\ud800"': "",
    r'{"x": "\udfff"}': "/x",
    r'["a\u0000"]': "/0",
    r'{"x\u0000": 1}': "",
}
# What is no more than out of bounds is refused where it matters, and nothing breaks on it.
BORDERLINE = ["1e300", "-1e300", str(2**63), str(2**64 - 1), str(-(2**63)), "1.5", nested(90, "[", "]"), '"\\u0001"']


def fields_of(schema: dict[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    yield from schema.get("properties", {})
    for one in schema.get("oneOf", []):
        yield from fields_of(one)


def readers_of_json() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            if fields := tuple(dict.fromkeys(fields_of(schema))):
                yield method, path, schema.get("$ref", "").rpartition("/")[2], fields


READERS = list(readers_of_json())


def fill_in(path: str) -> str:
    """The address of a row that exists."""
    noun = path.removeprefix("/api/v1/").split("/{")[0]
    # Attempts are addressed by their rollout.
    row = MAKERS["rollouts" if noun == "attempts" else noun]() if "{" in path else None
    return re.sub(r"\{(\w+)\}", lambda name: str(getattr(row, name[1], row and row.pk)), path)


@pytest.fixture
def admin():
    client = Client(raise_request_exception=False)
    client.force_login(make_user(Role.ADMIN))
    return client


def spread(fields: tuple[str, ...], values: Iterable[str]) -> list[tuple[str, str]]:
    """Three values for each field, so that a few fields have all of them."""
    given = list(values)
    return [
        (field, given[(3 * place + more) % len(given)])
        for place, field in enumerate(fields)
        for more in range(3 if len(fields) > 1 else len(given))
    ]


def send(client: Client, method: str, address: str, example: dict[str, Any], field: str, value: str) -> Any:
    body = json.dumps({**example, field: "HERE"}).replace('"HERE"', value)
    return client.generic(method.upper(), address, body, content_type="application/json")


@pytest.mark.parametrize(("method", "path", "schema", "fields"), READERS, ids=lambda one: str(one)[:60])
def test_no_field_takes_what_nothing_can_follow_count_with_or_store(admin, method, path, schema, fields):
    address, example = fill_in(path), REQUESTS.get(schema, {})
    answers = {
        (field, value): send(admin, method, address, example, field, value) for field, value in spread(fields, HOSTILE)
    }
    got = {
        place: (answer.status_code, [error["pointer"] for error in answer.json().get("errors", ())])
        for place, answer in answers.items()
    }
    assert got == {(field, value): (400, [f"/{field}{HOSTILE[value]}"]) for field, value in got}


@pytest.mark.parametrize(("method", "path", "schema", "fields"), READERS, ids=lambda one: str(one)[:60])
def test_large_values_break_no_field(admin, method, path, schema, fields):
    address, example = fill_in(path), REQUESTS.get(schema, {})
    broken = [
        (field, value, answer.status_code)
        for field, value in spread(fields, BORDERLINE)
        if (answer := send(admin, method, address, example, field, value)).status_code >= 500
    ]
    assert broken == []
