"""The calling user, their permissions, and their API keys."""

from datetime import timedelta
from http import HTTPStatus
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api_keys import create_api_key, revoke_api_key
from apps.accounts.models import KEY_STATES, ApiKey, Role, Scope
from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, TableViewSet
from apps.api.framework.declared_fields import DeclaredFields

DEFAULT_DAYS = 90
"""Same default as the command. Keys without expiry must be requested explicitly."""


class MeSerializer(serializers.Serializer[Any]):
    username = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=Scope.choices),
        allow_null=True,
        help_text="Scopes of the key; null in a session.",
    )
    permissions = serializers.ListField(
        child=serializers.ChoiceField(choices=[str(one) for one in Permission]),
        help_text="Permissions of the role, limited to the scopes of the key.",
    )


class MeViewSet(TableViewSet):
    serializer_class = MeSerializer
    permissions = {"show": Permission.MEMBER}

    @extend_schema(responses=MeSerializer, operation_id="me")
    def show(self, request: Request) -> Response:
        """Return the calling user and their permissions."""
        person, api_key = self.user, request.auth
        return Response(
            {
                "username": person.username,
                "role": person.role,
                "scopes": api_key.scopes if isinstance(api_key, ApiKey) else None,
                "permissions": sorted(permission for permission in Permission if self.may(permission)),
            }
        )


class ApiKeySerializer(DeclaredFields, serializers.ModelSerializer[ApiKey]):
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices), allow_empty=False)
    state = serializers.ChoiceField(choices=KEY_STATES, read_only=True)
    days = serializers.IntegerField(
        write_only=True,
        required=False,
        allow_null=True,
        min_value=1,
        max_value=3650,
        help_text="Default: 90 days. Null: never expires.",
    )

    class Meta:
        model = ApiKey
        fields = [
            "id",
            "name",
            "prefix",
            "scopes",
            "state",
            "days",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
            "last_used_address",
        ]
        read_only_fields = ["prefix", "expires_at", "revoked_at", "last_used_at", "last_used_address"]


class NewApiKeySerializer(ApiKeySerializer):
    token = serializers.CharField(read_only=True, help_text="The key. It is shown only once.")

    class Meta(ApiKeySerializer.Meta):
        fields = [*ApiKeySerializer.Meta.fields, "token"]


class ApiKeyViewSet(RowViewSet):
    """The user's API keys. Requires a session: a key can neither list, create nor revoke keys."""

    queryset = ApiKey.objects.none()
    serializer_class = ApiKeySerializer
    # The response contains the key, which must not be stored.
    without_idempotency = frozenset({"create"})
    permissions = dict.fromkeys(["list", "retrieve", "create", "destroy"], Permission.OWN_ACCOUNT)

    def get_queryset(self) -> QuerySet[ApiKey]:
        return ApiKey.objects.filter(user=self.user) if self.request.user.is_authenticated else self.queryset

    @extend_schema(request=ApiKeySerializer, responses={201: NewApiKeySerializer})
    def create(self, request: Request) -> Response:
        """Create a key. Its token is shown only in this response. Requires a session."""
        given = self.read_body(ApiKeySerializer)
        days = given.pop("days", DEFAULT_DAYS)
        expires_at = timezone.now() + timedelta(days=days) if days else None
        api_key, token = create_api_key(user=self.user, **given, expires_at=expires_at, by=self.user)
        return Response(
            {**ApiKeySerializer(api_key).data, "token": token},
            status=HTTPStatus.CREATED,
            headers={"Cache-Control": "no-store"},
        )

    @extend_schema(responses=ApiKeySerializer)
    def destroy(self, request: Request, pk: str) -> Response:
        """Revoke a key. It is rejected from now on and stays in the list."""
        return Response(ApiKeySerializer(revoke_api_key(api_key=self.get_object(), user=self.user)).data)
