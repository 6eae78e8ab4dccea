"""Keyset pagination: `?cursor=&limit=`.

Added rows do not shift pages, and the last page is as fast as the first.
"""

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from difflib import get_close_matches
from typing import Any

import orjson
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from apps.api.framework.problems import bad_query
from apps.rollouts.search.keyset_pages import Page, Sort, page_by_column, page_by_id

PAGE_PARAMETERS = frozenset({"cursor", "limit", "ordering"})
DEFAULT_LIMIT = 50
MAX_LIMIT = 1000
MAX_KEY = 2**63 - 1
_CURSOR_POSITION = re.compile(r"(?:-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:e[+-]?[0-9]{1,3})?)?~[0-9]{1,18}", re.ASCII)
"""Position in a list with another order: `value~id` of the last row of a page. `value` is empty for null."""
_ORDERS = "Order of the rows, descending with `-`. Rows without a value come last; ids break ties."


class KeysetPagination(BasePagination):
    """Paginate by primary key, newest first, unless the view's `ordering` or `?ordering=` says otherwise.

    A view may declare more orders in `orders`. Its `expect(request, order)` then returns two booleans: whether rows
    with a value, and rows without one, can exist.
    """

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        limit = _read_limit(request.query_params.get("limit", ""))
        ordering: str = request.query_params.get("ordering", "") or getattr(view, "ordering", "-id")
        known = _orders_of(view)
        if ordering not in known:
            hint = get_close_matches(ordering, known, n=1)
            also = f" Did you mean {hint[0]}?" if hint else ""
            raise bad_query("ordering", f"Order by {', '.join(known[:-1])} or {known[-1]}.{also}")
        place = _decode_cursor(request.query_params.get("cursor", ""), ordering)
        self.url = request.build_absolute_uri()
        rows: list[Any]
        last_key: int | str | None
        if ordering in {"id", "-id"}:
            after = "" if place is None else str(place)
            found: Page[Any] = page_by_id(queryset, after, descending=ordering == "-id", size=limit)
            rows, last_key = found.rows, int(found.after) if found.after else None
        else:
            sort = view.orders[ordering.removeprefix("-")]
            with_values, without_values = view.expect(request, sort)
            page = self.sort(
                queryset,
                sort,
                view,
                after=str(place or ""),
                descending=ordering.startswith("-"),
                with_values=with_values,
                without_values=without_values,
                size=limit,
            )
            rows, last_key = page.rows, page.after or None
        written = urlsafe_b64encode(orjson.dumps([ordering, last_key])).decode().rstrip("=")
        self.next_cursor = None if last_key is None else written
        return rows

    def sort(self, queryset: Any, sort: Sort, view: Any, *, after: str, **options: Any) -> Page[Any]:
        return page_by_column(
            queryset.annotate(sorted_by=sort.values), "sorted_by", after, marker=sort.marker, **options
        )

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
        orders = {"type": "string", "enum": _orders_of(view), "default": getattr(view, "ordering", "-id")}
        return [
            _parameter("cursor", "`next_cursor` of the previous page.", texts),
            _parameter("limit", "Rows per page.", limits),
            _parameter("ordering", _ORDERS if hasattr(view, "orders") else "Oldest or newest first.", orders),
        ]


def _parameter(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _read_limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= MAX_LIMIT:
        raise bad_query("limit", f"Give a whole number from 1 to {MAX_LIMIT}.")
    return int(text)


def _orders_of(view: Any) -> list[str]:
    names = ["id", *getattr(view, "orders", ())]
    return [sign + name for name in names for sign in ("", "-")]


def _decode_cursor(cursor: str, ordering: str) -> int | str | None:
    """Return the position of the last row of the previous page: an id, or `value~id`. Raise QueryProblem."""
    if not cursor:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = orjson.loads(urlsafe_b64decode(padded))
    except (binascii.Error, ValueError):
        found = None
    match found:
        case [str(order), int(key)] if order == ordering in {"id", "-id"} and 0 <= key <= MAX_KEY:
            return key
        case [str(order), str(place)] if order == ordering not in {"id", "-id"} and _CURSOR_POSITION.fullmatch(place):
            return place
    raise bad_query("cursor", "Invalid cursor for this list and order.")
