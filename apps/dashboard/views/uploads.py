"""Uploads: the form, what became of a file, and the lines that were refused."""

from typing import cast

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404

from apps.accounts.models import User
from apps.accounts.permissions import Permission, allow
from apps.dashboard.answering import answer, answer_form, go, posted
from apps.dashboard.forms.datasets import UploadForm
from apps.exports.downloading import stream_file
from apps.tasks.choosing import Choices
from apps.tasks.models import Dataset, Upload
from apps.tasks.receiving import store_file
from apps.tasks.rejecting import rejected_path


@allow(GET=Permission.UPLOAD, POST=Permission.UPLOAD)
def dataset_upload(request: HttpRequest, slug: str) -> HttpResponse:
    """Works without JavaScript; with it large files go to the API in parts instead."""
    dataset = get_object_or_404(Dataset.objects.select_related("environment"), slug=slug)
    form = UploadForm(posted(request), request.FILES if request.method == "POST" else None)
    if form.is_valid():
        stream, filename = form.content()
        on_error = form.cleaned_data["on_error"]
        upload = store_file(
            dataset=dataset,
            stream=stream,
            filename=filename,
            choices=Choices(on_error=on_error),
            user=cast(User, request.user),
        )
        return go(request, "dashboard:upload_detail", upload.pk)
    context = {"form": form, "dataset": dataset, "part_bytes": settings.UPLOAD_PART_BYTES}
    return answer_form(request, "uploads/create.html", context)


@allow(GET=Permission.READ)
def upload_detail(request: HttpRequest, pk: int) -> HttpResponse:
    upload = get_object_or_404(Upload.objects.select_related("dataset", "version", "created_by"), pk=pk)
    going_on = upload.state in Upload.GOING_ON
    context = {"upload": upload, "going_on": going_on, "has_rejected": rejected_path(upload) is not None}
    return answer(request, "uploads/detail.html", context, part="result")


@allow(GET=Permission.READ)
def upload_rejected(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The refused lines as they came, to be corrected and uploaded again."""
    upload = get_object_or_404(Upload, pk=pk)
    path = rejected_path(upload)
    if path is None:
        raise Http404("No line of this upload was refused.")
    return stream_file(
        request, path, filename=f"upload-{upload.pk}-rejected.jsonl", content_type="application/x-ndjson"
    )
