"""Datasets: versioned collections of tasks."""

from http import HTTPStatus
from typing import Any

import django_filters
from django.db.models import Count, OuterRef, Prefetch, QuerySet, Subquery
from django.db.models.functions import Coalesce
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.mixins import CreateModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.datasets.upload_viewsets import WAIT, ChoicesSerializer, UploadSerializer, answer_upload
from apps.api.datasets.version_actions import VersionActions, VersionSerializer
from apps.api.deletion_viewsets import DeletionSerializer, answer_deletion
from apps.api.framework.base_viewsets import SLUG, operation
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import SlugFilter, WordsFilter, filter_set
from apps.api.framework.request_bodies import FILE_PARSERS, RAW_TYPES, open_body
from apps.api.framework.spec_serializers import make_parameter, spec_serializer
from apps.api.framework.upload_options import Options, describe_form, read_options
from apps.environments.models import Environment
from apps.gym.specs import spec_fields
from apps.gym.strict_json import JsonRefused, load_strict
from apps.tasks.dataset_changes import create_dataset, rename_dataset
from apps.tasks.dataset_deletion import queue_deletion
from apps.tasks.models import Dataset, DatasetVersion
from apps.tasks.received_files import create_upload, store_file
from apps.tasks.upload_choices import MAX_SEED, ChoiceRefused, Choices, choose_filename, read_shares
from apps.tasks.upload_jobs import upload_file
from apps.tasks.upload_turns import ANSWER_SECONDS

MAX_DESCRIPTION = 10_000


class DatasetSerializer(DeclaredFields, serializers.ModelSerializer[Dataset]):
    environment = serializers.SlugRelatedField(slug_field="slug", queryset=Environment.objects.all())
    version_count = serializers.IntegerField(
        read_only=True, help_text="Number of ready versions. List them at `versions/`."
    )
    latest_version = serializers.SerializerMethodField(help_text="Latest ready version; null before the first.")
    description = serializers.CharField(allow_blank=True, required=False, max_length=MAX_DESCRIPTION)

    class Meta:
        model = Dataset
        fields = [
            "id",
            "slug",
            "name",
            "description",
            "environment",
            "version_count",
            "latest_version",
            "created_at",
        ]

    @extend_schema_field(VersionSerializer(allow_null=True))
    def get_latest_version(self, dataset: Dataset) -> dict[str, Any] | None:
        # Set by `with_newest`.
        newest: list[DatasetVersion] = dataset.newest_versions  # type: ignore[attr-defined]
        return VersionSerializer(newest[0]).data if newest else None


def with_newest(datasets: QuerySet[Dataset]) -> QuerySet[Dataset]:
    """Prefetch the newest versions of the datasets, with one query per page."""
    ready = DatasetVersion.objects.filter(state=DatasetVersion.State.READY)
    counted = ready.filter(dataset=OuterRef("pk")).order_by().values("dataset").annotate(n=Count("pk")).values("n")
    newest = ready.order_by("-number").select_related("base").defer("metrics", "base__metrics")[:1]
    return datasets.annotate(version_count=Coalesce(Subquery(counted), 0)).prefetch_related(
        Prefetch("versions", newest, to_attr="newest_versions")
    )


class DatasetNamesSerializer(DeclaredFields, serializers.Serializer[Any]):
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(allow_blank=True, max_length=MAX_DESCRIPTION)


@spec_serializer(Choices, "check_only")
class PartsSerializer(ChoicesSerializer):
    filename = serializers.CharField(max_length=255, default="rows.jsonl")
    draft = serializers.BooleanField(default=False, help_text="Wait for a mapping after the last part.")


CHOICES = {name: make_parameter(field) for name, field in spec_fields(Choices).items()}


UPLOAD_PARAMETERS = [
    OpenApiParameter("environment", str, description="Creates a missing dataset with this environment."),
    OpenApiParameter("filename", str, description="File name. Default: the file name of the form field."),
    OpenApiParameter("draft", bool, default=False, description="Wait for a mapping instead of loading."),
    WAIT,
    *CHOICES.values(),
]
UPLOAD_OPTIONS = frozenset(one.name for one in UPLOAD_PARAMETERS)


def read_choices(options: Options) -> Choices:
    """Return how to load a file."""
    given: dict[str, Any] = {name: options[name] for name in CHOICES if name in options}
    if given.get("mapping", "").lstrip().startswith("{"):
        try:
            given["mapping"] = load_strict(given["mapping"])
        except JsonRefused as refusal:
            what = "Invalid JSON: " if refusal.code == "not_json" else ""
            raise options.refuse("mapping", f"{what}{refusal.message.rstrip('.')}.") from None
    if "split_seed" in given:
        text = given["split_seed"]
        if not text.isascii() or not text.isdigit() or len(text) > 19:
            raise options.refuse("split_seed", f"Give a whole number from 0 to {MAX_SEED}.")
        given["split_seed"] = int(text)
    given["check_only"] = options.flag("check_only")
    try:
        if "split_ratios" in given:
            given["split_ratios"] = read_shares(given["split_ratios"])
        choices = Choices(**given)
        choices.as_fields()
    except ChoiceRefused as error:
        raise options.refuse(error.argument, str(error)) from None
    return choices


