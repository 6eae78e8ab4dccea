"""Register NeMo Gym configurations from text."""

from http import HTTPStatus
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.record_serializers import make_serializer
from apps.gym.gymconfig.merging import Problem
from apps.gym.gymconfig.pasted_files import MOST_PASTED
from apps.rollouts.imports.gym_config_import import Line, register_pasted


class GymConfigSerializer(serializers.Serializer[Any]):
    text = serializers.CharField(
        trim_whitespace=False,
        max_length=MOST_PASTED,
        help_text="One or more YAML documents. Start each with a line `--- # name.yaml`. Later "
        "documents override earlier ones.",
    )
    addresses = serializers.DictField(
        child=serializers.CharField(),
        required=False,
        help_text="URLs of resource servers and agents by name. They override the configuration.",
    )
    without_models = serializers.BooleanField(default=False, help_text="Skip models.")
    without_data = serializers.BooleanField(default=False, help_text="Skip datasets.")


RegisteredLineSerializer = make_serializer(
    "RegisteredLine",
    Line,
    kind="`environment`, `agent`, `policy model`, `dataset`, `tasks` or `note`",
    slug="Text of a note.",
    outcome="`created`, `changed`, `unchanged` or `skipped`",
)


ConfigProblemSerializer = make_serializer(
    "ConfigProblem",
    Problem,
    file="Name or number of the document.",
    key="Dotted key; empty for the whole document.",
)


class RegisteredSerializer(serializers.Serializer[Any]):
    lines = RegisteredLineSerializer(many=True)
    problems = ConfigProblemSerializer(many=True, help_text="If there are any, nothing is registered.")


class GymConfigViewSet(TableViewSet):
    serializer_class = RegisteredSerializer
    filter_backends = ()
    pagination_class = None
    permissions = {"register": Permission.CONFIGURE, "preview": Permission.CONFIGURE}

    @extend_schema(
        request=GymConfigSerializer, responses={201: RegisteredSerializer}, operation_id="gym_configs_register"
    )
    def register(self, request: Request) -> Response:
        """Register everything that the text describes, or nothing if there are problems."""
        return Response(self._register(request, preview=False), status=HTTPStatus.CREATED)

    @extend_schema(request=GymConfigSerializer, responses=RegisteredSerializer, operation_id="gym_configs_preview")
    def preview(self, request: Request) -> Response:
        """Return what registering would do, and any problems. Stores nothing."""
        return Response(self._register(request, preview=True))

    def _register(self, request: Request, *, preview: bool) -> dict[str, Any]:
        asked = self.read_body(GymConfigSerializer)
        registered = register_pasted(**{"addresses": {}, **asked}, preview=preview, user=self.user)
        return RegisteredSerializer(registered).data
