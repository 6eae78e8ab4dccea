"""What every view of the API has in common: a rule for each action, and no parameter that is not declared."""

from collections.abc import Mapping
from typing import Any, ClassVar

import django_filters
from django.db.models import Model
from rest_framework.request import Request
from rest_framework.viewsets import GenericViewSet

from apps.accounts.models import User
from apps.accounts.permissions import Permission, caller_may
from apps.api.filters import refuse_unknown_parameters
from apps.api.pagination import PAGE_PARAMETERS

# What a SlugField takes. A looser one would carry bytes to the database that PostgreSQL refuses.
SLUG = "[-a-zA-Z0-9_]+"


def assign(row: Model, fields: Mapping[str, Any]) -> None:
    """Validated fields → row; the operation that saves it checks the whole."""
    for name, value in fields.items():
        setattr(row, name, value)


class TableViewSet(GenericViewSet[Any]):
    permissions: ClassVar[Mapping[str, Permission]] = {}
    query_parameters: ClassVar[Mapping[str, frozenset[str]]] = {}
    filterset_class: type[django_filters.FilterSet] | None = None
    # Actions that answer with a page of rows; `filterset_class` filters only `list`.
    page_actions: ClassVar[frozenset[str]] = frozenset({"list"})

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        known = set(self.query_parameters.get(self.action, ()))
        if self.action in self.page_actions:
            known |= PAGE_PARAMETERS
        if self.action == "list" and self.filterset_class is not None:
            known |= set(self.filterset_class.base_filters)
        refuse_unknown_parameters(request, known)

    @property
    def person(self) -> User:
        """Who is calling; the permission class has let nobody else through."""
        user = self.request.user
        assert isinstance(user, User)
        return user

    def may(self, permission: Permission) -> bool:
        """Whether who is calling may do this too, by role and by the scopes of the key."""
        return caller_may(self.request.user, self.request.auth, permission)
