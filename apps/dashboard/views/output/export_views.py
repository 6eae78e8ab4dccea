"""Pages of exports: list, create, show and download files for trainers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.db.models import Max
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django_htmx.http import trigger_client_event

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.file_downloads import explain_range
from apps.dashboard.chrome.number_formats import count_words
from apps.dashboard.chrome.page_answers import POLL_ENDED, answer, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.export_forms import ExportForm
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.trace_forms import TraceSendForm
from apps.dashboard.tables.list_tables import ExportListForm
from apps.dashboard.tables.option_words import describe_options, summarize_options
from apps.dashboard.traces.bodies import pretty
from apps.exports.export_deletion import cancel_export, delete_export
from apps.exports.export_filters import Filters
from apps.exports.export_folders import named_encoding, names_in
from apps.exports.export_orders import prepare_export, queue_export
from apps.exports.export_preview import preview_rows
from apps.exports.export_search import search_exports
from apps.exports.exported_credentials import warn_of_credentials
from apps.exports.first_rows import read_first_row
from apps.exports.held_out_splits import split_label
from apps.exports.manifests import with_staleness
from apps.exports.models import Export
from apps.exports.ranged_downloads import stream_archive, stream_file
from apps.exports.tar_archives import archive_files
from apps.exports.template_checks import TemplateSettings
from apps.exports.trace_sends.send_orders import can_be_sent
from apps.exports.training_uses import TrainingUse, count_uses
from apps.gym.exporters.load_snippets import write_snippet
from apps.gym.exporters.protocol import Format, Options, RowKind
from apps.gym.exporters.registry import FORMATS
from apps.gym.redaction.shortening import shorten
from apps.gym.training_ledger import Trainability, find_unit, summarize
from apps.pairs.models import PairSet
from apps.policies.installation_redactor import fresh_redactor
from apps.rollouts.models import Collection
from apps.rollouts.search.keyset_pages import page_by_id

PREFILLED_FIELDS = ("collection", "pair_set", "q", "rollouts")
"""Form fields that links to the page may set in the URL."""
FIRST_ROW_CHARACTERS = 4_000
"""Maximum characters shown of the first row."""
MAX_RECENT = 5
"""Maximum number of recently used formats on the page of formats."""
MAX_SENDS = 20
"""Maximum number of sends on the page of an export."""
ROW_KIND_TITLES: dict[RowKind, str] = {
    "demonstrations": "Demonstrations, for supervised fine-tuning",
    "preferences": "Preference pairs, for DPO and reward models",
    "labels": "Rollouts labelled good or bad, for KTO",
    "tasks": "Prompts, for trainers that generate rollouts",
    "scored": "Scored rollouts, for RL, analysis and other tools",
}


export_delete = action_view(
    Permission.EXPORT,
    delete_export,
    Export,
    "export",
    page="export_detail",
    then="export_list",
    success="Export #{0.pk} is deleted.",
)
export_cancel = action_view(Permission.EXPORT, cancel_export, Export, "export", page="export_detail")


@allow(GET=Permission.READ)
def export_list(request: PageRequest) -> HttpResponse:
    """List the exports by the filters in the URL, newest first."""
    filters = ExportListForm(request.GET)
    exports = Export.objects.select_related("collection", "pair_set", "created_by").filter(**filters.conditions)
    page = page_by_id(search_exports(exports, filters.words), request.GET.get("after", ""))
    rows = [(export, summarize_options(Filters, export.filters), _ledger(export)) for export in page.rows]
    context = {"page": page, "rows": rows, "filters": filters, "has_filters": bool(rows) or filters.is_narrowed}
    return answer(request, "exports/list.html", context, part="exports")


@allow(GET=Permission.EXPORT, POST=Permission.EXPORT)
def export_create(request: PageRequest) -> HttpResponse:
    """List the formats. With a format, show its options and a preview, or create the export."""
    format = FORMATS.get(request.POST.get("format") or request.GET.get("format", ""))
    prefilled = {name: request.GET[name] for name in PREFILLED_FIELDS if name in request.GET}
    prefilled_query = urlencode(prefilled)
    if format is None:
        kinds = [
            (title, [one for one in FORMATS.values() if one.row_kind == kind])
            for kind, title in ROW_KIND_TITLES.items()
        ]
        if recent := _recent_formats():
            kinds.insert(0, ("Recently used", recent))
        collection = Collection.objects.filter(pk=read_number(prefilled.get("collection", "")) or 0).first()
        pair_set = PairSet.objects.filter(pk=read_number(prefilled.get("pair_set", "")) or 0).first()
        context = {
            "kinds": kinds,
            "prefilled_query": prefilled_query,
            "sources": _describe_sources(prefilled, collection, pair_set),
            "collection": collection,
            "uses": _count_uses(prefilled, collection, pair_set) if collection and wants_fragment(request) else None,
        }
        return answer(request, "exports/formats.html", context, part="uses")
    if request.method != "POST":
        form = ExportForm(format=format, initial={**_repeated_settings(request, format), **prefilled})
        shown = {"form": form, "prefilled_query": prefilled_query}
        response = answer(request, "exports/create.html", shown, part="of_collection")
        # The event reloads the preview, after the fields of the chosen collection are on the page.
        return trigger_client_event(response, "collection-shown", after="swap")
    return _submit(request, format)


def _count_uses(
    prefilled: Mapping[str, str], collection: Collection, pair_set: PairSet | None
) -> list[tuple[str, TrainingUse]]:
    """Return what the source in the URL gives to each use of training, with the title of the use."""
    named = [read_number(each) for each in prefilled.get("rollouts", "").replace(",", " ").split()]
    given = {"rollouts": [each for each in named if each is not None], "q": prefilled.get("q", "")}
    found = count_uses(collection, pair_set=pair_set, filters={name: value for name, value in given.items() if value})
    return [(ROW_KIND_TITLES[use.format.row_kind], use) for use in found]


def _recent_formats() -> list[Format]:
    """Return the formats of the newest exports, at most MAX_RECENT."""
    used = Export.objects.order_by().values_list("format").annotate(newest=Max("pk")).order_by("-newest")
    return [FORMATS[slug] for slug, _ in used[:MAX_RECENT] if slug in FORMATS]


def _describe_sources(
    prefilled: Mapping[str, str], collection: Collection | None, pair_set: PairSet | None
) -> list[str]:
    """Return descriptions of the collection, pair set, rollouts and filter in the URL."""
    number = len(prefilled.get("rollouts", "").replace(",", " ").split())
    descriptions = [collection.label if collection else "", pair_set.title if pair_set else ""]
    descriptions.append(count_words(number, "selected rollout", "selected rollouts") if number else "")
    descriptions.append(f"filter `{prefilled['q']}`" if prefilled.get("q") else "")
    return [one for one in descriptions if one]


def _repeated_settings(request: PageRequest, format: Format) -> dict[str, Any]:
    """Return the form values of the export in `?again=`, if it has this format."""
    export = Export.objects.filter(pk=read_number(request.GET.get("again", "")) or 0, format=format.slug).first()
    if export is None:
        return {}
    # Empty filters are not stored, but here they must override the defaults of the format.
    filters = {**msgspec.structs.asdict(Filters()), **export.filters}
    check = msgspec.convert(export.template, TemplateSettings) if export.template else None
    checked = {"every_row": check.every_row, "misfits": check.misfits, **check.template.request} if check else {}
    renamed = {"rollouts": " ".join(map(str, filters["rollouts"])), "pair_set": export.pair_set_id}
    columns = ("encoding", "validation_share", "split_seed", "mask_credentials")
    return {**filters, **export.options, **{name: getattr(export, name) for name in columns}, **renamed, **checked}


def _submit(request: PageRequest, format: Format) -> HttpResponse:
    """Create the export, or with `preview` show its first rows."""
    form, preview = ExportForm(request.POST, format=format), None
    if form.is_valid():
        with show_errors(form):
            if "preview" not in request.POST:
                export = queue_export(form.order, user=request.user)
                return redirect("dashboard:export_detail", pk=export.pk)
            preview = preview_rows(prepare_export(form.order))
    if preview is None:
        return answer(request, "exports/create.html", {"form": form}, part="form", status=422)
    rows_with_sizes = zip(preview.rows, preview.bytes, preview.tokens, preview.tokens_from, strict=True)
    unit = _counted_unit(format)
    context = {
        "form": form,
        "preview": preview,
        "considered": count_words(preview.considered, unit, f"{unit}s"),
        "rows": [(pretty(fresh_redactor().redact_value(row)[0]), *sizes) for row, *sizes in rows_with_sizes],
        "source": form.order.collection,
    }
    return answer(request, "exports/create.html", context, part="form")


@allow(GET=Permission.READ)
def export_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Show the export. The page polls its live part while files are written or traces are sent."""
    export = get_object_or_404(Export.objects.select_related("collection", "pair_set", "created_by"), pk=pk)
    sends = list(export.trace_sends.select_related("destination", "created_by")[:MAX_SENDS])
    ended = export.is_settled and all(send.is_settled for send in sends)
    context = {
        "export": export,
        "ended": ended,
        "can_be_sent": can_be_sent(export),
        "sends": sends,
        "send_form": TraceSendForm(),
        "manifest": pretty(with_staleness(export)) if export.manifest else "",
        "ledger": _ledger(export),
        "check": export.manifest.get("template_check"),
        "credentials": warn_of_credentials(export.manifest.get("credentials", {})),
        "splits": ", ".join(
            f"{split_label(split)} {count:,}" for split, count in export.manifest.get("dataset_splits", {}).items()
        ),
        "again": urlencode({"format": export.format, "collection": export.collection_id, "again": export.pk}),
        "note": FORMATS[export.format].note if export.format in FORMATS else "",
        "filters": describe_options(Filters, export.filters),
        "options": describe_options(Options, export.options),
        "first_row": _first_row(export) if user_may(request.user, Permission.EXPORT) else "",
        "others": _files_without_rows(export),
        "folder_name": _download_name(export) if _is_folder(export) else "",
        "snippet": _snippet(export),
        "all_bytes": sum(one["bytes"] for one in export.files),
    }
    status = POLL_ENDED if ended and wants_fragment(request) else 200
    return answer(request, "exports/detail.html", context, part="live", status=status)


