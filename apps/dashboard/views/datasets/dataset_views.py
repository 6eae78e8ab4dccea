"""Datasets: list, create, show, compare versions, delete."""

from typing import Any

from django.contrib import messages
from django.db.models import Count, OuterRef, Q, Subquery
from django.db.models.query import QuerySet
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted, show_refusal
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.forms.dataset_forms import DatasetForm, DatasetNamesForm, DeleteForm, MarkForm
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.tables.list_tables import Column, DatasetListForm, list_rows
from apps.dashboard.tables.task_rollouts import SOLVED, add_rewards, filter_by_solved
from apps.gym.storable import clean_line
from apps.rollouts.search.keyset_pages import page_by_id
from apps.tasks.dataset_changes import create_dataset, rename_dataset
from apps.tasks.dataset_deletion import queue_deletion
from apps.tasks.deletion_jobs import find_references
from apps.tasks.gold_checks import check_again, read_check
from apps.tasks.models import Dataset, DatasetVersion, Deletion, Task, TaskQuerySet
from apps.tasks.task_marks import MAX_TASKS, mark_tasks
from apps.tasks.version_differences import KINDS, changed_fields, count_changes, find_changes, with_counterparts

_SHOWN_UPLOADS = 5
_SHOWN_VERSIONS = 20


def _newest(field: str) -> Subquery:
    ready = DatasetVersion.objects.filter(dataset=OuterRef("pk"), state=DatasetVersion.State.READY)
    return Subquery(ready.order_by("-number").values(field)[:1])


def _going(field: str) -> Subquery:
    """Return `field` of the running deletion of the whole dataset."""
    states = [Deletion.State.QUEUED, Deletion.State.DELETING]
    return Subquery(Deletion.objects.filter(dataset=OuterRef("pk"), whole=True, state__in=states).values(field)[:1])


_COLUMNS = [
    Column("Dataset", "name"),
    Column("Environment"),
    Column("Version", classes="num"),
    Column("Tasks", "tasks", "num"),
    Column("Collections", "collections", "num"),
    Column("Latest mean reward", "reward", "num"),
    Column("Trend", classes="lesser"),
    Column("Uploaded", "uploaded", "lesser"),
]
_KEYS: dict[str, Any] = {
    "tasks": lambda dataset: dataset.newest_task_count,
    "uploaded": lambda dataset: dataset.newest_created_at,
}


@allow(GET=Permission.READ)
def dataset_list(request: PageRequest) -> HttpResponse:
    rows = Dataset.objects.select_related("environment").annotate(
        newest_number=_newest("number"),
        newest_task_count=_newest("task_count"),
        newest_created_at=_newest("created_at"),
        collection_count=Count("collections"),
        deletion_id=_going("pk"),
    )
    context = list_rows(request, rows, DatasetListForm(request.GET), _COLUMNS, _KEYS, owner="dataset")
    return answer(request, "datasets/list.html", context, part="rows")


@allow(GET=Permission.UPLOAD, POST=Permission.UPLOAD)
def dataset_create(request: PageRequest) -> HttpResponse:
    form = DatasetForm(posted(request), initial={"environment": request.GET.get("environment", "")})
    if form.is_valid():
        with show_errors(form):
            dataset = create_dataset(**form.cleaned_data, user=request.user)
            messages.success(request, f"Dataset {dataset.name} created. Upload its tasks next.")
            return go(request, "dashboard:dataset_upload", dataset.slug)
    return answer_form(request, "datasets/create.html", {"form": form})


def _version(request: PageRequest, dataset: Dataset) -> DatasetVersion | None:
    """Return the version of `?v=`, else the newest."""
    wanted = request.GET.get("v", "")
    if not wanted:
        return dataset.latest_version()
    number = read_number(wanted, digits=9)
    return get_object_or_404(dataset.versions, number=number, state=DatasetVersion.State.READY)


