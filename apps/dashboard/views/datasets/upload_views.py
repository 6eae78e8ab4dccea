"""Uploads: the wizard from file to mapping, check and commit, the results, and saved mappings."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.text import slugify

from apps.accounts.disk_space import DiskFull
from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.file_downloads import explain_range
from apps.dashboard.chrome.page_answers import answer, answer_form, carry_out, go, posted, show_refusal
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view, list_view
from apps.dashboard.forms.upload_forms import CommitForm, MappingForm, UploadForm, mapping_initial
from apps.exports.ranged_downloads import stream_file
from apps.gym.storable import clean_line
from apps.gym.tasks.files.row_source import FORMATS
from apps.gym.tasks.mappings.column_mapping import MappingRefused
from apps.gym.tasks.mappings.shapes import SHAPES
from apps.rollouts.engine.worker_leases import claiming_workers
from apps.tasks.column_mapping_changes import delete_mapping, save_mapping
from apps.tasks.gold_checks import read_check
from apps.tasks.models import ColumnMapping, Dataset, Upload
from apps.tasks.received_files import DatasetIsBeingDeleted, PartTooLarge, parts_file, store_file
from apps.tasks.rejected_rows import rejected_path
from apps.tasks.row_preview import Preview, preview_upload
from apps.tasks.upload_choices import choices_of
from apps.tasks.upload_cleanup import QUIET_LOADING
from apps.tasks.upload_jobs import can_be_loaded, discard_upload, explain_wait, queue_upload

SHOWN_PREVIEW_ROWS = 10
_SLOW = timedelta(seconds=20)
"""Ten heartbeats."""


@allow(GET=Permission.UPLOAD, POST=Permission.UPLOAD)
def dataset_upload(request: PageRequest, slug: str) -> HttpResponse:
    """Upload a file. Works without JavaScript; with it, large files are sent in parts to the API."""
    dataset = get_object_or_404(Dataset.objects.select_related("environment"), slug=slug)
    form = UploadForm(posted(request), request.FILES if request.method == "POST" else None)
    if form.is_valid():
        stream, filename = form.content()
        try:
            upload = store_file(dataset=dataset, stream=stream, filename=filename, draft=True, user=request.user)
        except (PartTooLarge, DiskFull, DatasetIsBeingDeleted) as refused:
            form.add_error(None, str(refused))
        else:
            return go(request, "dashboard:upload_map", upload.pk)
    context = {"form": form, "dataset": dataset, "part_bytes": settings.UPLOAD_PART_BYTES}
    return answer_form(request, "uploads/create.html", context)


@allow(GET=Permission.UPLOAD, POST=Permission.UPLOAD)
def upload_map(request: PageRequest, pk: int) -> HttpResponse:
    """Map the columns, with a preview of the first rows as tasks."""
    upload = _upload(pk)
    if not can_be_loaded(upload) or not parts_file(upload).exists():
        return redirect("dashboard:upload_detail", pk)
    saved = ColumnMapping.objects.filter(slug=clean_line(request.GET.get("saved", ""), 64)).first()
    preview = _preview(upload, saved.mapping if saved else None)
    found = None if saved or upload.mapping else preview.mapping
    own = bool(saved or upload.mapping) or preview.shape == "unknown"
    form = MappingForm(posted(request), initial=mapping_initial(preview.mapping, upload, own=own), found=found)
    if form.is_bound and form.is_valid():
        action = request.POST.get("action", "check")
        if action != "preview":
            return _go_on(request, upload, form, check_only=action != "load")
        preview = _preview(upload, form.cleaned_data["mapping"])
    context = {
        "form": form,
        "upload": upload,
        "preview": preview,
        "rows": preview.rows[:SHOWN_PREVIEW_ROWS],
        "refused": _refuse(preview, form["on_error"].value()),
        "shape": SHAPES[preview.shape],
        "format": FORMATS.get(preview.format, ""),
        "saved": saved,
        "found": found,
        "saved_mappings": ColumnMapping.objects.all(),
    }
    return answer(request, "uploads/map.html", context, part="wizard", status=422 if form.errors else 200)


def _refuse(preview: Preview, on_error: str) -> str:
    """Return why the rows cannot be loaded as they are, or an empty text."""
    invalid, shown = len(preview.invalid), len(preview.rows)
    if not shown:
        return preview.problem or "The file has no rows."
    if not invalid or (invalid < shown and on_error == Upload.OnError.SKIP):
        return ""
    if invalid == shown:
        return f"None of the first {shown} rows is valid. Correct the mapping, or upload a corrected file."
    remedy = "Correct the mapping, skip invalid rows, or upload a corrected file."
    return f"{invalid} of the first {shown} rows {'is' if invalid == 1 else 'are'} invalid. {remedy}"


def _go_on(request: PageRequest, upload: Upload, form: MappingForm, *, check_only: bool) -> HttpResponse:
    user = request.user
    name, mapping = form.cleaned_data["save_as"].strip(), form.cleaned_data["mapping"]
    if name and mapping:
        try:
            save_mapping(ColumnMapping(slug=slugify(name)[:64], name=name, mapping=mapping), user=user)
            messages.success(request, f"The mapping {name} is saved.")
        except ValidationError:
            messages.error(request, f"The mapping was not saved, because the name {name} is in use.")
    with show_refusal(request):
        queue_upload(upload=upload, choices=form.choices(check_only=check_only))
    return go(request, "dashboard:upload_detail", upload.pk)


def _preview(upload: Upload, mapping: dict[str, Any] | None) -> Preview:
    try:
        return preview_upload(upload=upload, mapping=mapping)
    except MappingRefused as refused:
        return Preview(problem=str(refused))


@allow(GET=Permission.READ)
def upload_detail(request: PageRequest, pk: int) -> HttpResponse:
    upload = _upload(pk)
    is_queued, is_quiet = upload.state == Upload.State.QUEUED, timezone.now() - upload.touched_at > _SLOW
    context: dict[str, Any] = {
        "upload": upload,
        "going_on": upload.state in Upload.IN_PROGRESS,
        "has_rejected": rejected_path(upload) is not None,
        "bad_share": upload.rejected and upload.lines and upload.rejected < upload.lines,
        "waits": explain_wait(upload) if is_queued else "",
        "no_worker": is_queued and not claiming_workers(),
        "taken_up_at": upload.touched_at + QUIET_LOADING if is_quiet else None,
        "format": FORMATS.get(upload.format, upload.format),
        "shape": SHAPES.get(upload.shape, ""),
        "gold": read_check(upload.version) if upload.version else None,
    }
    if upload.state in {Upload.State.CHECKED, Upload.State.REJECTED} and parts_file(upload).exists():
        context["commit_form"] = CommitForm(upload=upload, initial={"note": upload.note})
    return answer(request, "uploads/detail.html", context, part="result")


@allow(POST=Permission.UPLOAD)
def upload_commit(request: PageRequest, pk: int) -> HttpResponse:
    """Load a validated file."""
    upload = _upload(pk)
    form = CommitForm(request.POST, upload=upload)
    if not form.is_valid():
        for problem in form.non_field_errors():
            messages.error(request, str(problem))
        return redirect("dashboard:upload_detail", pk)
    on_error = Upload.OnError.SKIP if form.cleaned_data.get("skip_bad") else upload.on_error
    choices = replace(choices_of(upload), on_error=on_error, note=form.cleaned_data["note"], check_only=False)
    with show_refusal(request):
        queue_upload(upload=upload, choices=choices)
    return redirect("dashboard:upload_detail", pk)


@allow(POST=Permission.UPLOAD)
def upload_discard(request: PageRequest, pk: int) -> HttpResponse:
    """Discard an uploaded file that was not loaded."""
    upload = _upload(pk)
    return carry_out(
        request,
        lambda: discard_upload(upload=upload, user=request.user),
        success=f"{upload.filename or 'The file'} is discarded.",
        then=reverse("dashboard:dataset_detail", args=[upload.dataset.slug]),
        refused=reverse("dashboard:upload_detail", args=[pk]),
    )


@allow(GET=Permission.READ)
def upload_rejected(request: PageRequest, pk: int) -> HttpResponseBase:
    """Download the rejected lines unchanged, to correct and upload them again."""
    upload = get_object_or_404(Upload, pk=pk)
    path = rejected_path(upload)
    if path is None:
        raise Http404("This upload has no invalid rows.")
    name = f"upload-{upload.pk}-rejected.jsonl"
    return explain_range(stream_file(request, path, filename=name, content_type="application/x-ndjson"))


def _upload(pk: int) -> Upload:
    return get_object_or_404(Upload.objects.select_related("dataset__environment", "version", "created_by"), pk=pk)


mapping_list = list_view(
    ColumnMapping.objects.select_related("created_by"), "uploads/mappings.html", part="rows", name="mappings"
)
mapping_delete = action_view(
    Permission.UPLOAD,
    delete_mapping,
    ColumnMapping,
    "mapping",
    then="mapping_list",
    success="The mapping {0.name} is deleted. Earlier uploads are unchanged.",
)
