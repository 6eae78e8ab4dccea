"""One task: its prompt, verifier fields and rollouts."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer
from apps.dashboard.chrome.page_request import read_number
from apps.dashboard.tables.task_rollouts import OUTCOMES, read_groups
from apps.gym.tasks.expected_answers import find_expected
from apps.gym.traces.items import input_items
from apps.tasks.models import Task


@allow(GET=Permission.READ)
def task_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a task with its rollouts, optionally filtered by `?collection=` and `?outcome=`."""
    task = get_object_or_404(Task.objects.ready().select_related("dataset__environment", "version"), pk=pk)
    row = task.masked_row
    params = row["responses_create_params"]
    collection = read_number(request.GET.get("collection", ""))
    outcome = request.GET.get("outcome", "")
    beside = task.version.tasks
    context = {
        "task": task,
        "items": input_items(row),
        "expected": find_expected(row),
        "tools": params.get("tools") or [],
        "row_settings": {name: value for name, value in params.items() if name not in {"input", "tools"}},
        "verifier_fields": {name: value for name, value in row.items() if name != "responses_create_params"},
        "found": read_groups(task, collection=collection, outcome=outcome),
        "collection": collection,
        "outcome": outcome,
        "outcomes": OUTCOMES.items(),
        "previous": beside.filter(index=task.index - 1).first() if task.index else None,
        "next": beside.filter(index=task.index + 1).first(),
    }
    return answer(request, "tasks/detail.html", context, part="task")