@allow(GET=Permission.EXPORT)
def export_download(request: PageRequest, pk: int) -> HttpResponseBase:
    """Download the export. A folder becomes one archive, because its files refer to each other."""
    export = _get_ready_export(pk)
    path = Path(export.path)
    if not path.is_dir():
        return _stream(request, export, path, name=f"{_download_name(export)}.{named_encoding(path) or 'jsonl'}")
    digests = {one["name"]: one["sha256"] for one in export.files}
    archive = archive_files([path / name for name in names_in(export)], folder=_download_name(export), digests=digests)
    return explain_range(stream_archive(request, archive, filename=f"{_download_name(export)}.tar"))


@allow(GET=Permission.EXPORT)
def export_file(request: PageRequest, pk: int, name: str) -> HttpResponseBase:
    """Download one file of the folder under its own name, because trainers expect that name."""
    export = _get_ready_export(pk)
    if name not in names_in(export):
        raise Http404(f"This export has no file {name}.")
    path = Path(export.path)
    return _stream(request, export, path if path.is_file() else path / name, name=name)


@allow(GET=Permission.EXPORT)
def export_manifest(request: PageRequest, pk: int) -> HttpResponse:
    export = _get_ready_export(pk)
    file = HttpResponse(pretty(with_staleness(export)) + "\n", content_type="application/json")
    file["Content-Disposition"] = f'attachment; filename="gymweb-{export.format}-{export.pk}.manifest.json"'
    return file