def _found(request: PageRequest, tasks: TaskQuerySet) -> tuple[TaskQuerySet, dict[str, str]]:
    """Return the tasks that match the filters in the URL, and the filters."""
    # PostgreSQL rejects NUL bytes in queries.
    given = {
        name: clean_line(request.GET.get(name, ""), 200).strip() for name in ("q", "split", "tag", "solved", "retired")
    }
    if words := given["q"]:
        tasks = tasks.filter(Q(prompt_excerpt__icontains=words) | Q(external_id__icontains=words))
    if given["split"]:
        tasks = tasks.filter(split=given["split"])
    if given["tag"]:
        tasks = tasks.tagged(given["tag"])
    if given["retired"]:
        tasks = tasks.filter(is_retired=True)
    return filter_by_solved(tasks, given["solved"]), given


@allow(GET=Permission.READ)
def dataset_detail(request: PageRequest, slug: str) -> HttpResponse:
    dataset = get_object_or_404(Dataset.objects.select_related("environment"), slug=slug)
    version = _version(request, dataset)
    tasks, filters = _found(request, Task.objects.filter(version=version) if version else Task.objects.none())
    # Tasks of a version are stored in order, so sorting by id is sorting by position.
    page = page_by_id(tasks.defer("row_json"), request.GET.get("after", ""), descending=False)
    add_rewards(page.rows)
    ready = dataset.versions.filter(state=DatasetVersion.State.READY).defer("metrics")
    context = {
        "dataset": dataset,
        "version": version,
        # Each upload creates a version, so they are paginated: `older` is the last one of the previous page.
        "versions": page_by_id(ready, request.GET.get("older", ""), size=_SHOWN_VERSIONS),
        "page": page,
        "filters": filters,
        "is_filtered": any(filters.values()),
        "solved": SOLVED.items(),
        "metrics": (version.metrics or {}) if version else {},
        "gold": read_check(version) if version else None,
        "mark_form": MarkForm(),
        "deletion": dataset.deletions.filter(state__in=[Deletion.State.QUEUED, Deletion.State.DELETING]).first(),
        "uploads": dataset.uploads.select_related("version", "created_by")[:_SHOWN_UPLOADS],
        "collections": dataset.collections.listed().select_related("policy_model")[:_SHOWN_UPLOADS],
    }
    return answer(request, "datasets/detail.html", context, part="tasks")


@allow(POST=Permission.UPLOAD)
def dataset_check(request: PageRequest, slug: str) -> HttpResponse:
    """Score the expected answers of a version again."""
    dataset = get_object_or_404(Dataset.objects.select_related("environment"), slug=slug)
    version = _version(request, dataset)
    if version is None:
        raise Http404("This dataset has no version.")
    with show_refusal(request):
        check_again(version=version, user=request.user)
        messages.success(request, f"The expected answers of version {version.number} are being scored again.")
    response = redirect("dashboard:dataset_detail", slug)
    response["Location"] += f"?v={version.number}"
    return response


@allow(GET=Permission.UPLOAD, POST=Permission.UPLOAD)
def dataset_edit(request: PageRequest, slug: str) -> HttpResponse:
    """Edit name and description."""
    dataset = get_object_or_404(Dataset, slug=slug)
    form = DatasetNamesForm(posted(request), initial={"name": dataset.name, "description": dataset.description})
    if form.is_valid():
        rename_dataset(dataset=dataset, **form.cleaned_data, user=request.user)
        return go(request, "dashboard:dataset_detail", slug)
    return answer_form(request, "datasets/edit.html", {"form": form, "dataset": dataset})


@allow(POST=Permission.UPLOAD)
def dataset_mark(request: PageRequest, slug: str) -> HttpResponse:
    """Mark the tasks whose boxes are checked."""
    dataset = get_object_or_404(Dataset, slug=slug)
    form = MarkForm(request.POST)
    ids = [pk for pk in map(read_number, request.POST.getlist("task")[:MAX_TASKS]) if pk is not None]
    if not ids:
        messages.error(request, "Select tasks first.")
    elif not form.is_valid():
        for problems in form.errors.values():
            messages.error(request, " ".join(map(str, problems)))
    else:
        own = list(dataset.tasks.filter(pk__in=ids).values_list("pk", flat=True))
        with show_refusal(request):
            count = mark_tasks(task_ids=own, **form.marks(), user=request.user)
            messages.success(request, f"{count} task{'' if count == 1 else 's'} changed.")
    response = redirect("dashboard:dataset_detail", slug)
    query = request.POST.get("back", "")[:500]
    if query:
        response["Location"] += "?" + QueryDict(query).urlencode()
    return response