class DatasetViewSet(CreateModelMixin, ListModelMixin, RetrieveModelMixin, VersionActions):
    queryset = with_newest(Dataset.objects.select_related("environment"))
    serializer_class = DatasetSerializer
    filterset_class = filter_set(
        q=WordsFilter(),
        environment=SlugFilter("environment"),
        name=django_filters.CharFilter(field_name="name", lookup_expr="icontains"),
    )
    lookup_field = "slug"
    lookup_value_regex = SLUG
    permissions = {
        **dict.fromkeys(
            ["list", "retrieve", "uploads", "versions", "version", "metrics", "changes", "changed_tasks", "rows"],
            Permission.READ_TASKS,
        ),
        **dict.fromkeys(
            ["create", "upload", "upload_in_parts", "partial_update", "destroy", "delete_version", "check_gold"],
            Permission.UPLOAD,
        ),
    }
    query_parameters = {"upload": UPLOAD_OPTIONS}
    page_actions = frozenset({"list", "uploads", "versions", "changed_tasks"})
    problems = {"metrics": {409}}

    def perform_create(self, serializer: serializers.BaseSerializer[Dataset]) -> None:
        made = create_dataset(**serializer.validated_data, user=self.user)
        serializer.instance = self.get_queryset().get(pk=made.pk)

    @extend_schema(request=DatasetNamesSerializer, responses=DatasetSerializer)
    def partial_update(self, request: Request, slug: str) -> Response:
        """Change name and description of a dataset."""
        dataset = self.get_object()
        context = {"shown": DatasetSerializer(dataset).data, "changing": {"version_count", "latest_version"}}
        wanted = self.read_body(DatasetNamesSerializer, partial=True, context=context)
        rename_dataset(dataset=dataset, **wanted, user=self.user)
        return Response(DatasetSerializer(self.get_object()).data)

    @extend_schema(responses={202: DeletionSerializer})
    def destroy(self, request: Request, slug: str) -> Response:
        """Delete a dataset with all versions and uploads.

        A worker deletes in the background. The list of deletions shows the progress.
        """
        return answer_deletion(queue_deletion(dataset=self.get_object(), user=self.user))

    @extend_schema(responses=UploadSerializer(many=True), filters=False)
    @action(detail=True, filterset_class=None, parser_classes=FILE_PARSERS)
    def uploads(self, request: Request, slug: str) -> Response:
        """List the uploads into this dataset."""
        return self.answer_page(UploadSerializer, self.get_object().uploads.select_related("dataset", "version"))

    @extend_schema(
        request={
            "multipart/form-data": describe_form({"type": "string", "format": "binary"}, UPLOAD_PARAMETERS),
            **dict.fromkeys(RAW_TYPES, OpenApiTypes.BINARY),
        },
        responses={202: UploadSerializer, 201: UploadSerializer},
        parameters=UPLOAD_PARAMETERS,
    )
    @uploads.mapping.post
    def upload(self, request: Request, slug: str) -> Response:
        """Upload a file, as the form field `file` or as the body.

        A worker loads it unless `wait` is set. Parameters may also be form fields.
        """
        options = read_options(request, UPLOAD_OPTIONS)
        # Before the dataset is created: invalid options or an unreadable body must not leave an empty dataset.
        choices = read_choices(options)
        wait, draft = options.flag("wait"), options.flag("draft")
        stream, filename = open_body(request, filename=options.get("filename", ""))
        try:
            choose_filename(filename)
        except ChoiceRefused as error:
            raise options.refuse(error.argument, str(error)) from None
        given: dict[str, Any] = {"stream": stream, "filename": filename, "choices": choices, "user": self.user}
        dataset = self._dataset_for_upload(slug, options)
        if wait and not choices.check_only and not draft:
            return answer_upload(upload_file(dataset=dataset, patience=ANSWER_SECONDS, **given))
        # A validated upload is kept until its commit.
        return answer_upload(store_file(dataset=dataset, draft=draft, **given), wait=wait)

    @operation(url_path="uploads/parts", request=PartsSerializer, responses={201: UploadSerializer})
    def upload_in_parts(self, request: Request, slug: str) -> Response:
        """Start a large upload: PUT its parts to `/uploads/{id}/parts/`, then POST `/uploads/{id}/finish/`."""
        dataset = self.get_object()
        given = self.read_body(PartsSerializer)
        filename, draft = given.pop("filename"), given.pop("draft")
        upload = create_upload(
            dataset=dataset, filename=filename, choices=Choices(**given), draft=draft, user=self.user
        )
        return Response(UploadSerializer(upload).data, status=HTTPStatus.CREATED)

    def _dataset_for_upload(self, slug: str, options: Options) -> Dataset:
        dataset = Dataset.objects.filter(slug=slug).first()
        if dataset is not None:
            return dataset
        wanted = options.get("environment")
        if wanted is None:
            raise NotFound(
                f"There is no dataset {slug}. Create it, or give ?environment= to create it with the upload."
            )
        environment = Environment.objects.filter(slug=wanted).first()
        if environment is None:
            raise options.refuse("environment", f"Environment {wanted} does not exist.")
        given = DatasetSerializer(data={"slug": slug, "name": slug, "environment": wanted})
        given.is_valid(raise_exception=True)
        return create_dataset(slug=slug, name=slug, environment=environment, user=self.user)
