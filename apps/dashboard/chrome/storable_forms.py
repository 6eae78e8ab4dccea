"""Reject values that the database cannot store in all forms, before views run. The API does the same."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.middleware import is_api_view
from apps.gym.storable import clean_line, find_unstorable


class StorableFormMiddleware(MiddlewareMixin):
    """Runs after the access checks."""

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
