"""Stored rollouts that come as files and become a collection."""

from http import HTTPStatus
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.agents.models import Agent
from apps.api.collections.collection_serializers import CollectionSerializer
from apps.api.framework.base_viewsets import SLUG, TableViewSet
from apps.api.framework.problems import QueryProblem, flatten_errors
from apps.api.framework.request_bodies import FILE_PARSERS, RAW_TYPES, open_files
from apps.api.framework.upload_options import describe_form, read_options
from apps.gym.rollout_files.shapes.stored_rows import FORMATS
from apps.policies.models import PolicyModel
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.imports.task_matching import File
from apps.tasks.models import Dataset, Upload

NAME = {"type": "string", "pattern": f"^{SLUG}$"}
IMPORT_PARAMETERS = [
    OpenApiParameter("dataset", NAME, description="Required, here or in the form."),
    OpenApiParameter("agent", NAME, default="default"),
    OpenApiParameter("policy_model", NAME, description="Left out: one that is named as in the rows."),
    OpenApiParameter("name", str),
    OpenApiParameter(
        "format",
        str,
        enum=list(FORMATS),
        default="auto",
        description="What the lines are; auto: by their keys.",
    ),
    OpenApiParameter("on_error", str, enum=Upload.OnError.values, default=Upload.OnError.REJECT.value),
]
IMPORT_OPTIONS = frozenset(one.name for one in IMPORT_PARAMETERS)


class ImportSerializer(serializers.Serializer[Any]):
    dataset = serializers.SlugRelatedField(slug_field="slug", queryset=Dataset.objects.select_related("environment"))
    agent = serializers.SlugRelatedField(slug_field="slug", queryset=Agent.objects.all(), default=None)
    policy_model = serializers.SlugRelatedField(slug_field="slug", queryset=PolicyModel.objects.all(), required=False)
    name = serializers.CharField(max_length=200, required=False, allow_blank=True)
    format = serializers.ChoiceField(choices=list(FORMATS), default="auto")
    on_error = serializers.ChoiceField(choices=Upload.OnError.choices, default=Upload.OnError.REJECT)

    def validate_agent(self, agent: Agent | None) -> Agent:
        found = agent or Agent.objects.filter(slug="default").first()
        if found is None:
            raise serializers.ValidationError("There is no agent named default: name one.")
        return found


class BadLineSerializer(serializers.Serializer[Any]):
    file = serializers.CharField()
    line = serializers.IntegerField()
    code = serializers.CharField()
    message = serializers.CharField()


class ImportedSerializer(serializers.Serializer[Any]):
    collection = CollectionSerializer(read_only=True)
    refused = serializers.IntegerField(help_text="Lines that were left out.")
    superseded = serializers.IntegerField(help_text="Failures of attempts that were made again, which were left out.")
    renumbered = serializers.IntegerField(
        help_text="Rollouts whose number of the task another line has too: counted as further ones."
    )
    errors = BadLineSerializer(many=True, read_only=True, help_text="The first of them.")  # type: ignore[assignment]


class ImportActions(TableViewSet):
    """The part of the viewset of collections that imports them."""

    @extend_schema(
        request={
            "multipart/form-data": describe_form(
                {"type": "array", "items": {"type": "string", "format": "binary"}}, IMPORT_PARAMETERS
            ),
            **dict.fromkeys(RAW_TYPES, OpenApiTypes.BINARY),
        },
        responses={201: ImportedSerializer, 200: ImportedSerializer},
        parameters=IMPORT_PARAMETERS,
    )
    @action(detail=False, methods=["post"], url_path="import", parser_classes=FILE_PARSERS)
    def import_stored(self, request: Request) -> Response:
        """Stored rollouts as a collection: rows of NeMo Gym, results of verifiers, or chat logs. The body is one JSONL
        file, or a form with several as `file`. 200 where these files were imported before."""
        options = read_options(request, IMPORT_OPTIONS, several=True)
        asked = ImportSerializer(data=options)
        try:
            asked.is_valid(raise_exception=True)
        except serializers.ValidationError as wrong:
            raise QueryProblem(
                [
                    {**error, "pointer": options.pointer(error["pointer"].lstrip("/"))}
                    for error in flatten_errors(wrong.get_full_details())
                ]
            ) from wrong
        with open_files(request) as files:
            imported = import_rollouts(
                files=[File(name, stream) for name, stream in files], **asked.validated_data, user=self.person
            )
        answer = {"collection": imported.collection, "refused": imported.refused}
        answer |= {"superseded": imported.superseded, "renumbered": imported.renumbered, "errors": imported.errors}
        status = HTTPStatus.CREATED if imported.created else HTTPStatus.OK
        return Response(ImportedSerializer(answer).data, status=status)
