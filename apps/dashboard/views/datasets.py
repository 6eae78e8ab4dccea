"""Datasets: list, create, and the page of one with its versions, tasks and latest uploads."""

from typing import cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Avg, Count, OuterRef, Q, Subquery
from django.db.models.query import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from apps.accounts.models import User
from apps.accounts.permissions import Permission, allow
from apps.dashboard.answering import answer, answer_form, go, posted
from apps.dashboard.forms.datasets import DatasetForm
from apps.dashboard.forms.fields import add_errors
from apps.dashboard.keyset import page_by_id
from apps.rollouts.models import Rollout
from apps.tasks.models import Dataset, DatasetVersion, Task
from apps.tasks.uploading import create_dataset

_SHOWN_UPLOADS = 5


def _newest(field: str) -> Subquery:
    ready = DatasetVersion.objects.filter(dataset=OuterRef("pk"), state=DatasetVersion.State.READY)
    return Subquery(ready.order_by("-number").values(field)[:1])


@allow(GET=Permission.READ)
def dataset_list(request: HttpRequest) -> HttpResponse:
    datasets = Dataset.objects.select_related("environment").annotate(
        newest_number=_newest("number"),
        newest_task_count=_newest("task_count"),
        newest_created_at=_newest("created_at"),
        collection_count=Count("collections"),
    )
    return answer(request, "datasets/list.html", {"datasets": datasets}, part="rows")


@allow(GET=Permission.UPLOAD, POST=Permission.UPLOAD)
def dataset_create(request: HttpRequest) -> HttpResponse:
    initial = {"environment": request.GET.get("environment", "")}
    form = DatasetForm(posted(request), initial=initial)
    if form.is_valid():
        try:
            dataset = create_dataset(**form.cleaned_data, user=cast(User, request.user))
        except ValidationError as wrong:
            add_errors(form, wrong)
        else:
            messages.success(request, f"The dataset {dataset.name} is created. Now upload its tasks.")
            return go(request, "dashboard:dataset_upload", dataset.slug)
    return answer_form(request, "datasets/create.html", {"form": form})


def _version(request: HttpRequest, dataset: Dataset) -> DatasetVersion | None:
    """The version that `?v=` names; else the newest."""
    wanted = request.GET.get("v", "")
    if not wanted:
        return dataset.latest_version()
    if not wanted.isascii() or not wanted.isdigit() or len(wanted) > 9:
        raise Http404
    return get_object_or_404(dataset.versions, number=int(wanted), state=DatasetVersion.State.READY)


def _found(tasks: "QuerySet[Task]", words: str) -> "QuerySet[Task]":
    return tasks.filter(Q(prompt_excerpt__icontains=words) | Q(external_id__icontains=words)) if words else tasks


def add_rewards(tasks: list[Task]) -> None:
    """Each task gets `rollout_count` and `mean_reward`: one query for the page."""
    measured = {
        row["task"]: row
        for row in Rollout.objects.filter(task__in=tasks)
        .values("task")
        .annotate(count=Count("pk"), mean=Avg("reward"))
        .order_by()
    }
    for task in tasks:
        row = measured.get(task.pk, {"count": 0, "mean": None})
        task.rollout_count, task.mean_reward = row["count"], row["mean"]  # type: ignore[attr-defined]


@allow(GET=Permission.READ)
def dataset_detail(request: HttpRequest, slug: str) -> HttpResponse:
    dataset = get_object_or_404(Dataset.objects.select_related("environment"), slug=slug)
    version = _version(request, dataset)
    words = request.GET.get("q", "").strip()
    tasks = _found(version.tasks.all() if version else Task.objects.none(), words)
    # Tasks of a version are written in their order, so their ids have it too.
    page = page_by_id(tasks, request.GET.get("after", ""), descending=False)
    add_rewards(page.rows)
    context = {
        "dataset": dataset,
        "version": version,
        "versions": dataset.versions.filter(state=DatasetVersion.State.READY),
        "page": page,
        "words": words,
        "uploads": dataset.uploads.select_related("version", "created_by")[:_SHOWN_UPLOADS],
        "collections": dataset.collections.all()[:_SHOWN_UPLOADS],
    }
    return answer(request, "datasets/detail.html", context, part="tasks")
