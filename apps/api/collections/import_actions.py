"""Import stored rollouts from files as a collection."""

from dataclasses import replace
from http import HTTPStatus
from typing import Any

from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.agents.models import Agent
from apps.api.collections.collection_serializers import CollectionSerializer
from apps.api.framework.base_viewsets import TableViewSet, operation
from apps.api.framework.problems import QueryProblem, flatten_errors
from apps.api.framework.record_serializers import make_serializer, record_serializer
from apps.api.framework.request_bodies import FILE_PARSERS, RAW_TYPES, open_files
from apps.api.framework.spec_serializers import make_parameter, spec_serializer
from apps.api.framework.upload_options import describe_form, read_options
from apps.gym.specs import spec_fields
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import Imported, import_rollouts
from apps.rollouts.imports.task_matching import BadLine, File

_FIELDS = {**spec_fields(ImportOrder), "agent": replace(spec_fields(ImportOrder)["agent"], default="default")}
IMPORT_PARAMETERS = [make_parameter(field) for field in _FIELDS.values()]
IMPORT_OPTIONS = frozenset(_FIELDS)


@spec_serializer(ImportOrder)
class ImportSerializer(serializers.Serializer[Any]):
    agent = serializers.SlugRelatedField(slug_field="slug", queryset=Agent.objects.all(), default=None)

    def validate_agent(self, agent: Agent | None) -> Agent:
        found = agent or Agent.objects.filter(slug="default").first()
        if found is None:
            raise serializers.ValidationError("No agent named default exists. Give an agent.")
        return found


BadLineSerializer = make_serializer("BadLine", BadLine)


@record_serializer(
    Imported,
    refused="Number of skipped lines.",
    superseded="Failures left out because the attempts were repeated.",
    renumbered="Rollouts with a duplicate repeat number, which got new numbers.",
    repeated="Lines left out because an identical line is before them in the same file.",
)
class ImportedSerializer(serializers.Serializer[Any]):
    created = None
    collection = CollectionSerializer(read_only=True)
    errors = BadLineSerializer(many=True, read_only=True, help_text="The first errors.")  # type: ignore[assignment]


class ImportActions(TableViewSet):
    """Actions of the collection viewset that import rollouts."""

    @operation(
        detail=False,
        url_path="import",
        parser_classes=FILE_PARSERS,
        request={
            "multipart/form-data": describe_form(
                {"type": "array", "items": {"type": "string", "format": "binary"}}, IMPORT_PARAMETERS
            ),
            **dict.fromkeys(RAW_TYPES, OpenApiTypes.BINARY),
        },
        responses={201: ImportedSerializer, 200: ImportedSerializer},
        parameters=IMPORT_PARAMETERS,
    )
    def import_stored(self, request: Request) -> Response:
        """Import stored rollouts as a collection: rows of NeMo Gym, results of verifiers, chat logs, ATIF
        trajectories, or sessions of Claude Code and Codex.

        The body is one JSONL file, or a form with several files named `file`. 200 if the same files were imported
        before.
        """
        options = read_options(request, IMPORT_OPTIONS, multiple=True)
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
                ImportOrder(**asked.validated_data), files=[File(*each) for each in files], user=self.user
            )
        status = HTTPStatus.CREATED if imported.created else HTTPStatus.OK
        return Response(ImportedSerializer(imported).data, status=status)