def _snippet(export: Export) -> str:
    """Return the code that loads the unpacked download. A single file has no card with column types, so no code."""
    if not export.files or not _is_folder(export):
        return ""
    files = {one["split"]: one["name"] for one in export.files}
    return write_snippet(export.format, files, folder=_download_name(export))[1]


def _ledger(export: Export) -> Trainability | None:
    """Return what may be trained on, from the manifest. Manifests of earlier versions only have counts."""
    counts = export.manifest.get("counts", {})
    if "trainability" in export.manifest:
        return msgspec.convert(export.manifest["trainability"], Trainability)
    if not {"considered", "written_from", "dropped"} <= set(counts):
        return None
    return summarize(
        find_unit(FORMATS[export.format].row_kind if export.format in FORMATS else ""),
        considered=counts["considered"],
        used=counts["written_from"],
        rows=export.rows,
        dropped=counts["dropped"],
    )


def _first_row(export: Export) -> str:
    """Return the first row, redacted, indented and cut to FIRST_ROW_CHARACTERS."""
    line, redactor = read_first_row(export), fresh_redactor()
    try:
        text = pretty(redactor.redact_value(json.loads(line))[0])
    except ValueError:
        text = redactor.redact_text(line)[0]
    return shorten(text, FIRST_ROW_CHARACTERS)


def _counted_unit(format: Format | None) -> str:
    """Return the noun for the counts of an export: pair, task or rollout."""
    return {"preferences": "pair", "tasks": "task"}.get(format.row_kind if format else "", "rollout")


def _get_ready_export(pk: int) -> Export:
    """Return the export, or raise Http404 if it has no files to download."""
    export = get_object_or_404(Export, pk=pk)
    if export.state != Export.State.READY or not (export.is_empty or Path(export.path).exists()):
        raise Http404("No files: the export is not ready, or its files were removed.")
    return export


def _files_without_rows(export: Export) -> list[str]:
    """Return the names of the other files in the folder, for example the dataset card."""
    row_files = {one["name"] for one in export.files}
    return [name for name in names_in(export) if name not in row_files] if _is_folder(export) else []


def _is_folder(export: Export) -> bool:
    return export.state == Export.State.READY and Path(export.path).is_dir()


def _stream(request: PageRequest, export: Export, path: Path, *, name: str) -> HttpResponseBase:
    digests = {one["name"]: one["sha256"] for one in export.files}
    digest = digests.get(path.name, export.sha256 if Path(export.path) == path else "")
    kind = "application/x-ndjson" if name.endswith(".jsonl") else "application/octet-stream"
    return explain_range(stream_file(request, path, filename=name, content_type=kind, sha256=digest))


def _download_name(export: Export) -> str:
    """Return a file name without ending, for downloads."""
    return f"gymweb-{export.format}-{export.pk}"
