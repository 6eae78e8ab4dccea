"""Makes generated requests land: most names and numbers of rows become those of rows that exist, and what would only
cost time is capped. `FUZZ_KNOWN` names what there is (`rows.py`)."""

import json
import os
import re
import zlib
from itertools import count
from typing import Any

import schemathesis

from tests.openapi import DOCUMENT

PROBLEMS = DOCUMENT["components"]["responses"]["Problem"]["content"]["application/problem+json"]["examples"]
ALWAYS = {str(one["value"]["status"]) for one in PROBLEMS.values()}
KNOWN: dict[str, list[Any]] = json.loads(os.environ["FUZZ_KNOWN"])
NOUN_OF_FIELD = {
    "agent": "agents",
    "collection": "collections",
    "dataset": "datasets",
    "environment": "environments",
    "judge_model": "policy-models",
    "pair_set": "pair-sets",
    "policy_model": "policy-models",
    "resume_from": "collections",
    "rollout": "rollouts",
    "task": "tasks",
    "task_ids": "tasks",
    "tasks": "tasks",
    "worker": "workers",
    "with": "GET collections/{id}/contrast/",
    "mapping": "column-mappings",
}
CAPS = {
    "from": 1,
    "repeats": 3,
    "seconds": 1,
    "limit": 5,
    "reads": 2,
    "tries": 2,
    "call_timeout": 1,
    "connect_timeout": 1,
}
# What no view may see; tests/api/test_hostile_values.py has 1e400 and half surrogate pairs, which this tool does not
# write.
DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]
HOSTILE = [DEEP, 10**400, ["a\0"], {"x\0": 1}]
BASE_URL = "http://127.0.0.1:9/v1"
_numbers = count(1)


def _draw(seed: Any) -> int:
    """The same for the same value, so that a failure can be seen again."""
    return zlib.crc32(repr(seed).encode())


def _may_be(wanted: Any, value: Any) -> bool:
    """Whether a generated value is a name or number as the schema has it: one that is wrong on purpose stays wrong."""
    if isinstance(wanted, int):
        return re.fullmatch("[0-9]{1,18}", str(value), re.ASCII) is not None
    return re.fullmatch("[-a-zA-Z0-9_]{1,50}", str(value), re.ASCII) is not None


def _land(name: str, value: Any) -> Any:
    """One value in place of a generated one, of the same type; every fourth stays."""
    drawn = _draw((name, value))
    if name in CAPS and isinstance(value, int | float) and value > 0:
        return min(value, CAPS[name])
    if "base_url" in name and isinstance(value, str) and "//" in value:
        return BASE_URL
    noun = NOUN_OF_FIELD.get(name)
    if isinstance(value, dict):
        return {key: _land(key, one) for key, one in value.items()}
    if isinstance(value, list):
        return [_land(name, one) for one in value]
    if noun and drawn % 4:
        rows = KNOWN[noun] if " " in noun else KNOWN[noun][::2]
        wanted = rows[drawn // 4 % len(rows)]
        if isinstance(value, type(wanted)) and _may_be(wanted, value):
            return wanted
    return value


def _name(operation: Any) -> str:
    return f"{operation.method.upper()} {operation.path.removeprefix('/api/v1/')}"


def _rows(operation: Any) -> list[Any]:
    """Those that this operation may find. What is deleted is not looked at by the others."""
    name = _name(operation)
    method, path = name.split(" ")
    rows = KNOWN.get(path.split("/")[0], [])
    return KNOWN.get(name) or (rows[1::2] if method == "DELETE" else rows[::2])


def _send_what_goes_together(case: Any) -> bool:
    """Half of the requests whose parts have to fit have them so."""
    drawn = _draw((case.operation.label, "together", case.body, case.query, case.path_parameters))
    name = _name(case.operation)
    names, queries, bodies = (KNOWN.get(f"{part} {name}", []) for part in ("names", "query", "body"))
    if drawn % 2 or not (names or queries or bodies):
        return False
    if names:
        case.path_parameters.update(names[drawn // 2 % len(names)])
    if queries:
        case.query = queries[0]
    for body in bodies:
        case.body = body
        case.media_type = "application/x-ndjson" if isinstance(body, str) else "application/json"
    return True


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    # With a key, the cookie of a session is refused.
    if case.cookies:
        case.cookies.pop("sessionid", None)
    rows = _rows(case.operation)
    for name, value in (case.path_parameters or {}).items():
        drawn = _draw((case.operation.label, value))
        if rows and drawn % 8 and _may_be(1 if name == "number" else rows[0], value):
            case.path_parameters[name] = (
                str(1 + drawn // 8 % 4 // 3) if name == "number" else rows[drawn // 8 % len(rows)]
            )
    if _send_what_goes_together(case):
        return
    if isinstance(case.query, dict):
        # An answer in part lacks members that its schema requires: tests/api/test_lists.py has its shapes.
        case.query.pop("fields", None)
        case.query = _land("", case.query)
    if isinstance(case.body, dict):
        case.body = _land("", case.body)
        slug = case.body.get("slug")
        if slug is not None and "slug" in (case.path_parameters or {}):
            # A row keeps the name that others know it by.
            case.body["slug"] = case.path_parameters["slug"]
        elif isinstance(slug, str) and _may_be("", slug) and _draw(case.body) % 4:
            case.body["slug"] = f"{slug[:40]}-{next(_numbers)}"
        drawn = _draw((case.operation.label, case.body))
        if case.body and drawn % 16 == 0:
            name = sorted(case.body)[drawn // 16 % len(case.body)]
            case.body[name] = HOSTILE[drawn // 256 % len(HOSTILE)]


@schemathesis.check
def status_is_named(context: Any, response: Any, case: Any) -> None:
    """`default` would let every status pass: it means those of its examples."""
    named = {status for status in case.operation.definition.raw["responses"] if status != "default"}
    assert str(response.status_code) in named | ALWAYS, f"{response.status_code} is not in the schema"


@schemathesis.serializer(
    "application/x-ndjson",
    "application/jsonl",
    "text/csv",
    "text/tab-separated-values",
    "application/vnd.apache.parquet",
    "application/gzip",
    "application/zstd",
)
def write_file(context: Any, value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(getattr(value, "data", value) or b"")


@schemathesis.deserializer("application/x-ndjson")
def read_lines(context: Any, response: Any) -> Any:
    """A file is text; of a stream, whose lines are objects, the last stands for all."""
    lines = [line for line in response.content.splitlines() if line]
    if not context.operation.path.endswith("/stream/"):
        return response.text
    return json.loads(lines[-1]) if lines else {}
