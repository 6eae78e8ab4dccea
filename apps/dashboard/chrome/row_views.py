"""Views for lists of rows, and for buttons that change one row."""

from collections.abc import Callable
from typing import Any

from django.db.models import Model, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer, carry_out
from apps.dashboard.chrome.page_request import PageRequest
from apps.rollouts.search.keyset_pages import page_by_id

PageView = Callable[..., HttpResponse]


def list_view(rows: QuerySet[Any], template: str, *, part: str, name: str = "") -> PageView:
    """Return a view that lists all rows as `name` in the template. Without `name`, list one page as `page`."""

    @allow(GET=Permission.READ)
    def view(request: PageRequest) -> HttpResponse:
        shown = {name: rows.all()} if name else {"page": page_by_id(rows, request.GET.get("after", ""))}
        return answer(request, template, shown, part=part)

    return view


def action_view(
    permission: Permission,
    work: Callable[..., object],
    rows: type[Model] | QuerySet[Any],
    argument: str,
    *,
    page: str | Callable[[Any], str] = "",
    then: str = "",
    success: str = "",
) -> PageView:
    """Return a view that calls `work` with the row of the URL as `argument` and the user, then redirects.

    `page` is the name of the row's page, or a function that returns its URL. After success, the view redirects to the
    list `then` if given, otherwise to `page`. In the message `success`, {0} is the row. A refusal is shown as
    an error message on `page`, or without `page` on the list.
    """

    @allow(POST=permission)
    def view(request: PageRequest, **key: Any) -> HttpResponse:
        row = get_object_or_404(rows, **key)
        # Formatted first, because a deleted row has no id.
        message = success.format(row)
        listed = reverse(f"dashboard:{then}") if then else ""
        back = page(row) if callable(page) else reverse(f"dashboard:{page}", kwargs=key) if page else listed
        given = {argument: row, "user": request.user}
        return carry_out(request, lambda: work(**given), success=message, then=listed or back, refused=back)

    return view
