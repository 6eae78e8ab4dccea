"""The recorded requests: for each operation of the schema the same kinds, and by hand what conflicts."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from apps.accounts.models import Role, Scope
from apps.accounts.permissions import ROLE_PERMISSIONS, SCOPE_PERMISSIONS
from apps.api.framework.body_examples import FILES, REQUESTS
from tests.api.recorded.rows import FILE
from tests.openapi import DOCUMENT

UNKNOWN = {"id": "999999", "slug": "no-such-thing", "number": "99", "name": "no-such-file"}
QUERIES = {
    "GET collections/{id}/contrast/": "?with=8",
    "GET verdicts/": "?collection=7",
    "POST collections/import/": "?dataset=sums&agent=default",
    "GET datasets/{slug}/versions/{number}/changes/": "?from=1",
    "GET datasets/{slug}/versions/{number}/changes/tasks/": "?from=1&kind=added",
    "POST datasets/{slug}/uploads/": "?wait=true&filename=rows.jsonl",
    "PUT uploads/{id}/parts/": "?offset=0",
}


@dataclass(frozen=True)
class Ask:
    """`caller` is a role with a session, the scope of a key, or empty for a stranger."""

    method: str
    path: str
    body: Any = None
    caller: str = Role.ADMIN
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


Story = list[Ask]
"""Requests one after the other to the same rows; another story begins with the rows as they were."""


def every_story(rows: SimpleNamespace) -> Iterator[tuple[str, Story]]:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            name = f"{method.upper()} {path.removeprefix('/api/v1/')}"
            for kind, ask in _of_operation(name, operation, rows):
                yield f"{name}: {kind}", [ask]
    for kind, story in _conflicts(rows).items():
        yield f"conflict: {kind}", story


def _of_operation(name: str, operation: dict[str, Any], rows: SimpleNamespace) -> Iterator[tuple[str, Ask]]:
    method, path = name.split(" ")
    query = QUERIES.get(name, "")
    address = f"/api/v1/{_fill_in(path, _row_of(name, rows))}"
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    example = REQUESTS.get(schema)
    file = "application/x-ndjson" if "application/x-ndjson" in content else "application/octet-stream"
    is_file = bool(content) and not schema
    given: dict[str, Any] = {"body": FILES.get(operation["operationId"], FILE), "content_type": file} if is_file else {}
    if example is not None:
        given = {"body": example}
    yield "example", Ask(method, address + query, **given)
    for kind, body in _wrong_bodies(example, schema) if schema else ():
        yield kind, Ask(method, address + query, body)
    if content:
        yield "empty body", Ask(method, address + query, b"", content_type=file if is_file else "application/json")
        yield "type of body", Ask(method, address + query, b"<a/>", content_type="text/html")
    yield "unknown parameter", Ask(method, f"{address}{query}{'&' if query else '?'}surprise=1", **given)
    if "{" in path:
        unknown = re.sub(r"\{(\w+)\}", lambda found: UNKNOWN[found[1]], path)
        yield "unknown id", Ask(method, f"/api/v1/{unknown}{query}", **given)
    permission = operation["x-permission"]
    if permission not in ROLE_PERMISSIONS[Role.VIEWER]:
        yield "missing permission", Ask(method, address + query, **given, caller=Role.VIEWER)
    if lacking := [scope for scope in Scope.values if permission not in SCOPE_PERMISSIONS[scope]]:
        yield "missing scope", Ask(method, address + query, **given, caller=lacking[0])
    yield "no sign-in", Ask(method, address + query, **given, caller="")
    others = [one for one in ("PUT", "DELETE", "POST") if one.lower() not in DOCUMENT["paths"][f"/api/v1/{path}"]]
    yield "wrong method", Ask(others[0], address)


def _wrong_bodies(example: dict[str, Any] | None, schema: str) -> Iterator[tuple[str, Any]]:
    if example and "slug" in example:
        yield "example with a new slug", {**example, "slug": "brand-new"}
    yield "no field", {}
    yield "a list", []
    yield "unknown field", {**(example or {}), "surprise": 1}
    for name, described in _fields_of(DOCUMENT["components"]["schemas"][schema]).items():
        yield f"wrong type of {name}", {**(example or {}), name: [1] if described.get("type") != "array" else "x"}


def _fields_of(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    fields = dict(schema.get("properties", {}))
    for one in schema.get("oneOf", []):
        fields |= _fields_of(one)
    return fields


def _fill_in(path: str, row: Any) -> str:
    names = {"number": 1, "name": "manifest.json"}
    return re.sub(r"\{(\w+)\}", lambda found: str(names.get(found[1]) or getattr(row, found[1])), path)


def _row_of(name: str, rows: SimpleNamespace) -> Any:
    """The row that an operation is asked of: one in a state that allows it, where it depends on a state."""
    own = {
        "DELETE collections/{id}/": rows.cancelled,
        "DELETE datasets/{slug}/": rows.unused_dataset,
        "DELETE datasets/{slug}/versions/{number}/": rows.unused_dataset,
        "DELETE pair-sets/{id}/": rows.later,
        "DELETE rollouts/{id}/": rows.deletable,
        "DELETE rubrics/{slug}/": rows.unused_rubric,
        "DELETE saved-views/{id}/": rows.view,
        "DELETE uploads/{id}/": rows.receiving,
        "GET exports/{id}/download/": rows.written,
        "GET exports/{id}/files/{name}/": rows.written,
        "GET exports/{id}/manifest/": rows.written,
        "GET pair-sets/{id}/changes/": rows.later,
        "PATCH collections/{id}/": rows.running,
        "PATCH saved-views/{id}/": rows.view,
        **{f"POST attempts/{{id}}/{command}/": rows.rollouts for command in ("extend", "fail", "finish")},
        "POST collections/{id}/cancel/": rows.running,
        "POST collections/{id}/delete_rollouts/": rows.finished,
        "POST collections/{id}/pause/": rows.running,
        "POST collections/{id}/resume/": rows.paused,
        "POST pair-sets/{id}/cancel/": rows.waiting_pair_set,
        "POST queue-items/{id}/adjudicate/": rows.said.item,
        "POST queues/{id}/undo/": rows.said.queue,
        "POST reviews/{id}/renew/": rows.open_review,
        "POST reviews/{id}/skip/": rows.open_review,
        "POST reviews/{id}/submit/": rows.open_review,
        "POST reward-overrides/{id}/withdraw/": rows.overridden,
        "POST uploads/{id}/check/": rows.draft,
        "POST uploads/{id}/commit/": rows.draft,
        "POST uploads/{id}/finish/": rows.receiving,
        "PUT uploads/{id}/parts/": rows.receiving,
    }
    path = name.split(" ")[1]
    noun = path.split("/{")[0].replace("-", "_").replace("/", "_")
    noun_of_collections = rows.done if noun == "collections" else None
    return own.get(name) or noun_of_collections or getattr(rows, noun, None)


def _conflicts(rows: SimpleNamespace) -> dict[str, Story]:
    def ask(method: str, path: str, body: Any = None, **given: Any) -> Ask:
        return Ask(method, f"/api/v1/{path}", body, **given)

    plan, key = REQUESTS["PlanRequest"], {"headers": {"Idempotency-Key": "once"}}
    said, review = {"token": "again", "choice": "a"}, rows.open_review.pk
    comment = {"rollout": 41, "text": "Same."}
    file, chunk = {"content_type": "application/x-ndjson"}, {"content_type": "application/octet-stream"}
    part = f"uploads/{rows.receiving.pk}/parts/?offset="
    view = f"saved-views/{rows.view.pk}/"
    shared = {"name": "Mine", "query": "", "sort": ""}
    return {
        "plan of no tasks": [ask("POST", "collections/", {**plan, "dataset": "empty"})],
        "plan with a key": [
            ask("POST", "collections/", plan, **key),
            ask("POST", "collections/", plan, **key),
            ask("POST", "collections/", {**plan, "repeats": 2}, **key),
            ask("POST", "collections/7/clone/", {}, **key),
            ask("POST", "comments/", comment, **key),
        ],
        "clone with a key": [
            ask("POST", "collections/7/clone/", {}, **key),
            ask("POST", "collections/7/clone/", {}, **key),
            ask("POST", "collections/8/clone/", {"repeats": 3}, **key),
        ],
        "comment with a key": [
            ask("POST", "comments/", comment, **key),
            ask("POST", "comments/", comment, **key),
            ask("POST", "comments/", {**comment, "text": "Other."}, **key),
            ask("POST", "agents/", REQUESTS["AgentRequest"], **key),
            ask("POST", "collections/", plan, **key),
        ],
        "bad key": [
            ask("POST", path, plan, headers={"Idempotency-Key": "a b"}) for path in ("agents/", "collections/")
        ],
        "no key": [ask("POST", path, plan, headers={"Idempotency-Key": ""}) for path in ("agents/", "collections/")],
        "key that is not taken": [ask("POST", "me/keys/", REQUESTS["ApiKeyRequest"], **key)],
        "no cases": [ask("POST", f"environments/{rows.environments.slug}/run_cases/")],
        "contrast of two datasets": [ask("GET", f"collections/7/contrast/?with={rows.elsewhere.pk}")],
        "pause what ended": [ask("POST", f"collections/{rows.cancelled.pk}/pause/")],
        "archive what runs": [ask("POST", f"collections/{rows.running.pk}/archive/")],
        "import of bad lines": [ask("POST", f"collections/import/{QUERIES['POST collections/import/']}", FILE, **file)],
        "configuration": [ask("POST", "gym-configs/", {"text": "calculator: 1"})],
        "verify nothing again": [ask("POST", "reverifications/", {"collection": rows.running.pk})],
        "choose nothing": [ask("POST", "collections/7/delete_rollouts/", {"ids": [999]})],
        "apply what waits": [ask("POST", f"reverifications/{rows.reverifications.pk}/apply/")],
        "pair two datasets": [ask("POST", "pair-sets/", {"collection": 7, "further": [rows.elsewhere.pk]})],
        "reject without a reason": [ask("POST", "pairs/decide/", {"pairs": [5], "status": "rejected"})],
        "cancel what ended": [
            ask("POST", f"pair-sets/{rows.later.pk}/cancel/"),
            ask("POST", f"exports/{rows.written.pk}/cancel/"),
        ],
        "delete what is used": [
            ask("DELETE", f"pair-sets/{rows.used_pair_set.pk}/"),
            ask("DELETE", f"rubrics/{rows.used_rubric.slug}/"),
            ask("DELETE", "datasets/sums/"),
            ask("DELETE", "datasets/loading/"),
            ask("DELETE", "datasets/vanishing/"),
            ask("DELETE", f"exports/{rows.writing.pk}/"),
        ],
        "compare with nothing": [ask("GET", f"pair-sets/{rows.later.pk}/changes/?since=99")],
        "export of no pairs": [ask("POST", "exports/", {"format": "trl_dpo", "collection": 7})],
        "comment on no event": [ask("POST", "comments/", {**comment, "seq": 99})],
        "another's view": [ask("PATCH", f"saved-views/{rows.saved_views.pk}/", {"is_shared": False}), ask("GET", view)],
        "name that is taken": [ask("POST", "saved-views/", shared)],
        "view of nothing": [ask("POST", "saved-views/", {**shared, "name": "Other", "query": "reward:high"})],
        "queue of nothing": [
            ask("POST", "queues/", {"name": "Queue", "kind": "pairwise", "collection": rows.running.pk})
        ],
        "no answer": [ask("POST", f"reviews/{review}/submit/", {"token": "t"})],
        "submitted twice": [
            ask("POST", f"reviews/{review}/submit/", said),
            ask("POST", f"reviews/{review}/submit/", said),
            ask("POST", f"reviews/{review}/submit/", {**said, "token": "other"}),
        ],
        "claim of what is closed": [ask("POST", f"queues/{rows.closed.pk}/claim/")],
        "flag on no event": [ask("POST", "flags/", {"rollout": 41, "kind": "unsafe", "seq": 99})],
        "override withdrawn twice": [ask("POST", f"reward-overrides/{rows.overridden.pk}/withdraw/")] * 2,
        "override without a reason": [ask("POST", "reward-overrides/", {"rollout": 41, "reward": 1, "reason": " "})],
        "last admin": [ask("PATCH", f"people/{rows.admin.pk}/", {"role": "viewer"})],
        "part at another place": [ask("PUT", f"{part}5", FILE, **chunk)],
        "part of what is loaded": [
            ask("PUT", f"uploads/{rows.uploads.pk}/parts/?offset=0", FILE, **chunk),
            ask("POST", f"uploads/{rows.uploads.pk}/commit/", {}),
        ],
        "upload into what is deleted": [ask("POST", "datasets/vanishing/uploads/", FILE, **file)],
        "upload by an unknown mapping": [ask("POST", "datasets/loaded/uploads/?mapping=none", FILE, **file)],
        "mark without a mark": [
            ask("PATCH", "tasks/11/", {"add_tags": ["a b"]}),
            ask("PATCH", "tasks/11/", {"split": "?"}),
        ],
        "mapping of nothing": [ask("POST", "column-mappings/", {"slug": "a", "name": "A", "mapping": {"x": 1}})],
        "host of others": [ask("GET", "me/", headers={"Host": "elsewhere.example"})],
        "nothing here": [ask("GET", "no-such-noun/"), ask("GET", "datasets")],
        "language that is not spoken": [ask("GET", "agents/", headers={"Accept": "text/html"})],
        "not JSON": [ask("POST", "agents/", b"{"), ask("POST", "agents/", b'{"slug": "a\\u0000"}')],
        "wrong key": [ask("GET", "me/", caller="", headers={"Authorization": "Bearer gw_a_b"})],
    }


def encode(body: Any) -> bytes | str:
    return body if isinstance(body, bytes | str) else "" if body is None else json.dumps(body)
