"""Return a problem document for unknown URLs under /api/."""

from typing import Any

from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from apps.accounts.permissions import Permission


class UnknownPathView(APIView):
    permissions = dict.fromkeys(["get", "post", "put", "patch", "delete", "options"], Permission.PUBLIC)
    throttle_classes: list[type[BaseThrottle]] = []
    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        hint = "" if request.path.endswith("/") else " API paths end with a slash."
        raise NotFound(f"Not found.{hint}")
