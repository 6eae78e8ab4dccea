"""Base classes of API views. Each action declares its permission and its query parameters."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import django_filters
from django.db.models import Model, QuerySet
from django.utils.decorators import method_decorator
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin, UpdateModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.viewsets import GenericViewSet

from apps.accounts.models import User
from apps.accounts.permissions import Permission, caller_may
from apps.api.framework.declared_fields import suggest_name
from apps.api.framework.file_answers import conditional
from apps.api.framework.idempotency import Handler, once
from apps.api.framework.pagination import PAGE_PARAMETERS
from apps.api.framework.problems import QueryProblem
from apps.api.framework.query_filters import refuse_unknown_parameters
from apps.policies.redacted_fields import REDACTED

# The characters of a SlugField, so without NUL, for which PostgreSQL raises an error.
SLUG = "[-a-zA-Z0-9_]+"
FIELDS = "fields"
_SCHEMA_OPTIONS = {"operation_id", "request", "responses", "parameters", "filters", "examples"}


def operation(
    method: Literal["get", "post", "put"] = "post", *, detail: bool = True, **options: Any
) -> Callable[[Any], Any]:
    """Declare an action of a viewset with its OpenAPI schema.

    `options` are passed to DRF's `action` or to `extend_schema`. A POST without `request` has no body. The view accepts
    the query parameters among `parameters`, and with `filters` or a `filterset_class` the parameters of the filters.
    """
    schema = {name: options.pop(name) for name in _SCHEMA_OPTIONS & options.keys()}
    if method == "post":
        schema.setdefault("request", None)

    def decorate(handler: Any) -> Any:
        queried = (one.name for one in schema.get("parameters", ()) if one.location == OpenApiParameter.QUERY)
        handler.query_parameters = frozenset(queried)
        handler.takes_filters = bool(schema.get("filters") or options.get("filterset_class"))
        return extend_schema(**schema)(action(detail=detail, methods=[method], **options)(handler))

    return decorate


def row_action(name: str, change: Callable[..., Any], about: str) -> Any:
    """Return a POST action that passes the row, as the argument `noun` of the view, and the user to `change`.

    The response is the row that `change` returns. `about` describes the operation in the schema.
    """

    def handler(view: "TableViewSet", request: Request, **key: str) -> Response:
        return Response(view.get_serializer(change(**{view.noun: view.get_object()}, user=view.user)).data)

    handler.__name__, handler.__doc__ = name, about
    return operation()(handler)


def row_deletion(delete: Callable[..., None], about: str) -> Any:
    """Return the `perform_destroy` of a view: it passes the row, as the argument `noun`, and the user to `delete`."""

    def handler(view: "TableViewSet", instance: Any) -> None:
        delete(**{view.noun: instance}, user=view.user)

    handler.__doc__ = about
    return handler


@method_decorator(conditional, name="dispatch")
class TableViewSet(GenericViewSet[Any]):
    # Comments, because drf-spectacular copies docstrings of base classes into the schema.
    # Base class of all API views: query parameters, sparse fields and idempotency keys.

    # TRACE is left out: Django REST Framework would call an action named `trace` without checking its permission.
    http_method_names = ["get", "post", "put", "patch", "delete", "head", "options"]
    permissions: ClassVar[Mapping[str, Permission]] = {}
    # Name of the row in the arguments of the functions that change it.
    noun: ClassVar[str] = ""
    # Query parameters of actions that are not declared with `operation`.
    query_parameters: ClassVar[Mapping[str, frozenset[str]]] = {}
    filterset_class: type[django_filters.FilterSet] | None = None
    # Actions that return a page of rows. `filterset_class` applies only to `list`.
    page_actions: ClassVar[frozenset[str]] = frozenset({"list"})
    # POST actions that handle the Idempotency-Key header themselves.
    own_idempotency: ClassVar[frozenset[str]] = frozenset()
    # POST actions that reject the Idempotency-Key header.
    without_idempotency: ClassVar[frozenset[str]] = frozenset()
    # POST actions whose responses contain secrets. Of a response, only its attribute `kept` is stored; for a repeated
    # request, `replay` builds the response again.
    replayed: ClassVar[frozenset[str]] = frozenset()
    post: Handler

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        handler = getattr(self, self.action or "", None)
        known = {*self.query_parameters.get(self.action, ()), *getattr(handler, "query_parameters", ())}
        if self.action in self.page_actions:
            known |= PAGE_PARAMETERS
        if self.has_fields(self.action):
            known.add(FIELDS)
        takes_filters = self.action == "list" or getattr(handler, "takes_filters", False)
        if takes_filters and self.filterset_class is not None:
            known |= set(self.filterset_class.base_filters)
        refuse_unknown_parameters(request, known)

        if request.method == "POST" and hasattr(self, "post") and self.action not in self.own_idempotency:
            replay = self.replay if self.action in self.replayed else None
            self.post = once(self.post, repeatable=self.action not in self.without_idempotency, replay=replay)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        if counts := getattr(request._request, REDACTED, None):
            answer["GymWeb-Redacted"] = ", ".join(f"{kind}={count}" for kind, count in sorted(counts.items()))
        return answer

    def replay(self, request: Request, kept: Any) -> Response:
        """Return the response to a repeated request of a `replayed` action. `kept` is from the first response."""
        raise NotImplementedError

    @classmethod
    def has_fields(cls, action: str | None) -> bool:
        """Return True if the action supports `?fields=`."""
        return action == "retrieve" or action in cls.page_actions

    def get_serializer(self, *args: Any, **kwargs: Any) -> Any:
        serializer = super().get_serializer(*args, **kwargs)
        return self.select_fields(serializer) if self.has_fields(self.action) else serializer

    def select_fields(self, serializer: Any) -> Any:
        """Restrict the serializer to the fields in `?fields=`. Raise QueryProblem for unknown fields."""
        # There is no request while drf-spectacular generates the schema.
        request: Request | None = getattr(self, "request", None)
        given = request.query_params.get(FIELDS) if request is not None else None
        if given is None:
            return serializer
        shown = getattr(serializer, "child", serializer).fields
        wanted = given.split(",")
        unknown = [name for name in wanted if name not in shown]
        if unknown:
            message = "Unknown field “{}”. {}"
            raise QueryProblem(
                [
                    {
                        "pointer": f"?{FIELDS}",
                        "code": "unknown",
                        "message": message.format(name, suggest_name(name, [*shown])),
                    }
                    for name in unknown
                ]
            )
        for name in [name for name in shown if name not in wanted]:
            shown.pop(name)
        return serializer

    def read_body(self, kind: type[BaseSerializer[Any]], row: Any = None, **options: Any) -> dict[str, Any]:
        """Return the validated fields of the body. `row` is the row to change, if any. Raise ValidationError."""
        body = kind(row, data=self.request.data, **options)
        body.is_valid(raise_exception=True)
        return dict(body.validated_data)

    def answer_page(self, kind: type[BaseSerializer[Any]], rows: QuerySet[Any]) -> Response:
        """Return a page of `rows`, for actions that list something other than the queryset of the view."""
        page = kind(self.paginate_queryset(rows), many=True, context=self.get_serializer_context())
        return self.get_paginated_response(self.select_fields(page).data)

    @property
    def user(self) -> User:
        """Return the authenticated user. The permission class rejects all other requests."""
        user = self.request.user
        assert isinstance(user, User)
        return user

    def may(self, permission: Permission) -> bool:
        """Return True if role and key scopes of this request grant the permission."""
        return caller_may(self.request.user, self.request.auth, permission)


class RowViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    # Read-only views of objects that URLs identify by number.
    lookup_value_regex = "[0-9]+"


class SavedRowViewSet(CreateModelMixin, UpdateModelMixin, TableViewSet):
    # Views of objects that create and update save with the same function, which validates the whole row.

    # A function with the arguments `noun` and `user`, and an argument for each of `private_fields`.
    save_row: Callable[..., Model]
    # Write-only fields that are arguments of `save_row`. None keeps the stored value.
    private_fields: ClassVar[tuple[str, ...]] = ()

    def perform_create(self, serializer: BaseSerializer[Any]) -> None:
        self.perform_update(serializer)

    def perform_update(self, serializer: BaseSerializer[Any]) -> None:
        row = serializer.instance or self.get_queryset().model()
        fields = dict(serializer.validated_data)
        private = {name: fields.pop(name, None) for name in self.private_fields}
        for name, value in fields.items():
            setattr(row, name, value)
        serializer.instance = self.save_row(**{self.noun: row}, **private, user=self.user)


class SlugViewSet(SavedRowViewSet, ListModelMixin, RetrieveModelMixin):
    # Views of objects that URLs identify by slug.
    lookup_field = "slug"
    lookup_value_regex = SLUG
