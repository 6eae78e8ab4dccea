"""NeMo Gym configurations, registered from their text."""

from http import HTTPStatus
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import TableViewSet
from apps.gym.gymconfig.pasted_files import MOST_PASTED
from apps.rollouts.imports.gym_config_import import Registered, register_pasted


class GymConfigSerializer(serializers.Serializer[Any]):
    text = serializers.CharField(
        trim_whitespace=False,
        max_length=MOST_PASTED,
        help_text="YAML of one configuration, or of several, each below a line `--- # name.yaml`; later ones override.",
    )
    addresses = serializers.DictField(
        child=serializers.CharField(),
        required=False,
        help_text="Where resource servers run, by their names, over what the configuration says.",
    )
    without_models = serializers.BooleanField(default=False, help_text="Leaves models out.")
    without_data = serializers.BooleanField(default=False, help_text="Leaves datasets out.")


class RegisteredLineSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField(help_text="`environment`, `agent`, `policy model`, `dataset`, `tasks` or `note`")
    slug = serializers.CharField(help_text="Of a note its text.")
    outcome = serializers.CharField(help_text="`created`, `changed`, `unchanged` or `skipped`")
    told = serializers.CharField()


class ConfigProblemSerializer(serializers.Serializer[Any]):
    file = serializers.CharField(help_text="The name of the document, or its number.")
    key = serializers.CharField(help_text="The dotted key; empty where the document as a whole is meant.")
    message = serializers.CharField()


class RegisteredSerializer(serializers.Serializer[Any]):
    lines = RegisteredLineSerializer(many=True)
    problems = ConfigProblemSerializer(many=True, help_text="With any of these, nothing is registered.")


class GymConfigViewSet(TableViewSet):
    serializer_class = RegisteredSerializer
    filter_backends = ()
    pagination_class = None
    permissions = {"register": Permission.CONFIGURE, "preview": Permission.CONFIGURE}

    @extend_schema(
        request=GymConfigSerializer, responses={201: RegisteredSerializer}, operation_id="gym_configs_register"
    )
    def register(self, request: Request) -> Response:
        """Registers what the text describes: all of it, or nothing where anything is wrong."""
        return Response(_show(self._register(request, preview=False)), status=HTTPStatus.CREATED)

    @extend_schema(request=GymConfigSerializer, responses=RegisteredSerializer, operation_id="gym_configs_preview")
    def preview(self, request: Request) -> Response:
        """What registering would do, and what keeps it from being done; nothing is stored."""
        return Response(_show(self._register(request, preview=True)))

    def _register(self, request: Request, *, preview: bool) -> Registered:
        asked = GymConfigSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        return register_pasted(**{"addresses": {}, **asked.validated_data}, preview=preview, user=self.person)


def _show(registered: Registered) -> dict[str, Any]:
    return RegisteredSerializer(registered).data
