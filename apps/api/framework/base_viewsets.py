"""What every view of the API has in common: a rule for each action, and no parameter that is not declared."""

from collections.abc import Mapping
from typing import Any, ClassVar

import django_filters
from django.db.models import Model
from django.utils.decorators import method_decorator
from rest_framework.request import Request
from rest_framework.viewsets import GenericViewSet

from apps.accounts.models import User
from apps.accounts.permissions import Permission, caller_may
from apps.api.framework.declared_fields import hint
from apps.api.framework.file_answers import conditional
from apps.api.framework.idempotency import Handler, once
from apps.api.framework.pagination import PAGE_PARAMETERS
from apps.api.framework.problems import QueryProblem
from apps.api.framework.query_filters import refuse_unknown_parameters
from apps.policies.typed_texts import REDACTED

# What a SlugField takes. A looser one would carry bytes to the database that PostgreSQL refuses.
SLUG = "[-a-zA-Z0-9_]+"
FIELDS = "fields"


def assign(row: Model, fields: Mapping[str, Any]) -> None:
    """Validated fields → row; the operation that saves it checks the whole."""
    for name, value in fields.items():
        setattr(row, name, value)


@method_decorator(conditional, name="dispatch")
class TableViewSet(GenericViewSet[Any]):
    # Without TRACE: Django REST Framework would call an action of that name, without asking for its permission.
    http_method_names = ["get", "post", "put", "patch", "delete", "head", "options"]
    permissions: ClassVar[Mapping[str, Permission]] = {}
    query_parameters: ClassVar[Mapping[str, frozenset[str]]] = {}
    filterset_class: type[django_filters.FilterSet] | None = None
    # Actions that answer with a page of rows; `filterset_class` filters only `list`.
    page_actions: ClassVar[frozenset[str]] = frozenset({"list"})
    # Of the POSTs: those that look after their Idempotency-Key themselves, and those that take none.
    own_repeats: ClassVar[frozenset[str]] = frozenset()
    unrepeatable: ClassVar[frozenset[str]] = frozenset()
    post: Handler

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        known = set(self.query_parameters.get(self.action, ()))
        if self.action in self.page_actions:
            known |= PAGE_PARAMETERS
        if self.has_fields(self.action):
            known.add(FIELDS)
        if self.action == "list" and self.filterset_class is not None:
            known |= set(self.filterset_class.base_filters)
        refuse_unknown_parameters(request, known)

        if request.method == "POST" and hasattr(self, "post") and self.action not in self.own_repeats:
            self.post = once(self.post, repeatable=self.action not in self.unrepeatable)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        if counts := getattr(request._request, REDACTED, None):
            answer["GymWeb-Redacted"] = ", ".join(f"{kind}={count}" for kind, count in sorted(counts.items()))
        return answer

    @classmethod
    def has_fields(cls, action: str | None) -> bool:
        """Whether an action's answer can be asked for in part."""
        return action == "retrieve" or action in cls.page_actions

    def get_serializer(self, *args: Any, **kwargs: Any) -> Any:
        serializer = super().get_serializer(*args, **kwargs)
        return self.in_part(serializer) if self.has_fields(self.action) else serializer

    def in_part(self, serializer: Any) -> Any:
        """The serializer with those fields only that `?fields=` names; the others are not made."""
        # There is none while the schema is made.
        request: Request | None = getattr(self, "request", None)
        given = request.query_params.get(FIELDS) if request is not None else None
        if given is None:
            return serializer
        shown = getattr(serializer, "child", serializer).fields
        wanted = given.split(",")
        unknown = [name for name in wanted if name not in shown]
        if unknown:
            message = "There is no field “{}” here. {}"
            raise QueryProblem(
                [
                    {"pointer": f"?{FIELDS}", "code": "unknown", "message": message.format(name, hint(name, [*shown]))}
                    for name in unknown
                ]
            )
        for name in [name for name in shown if name not in wanted]:
            shown.pop(name)
        return serializer

    @property
    def person(self) -> User:
        """Who is calling; the permission class has let nobody else through."""
        user = self.request.user
        assert isinstance(user, User)
        return user

    def may(self, permission: Permission) -> bool:
        """Whether who is calling may do this too, by role and by the scopes of the key."""
        return caller_may(self.request.user, self.request.auth, permission)
