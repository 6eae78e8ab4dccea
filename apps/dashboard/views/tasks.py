"""One task: what the model is asked, what the verifier knows, and what came of it."""

from itertools import groupby

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from apps.accounts.permissions import Permission, allow
from apps.dashboard.answering import answer
from apps.gym.items import input_items
from apps.rollouts.models import Collection, Rollout
from apps.tasks.models import Task

_SHOWN_ROLLOUTS = 1000


def _groups(task: Task) -> tuple[list[tuple[Collection, list[Rollout]]], int]:
    """The task's rollouts by collection, newest first, and how many are not shown."""
    rollouts = task.rollouts.select_related("collection__policy_model").order_by("-collection_id", "repeat")
    shown = list(rollouts[:_SHOWN_ROLLOUTS])
    hidden = task.rollouts.count() - len(shown) if len(shown) == _SHOWN_ROLLOUTS else 0
    return [(collection, list(group)) for collection, group in groupby(shown, key=lambda row: row.collection)], hidden


@allow(GET=Permission.READ)
def task_detail(request: HttpRequest, pk: int) -> HttpResponse:
    task = get_object_or_404(Task.objects.ready().select_related("dataset__environment", "version"), pk=pk)
    row = task.row
    params = row["responses_create_params"]
    groups, hidden = _groups(task)
    beside = task.version.tasks
    context = {
        "task": task,
        "items": input_items(row),
        "tools": params.get("tools") or [],
        "row_settings": {name: value for name, value in params.items() if name not in {"input", "tools"}},
        "verifier_fields": {name: value for name, value in row.items() if name != "responses_create_params"},
        "groups": groups,
        "hidden": hidden,
        "previous": beside.filter(index=task.index - 1).first() if task.index else None,
        "next": beside.filter(index=task.index + 1).first(),
    }
    return answer(request, "tasks/detail.html", context, part="task")
