"""What no database can store is refused in every form that a page sends, before any view sees it, as in bodies of the
API."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.middleware import is_api_view
from apps.gym.storable import clean_line, find_unstorable


class StorableFormMiddleware(MiddlewareMixin):
    """After those that say who may send something at all."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        if request.method != "POST" or is_api_view(view):
            return None
        for name, values in request.POST.lists():
            if find_unstorable([name, *values]) is not None:
                field = clean_line(name, 100)
                return render(request, "400_unstorable.html", {"field": field}, status=HTTPStatus.BAD_REQUEST)
        return None
