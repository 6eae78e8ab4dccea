"""Exports: files for trainers, with their manifests."""

from pathlib import Path

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render

from apps.accounts.permissions import Permission, allow
from apps.dashboard.answering import answer, wants_fragment
from apps.dashboard.forms.exports import ExportForm
from apps.dashboard.keyset import page_by_id
from apps.dashboard.requests import PageRequest
from apps.dashboard.traces.bodies import pretty
from apps.exports.deleting import StillBeingWritten, delete_export
from apps.exports.downloading import stream_file
from apps.exports.exporting import ExportRefused, queue_export
from apps.exports.models import Export

POLL_ENDED = 286  # htmx: swap, and stop polling
FIELDS_OF_ADDRESS = ("collection", "pair_set", "format")


@allow(GET=Permission.READ)
def export_list(request: PageRequest) -> HttpResponse:
    page = page_by_id(Export.objects.select_related("collection", "created_by"), request.GET.get("after", ""))
    return answer(request, "exports/list.html", {"page": page}, part="exports")


@allow(POST=Permission.EXPORT)
def export_delete(request: PageRequest, pk: int) -> HttpResponse:
    export = get_object_or_404(Export, pk=pk)
    try:
        delete_export(export=export, user=request.user)
    except StillBeingWritten as refusal:
        messages.error(request, str(refusal))
        return redirect("dashboard:export_detail", pk=pk)
    messages.success(request, f"Export #{pk} is deleted.")
    return redirect("dashboard:export_list")


@allow(GET=Permission.EXPORT, POST=Permission.EXPORT)
def export_create(request: PageRequest) -> HttpResponse:
    if request.method != "POST":
        form = ExportForm(initial={name: request.GET[name] for name in FIELDS_OF_ADDRESS if name in request.GET})
        return answer(request, "exports/create.html", {"form": form}, part="pair_set")
    form = ExportForm(request.POST)
    if form.is_valid():
        given = form.cleaned_data
        try:
            export = queue_export(
                format=given["format"],
                collection=given["collection"],
                pair_set=given["pair_set"],
                filters=form.filters,
                user=request.user,
            )
        except ExportRefused as refusal:
            form.add_error(refusal.argument if refusal.argument in form.fields else None, str(refusal))
        else:
            return redirect("dashboard:export_detail", pk=export.pk)
    return render(request, "exports/create.html", {"form": form}, status=422)


@allow(GET=Permission.READ)
def export_detail(request: PageRequest, pk: int) -> HttpResponse:
    """The page; it polls its live part until the file is written."""
    export = get_object_or_404(Export.objects.select_related("collection", "pair_set", "created_by"), pk=pk)
    ended = export.state in {Export.State.READY, Export.State.FAILED}
    context = {"export": export, "ended": ended, "manifest": pretty(export.manifest) if export.manifest else ""}
    status = POLL_ENDED if ended and wants_fragment(request) else 200
    return answer(request, "exports/detail.html", context, part="live", status=status)


@allow(GET=Permission.EXPORT)
def export_download(request: PageRequest, pk: int) -> HttpResponseBase:
    export = _ready(pk)
    return stream_file(
        request, Path(export.path), filename=f"{_stem(export)}.jsonl", content_type="application/x-ndjson"
    )


@allow(GET=Permission.EXPORT)
def export_manifest(request: PageRequest, pk: int) -> HttpResponse:
    export = _ready(pk)
    file = HttpResponse(pretty(export.manifest) + "\n", content_type="application/json")
    file["Content-Disposition"] = f'attachment; filename="{_stem(export)}.manifest.json"'
    return file


def _ready(pk: int) -> Export:
    export = get_object_or_404(Export, pk=pk)
    if export.state != Export.State.READY or not Path(export.path).is_file():
        raise Http404("The file is not there: the export is not ready, or its file was removed.")
    return export


def _stem(export: Export) -> str:
    return f"gymweb-{export.format}-{export.pk}"
