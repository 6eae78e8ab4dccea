"""Addresses under /api/ that lead nowhere answer with a problem too, not with a page."""

from typing import Any

from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from apps.accounts.permissions import Permission


class NothingHereView(APIView):
    permissions = dict.fromkeys(["get", "post", "put", "patch", "delete", "options"], Permission.PUBLIC)

    # Everybody is let in, and nothing is done for them.
    throttle_classes: list[type[BaseThrottle]] = []
    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        hint = "" if request.path.endswith("/") else " Addresses of the API end with a slash."
        raise NotFound(f"There is nothing at this address.{hint}")