@allow(GET=Permission.READ)
def dataset_changes(request: PageRequest, slug: str) -> HttpResponse:
    """Show the differences between two versions."""
    dataset = get_object_or_404(Dataset.objects.select_related("environment"), slug=slug)
    new = _version(request, dataset)
    ready = dataset.versions.filter(state=DatasetVersion.State.READY).defer("metrics")
    old = _old_version(request, ready, new)
    kind = request.GET.get("kind", "")
    kind = kind if kind in KINDS else "changed"
    context: dict[str, Any] = {"dataset": dataset, "new": new, "old": old, "latest": ready.first(), "kind": kind}
    if new and old:
        counts = count_changes(old=old, new=new)
        page = page_by_id(find_changes(old=old, new=new, kind=kind), request.GET.get("after", ""), descending=False)
        pairs = with_counterparts(page.rows, old=old) if kind == "changed" else [(task, None) for task in page.rows]
        rows = [
            (task, before, changed_fields(before.row_json, task.row_json) if before else []) for task, before in pairs
        ]
        named = [(name, counts[name]) for name in KINDS]
        context |= {"counts": named, "unchanged": counts["unchanged"], "page": page, "rows": rows}
    return answer(request, "datasets/changes.html", context, part="changes")


def _old_version(
    request: PageRequest, ready: "QuerySet[DatasetVersion]", new: DatasetVersion | None
) -> DatasetVersion | None:
    """Return the version of `?from=`, else the previous one."""
    if (wanted := read_number(request.GET.get("from", ""), digits=9)) is not None:
        return get_object_or_404(ready, number=wanted)
    return ready.filter(number__lt=new.number).first() if new else None


@allow(GET=Permission.READ)
def dataset_metrics(request: PageRequest, slug: str) -> HttpResponse:
    """Show statistics of the rows of a version."""
    dataset = get_object_or_404(Dataset.objects.select_related("environment"), slug=slug)
    version = _version(request, dataset)
    metrics = version.metrics if version else None
    spreads = [("Tools", "tools"), ("Words in the JSON row", "words"), ("User turns", "turns")]
    spreads += [("Temperature", "temperature"), ("Row bytes", "row_bytes")]
    context = {
        "dataset": dataset,
        "version": version,
        "metrics": metrics,
        "spreads": [(label, metrics[name]) for label, name in spreads] if metrics else [],
    }
    return answer(request, "datasets/metrics.html", context, part="metrics")


@allow(GET=Permission.UPLOAD, POST=Permission.UPLOAD)
def dataset_delete(request: PageRequest, slug: str) -> HttpResponse:
    """Delete the dataset, or the version that `?v=` names, after its name was typed."""
    dataset = get_object_or_404(Dataset, slug=slug)
    version = _version(request, dataset) if request.GET.get("v") else None
    form = DeleteForm(posted(request), wanted=str(version or dataset.slug))
    if form.is_valid():
        with show_errors(form):
            deletion = queue_deletion(dataset=dataset, version=version, user=request.user)
            return go(request, "dashboard:deletion_detail", deletion.pk)
    references = find_references(version or dataset)
    tasks = version.task_count if version else sum(dataset.versions.values_list("task_count", flat=True))
    context = {"form": form, "dataset": dataset, "version": version, "references": references, "task_count": tasks}
    return answer_form(request, "datasets/delete.html", context)


@allow(GET=Permission.READ)
def deletion_detail(request: PageRequest, pk: int) -> HttpResponse:
    deletion = get_object_or_404(Deletion.objects.select_related("dataset", "created_by"), pk=pk)
    going_on = deletion.state in {Deletion.State.QUEUED, Deletion.State.DELETING}
    return answer(request, "datasets/deletion.html", {"deletion": deletion, "going_on": going_on}, part="live")
