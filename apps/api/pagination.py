"""Pages by keyset: `?cursor=&limit=`. Pages never shift when rows are added; the last costs what the first does."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import orjson
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from apps.api.problems import QueryProblem

PAGE_PARAMETERS = frozenset({"cursor", "limit", "ordering"})
DEFAULT_LIMIT = 50
MAX_LIMIT = 1000
MAX_KEY = 2**63 - 1


def _refuse(parameter: str, message: str) -> QueryProblem:
    return QueryProblem([{"pointer": f"?{parameter}", "code": "invalid", "message": message}])


class KeysetPagination(BasePagination):
    """Ordered by primary key, newest first unless the view's `ordering` or `?ordering=id` says otherwise."""

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        limit = _read_limit(request.query_params.get("limit", ""))
        ordering = request.query_params.get("ordering") or getattr(view, "ordering", "-id")
        if ordering not in {"id", "-id"}:
            raise _refuse("ordering", "Order by id or -id.")
        cursor = request.query_params.get("cursor", "")
        if cursor:
            beyond = "id__gt" if ordering == "id" else "id__lt"
            queryset = queryset.filter(**{beyond: _decode_cursor(cursor, ordering)})
        # One row more than asked for tells whether another page follows, without a COUNT.
        rows = list(queryset.order_by(ordering)[: limit + 1])
        self.next_cursor = _encode_cursor(rows[limit - 1].pk, ordering) if len(rows) > limit else None
        self.url = request.build_absolute_uri()
        return rows[:limit]

    def get_paginated_response(self, data: Any) -> Response:
        next_url = replace_query_param(self.url, "cursor", self.next_cursor) if self.next_cursor else None
        return Response({"next": next_url, "next_cursor": self.next_cursor, "results": data})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["next", "next_cursor", "results"],
            "properties": {
                "next": {"type": "string", "format": "uri", "nullable": True},
                "next_cursor": {"type": "string", "nullable": True},
                "results": schema,
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        texts = {"type": "string"}
        limits = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
        orders = {"type": "string", "enum": ["id", "-id"], "default": getattr(view, "ordering", "-id")}
        return [
            _parameter("cursor", "`next_cursor` of the page before.", texts),
            _parameter("limit", "Rows in a page.", limits),
            _parameter("ordering", "Oldest or newest first.", orders),
        ]


def _parameter(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _read_limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= MAX_LIMIT:
        raise _refuse("limit", f"Give a whole number from 1 to {MAX_LIMIT}.")
    return int(text)


def _encode_cursor(key: int, ordering: str) -> str:
    return urlsafe_b64encode(orjson.dumps([ordering, key])).decode().rstrip("=")


def _decode_cursor(cursor: str, ordering: str) -> int:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = orjson.loads(urlsafe_b64decode(padded))
    except (binascii.Error, ValueError):
        found = None
    match found:
        case [str(order), int(key)] if order == ordering and 0 <= key <= MAX_KEY:
            return key
    raise _refuse("cursor", "This cursor is not of a page of this list in this order.")
