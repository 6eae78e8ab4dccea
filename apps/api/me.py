"""Who is calling, and what they may do: the first thing a program asks."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.accounts.permissions import ROLE_PERMISSIONS, Permission
from apps.api.viewsets import TableViewSet


class MeSerializer(serializers.Serializer[Any]):
    username = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)
    permissions = serializers.ListField(child=serializers.ChoiceField(choices=[str(one) for one in Permission]))


class MeViewSet(TableViewSet):
    serializer_class = MeSerializer
    permissions = {"show": Permission.OWN_ACCOUNT}

    @extend_schema(responses=MeSerializer, operation_id="me")
    def show(self, request: Request) -> Response:
        person = self.person
        permissions = sorted(ROLE_PERMISSIONS[person.role])
        return Response({"username": person.username, "role": person.role, "permissions": permissions})
