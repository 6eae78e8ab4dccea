"""Queues and rubrics: list, create, edit, and the page of a queue with its figures."""

from django.contrib import messages
from django.db.models import Count, F, Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.number_formats import count_words
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view, list_view
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.review_forms import QueueChangeForm, QueueForm, RubricForm
from apps.dashboard.views.reviews.work_views import queues_for
from apps.reviews.agreement.answer_counts import read_answers, read_wins
from apps.reviews.agreement.queue_agreement import (
    count_disputed,
    read_agreed,
    read_disputed,
    read_progress,
)
from apps.reviews.agreement.queue_figures import read_figures
from apps.reviews.models import Queue, Review, Rubric
from apps.reviews.queues.queue_changes import change_queue, close_queue, create_queue, delete_queue, open_queue
from apps.reviews.queues.queue_items import Item, fill_queue
from apps.reviews.queues.waiting_items import count_lapsed, count_repeated, read_waiting
from apps.reviews.reviews.rubric_changes import delete_rubric, is_used, save_rubric
from apps.rollouts.search.keyset_pages import page_by_id

_STATES = {
    "": Q(source__compared__isnull=True),
    "open": Q(source__compared__isnull=True, closed_at__isnull=True),
    "closed": Q(source__compared__isnull=True, closed_at__isnull=False),
    # Comparison pages create these queues, one per comparison. They contain no waiting work.
    "compared": Q(source__compared__isnull=False),
}


@allow(GET=Permission.READ_QUEUES)
def queue_list(request: PageRequest) -> HttpResponse:
    submitted = Q(reviews__status=Review.Status.SUBMITTED, reviews__is_adjudication=False)
    # All numbers include hidden repeats, like the items left: a review that did not count would reveal itself.
    queues = queues_for(request.user).annotate(
        done=Count("reviews", filter=submitted, distinct=True),
        mine=Count("reviews", filter=submitted & Q(reviews__reviewer=request.user), distinct=True),
        repeats=count_repeated("pk"),
        wanted=F("overlap") * (F("item_count") + F("repeats")),
    )
    state = request.GET.get("state", "")
    queues = queues.filter(_STATES.get(state, _STATES[""]))
    page = page_by_id(queues, request.GET.get("after", ""))
    waiting = {each.queue.pk: each for each in read_waiting(request.user, page.rows)}
    may_read = user_may(request.user, Permission.READ)
    agreed, disputed = (read_agreed(page.rows), count_disputed(page.rows)) if may_read else ({}, {})
    lapsed = count_lapsed(request.user, page.rows)
    found = (waiting, agreed, lapsed, disputed)
    rows = [(queue, *(each.get(queue.pk) for each in found)) for queue in page.rows]
    context = {"page": page, "rows": rows, "state": state, "states": _STATES}
    return answer(request, "queues/list.html", context, part="queues")


@allow(GET=Permission.LEAD, POST=Permission.LEAD)
def queue_create(request: PageRequest) -> HttpResponse:
    """Create a queue. `?collection=` or `?rollouts=1,2` prefill the form."""
    names = ("collection", "rollouts", "filter", "kind", "name", "per_task", "size")
    given = {name: request.GET[name] for name in names if name in request.GET}
    form = QueueForm(posted(request), initial={"kind": Queue.Kind.PAIRWISE, **given})
    if form.is_valid():
        with show_errors(form):
            wanted = form.save(commit=False)
            items = fill_queue(wanted, form.source)
            reviewers = form.cleaned_data["reviewers"]
            queue = create_queue(queue=wanted, items=items, reviewers=reviewers, user=request.user)
            messages.success(request, _describe_items(queue, items, form.source.rollouts))
            return go(request, "dashboard:queue_detail", pk=queue.pk)
    return answer_form(request, "queues/create.html", {"form": form})


def _describe_items(queue: Queue, items: list[Item], given: list[int]) -> str:
    said = f"{count_words(queue.item_count, 'item', 'items')} to review."
    if left := len(set(given) - {rollout for _, item in items for rollout in item}):
        rollouts = count_words(left, "rollout was", "rollouts were")
        said += f" {rollouts} left out: not completed, or the task has no second rollout to compare with."
    return said


@allow(GET=Permission.LEAD, POST=Permission.LEAD)
def queue_edit(request: PageRequest, pk: int) -> HttpResponse:
    queue = get_object_or_404(Queue, pk=pk)
    form = QueueChangeForm(posted(request), instance=queue)
    if form.is_valid():
        changes = dict(form.cleaned_data)
        reviewers = changes.pop("reviewers")
        with show_errors(form):
            change_queue(queue=queue, changes=changes, reviewers=reviewers, user=request.user)
            messages.success(request, "Changed.")
            return go(request, "dashboard:queue_detail", pk=pk)
    stored = Queue.objects.get(pk=pk)
    has_reviews = stored.reviews.submitted().exists()
    return answer_form(request, "queues/edit.html", {"form": form, "queue": stored, "has_reviews": has_reviews})


@allow(GET=Permission.READ)
def queue_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Show the queue. Progress updates with one query; agreement and pace cover all reviews and load on request."""
    queue = get_object_or_404(queues_for(request.user), pk=pk)
    if wants_fragment(request):
        progress, since = read_progress(queue), request.GET.get("since", "")
        context = {"queue": queue, "progress": progress, "since": since, "is_older": since != str(progress.reviews)}
        return answer(request, "queues/detail.html", context, part="progress")
    leaves_out = request.GET.get("could_see_results") == "false"
    could_see_results = False if leaves_out else None
    figures = read_figures(queue, could_see_results=could_see_results)
    context = {
        "queue": queue,
        "figures": figures,
        "answers": read_answers(queue, could_see_results=could_see_results),
        "wins": read_wins(queue, could_see_results=could_see_results),
        "leaves_out": leaves_out,
        "repeated": queue.items.filter(is_repeated=True).count(),
        "lacks_overlap": queue.overlap == 1 and not any(each.units for each in figures.agreement),
        "progress": figures.progress,
        "since": figures.progress.reviews,
        "disputed": read_disputed(queue),
        "named": queue.reviewers.select_related("user"),
    }
    return answer(request, "queues/detail.html", context, part="progress")


queue_delete = action_view(
    Permission.LEAD,
    delete_queue,
    Queue,
    "queue",
    page="queue_edit",
    then="queue_list",
    success="“{0.name}” is deleted.",
)
queue_close = action_view(
    Permission.LEAD, close_queue, Queue, "queue", page="queue_detail", success="Closed. No more items are assigned."
)
queue_open = action_view(Permission.LEAD, open_queue, Queue, "queue", page="queue_detail", success="Reopened.")


rubric_list = list_view(Rubric.objects.select_related("created_by"), "rubrics/list.html", part="rubrics")
rubric_delete = action_view(
    Permission.LEAD,
    delete_rubric,
    Rubric,
    "rubric",
    page="rubric_edit",
    then="rubric_list",
    success="“{0.name}” is deleted.",
)


@allow(GET=Permission.LEAD, POST=Permission.LEAD)
def rubric_edit(request: PageRequest, slug: str = "") -> HttpResponse:
    """Edit the rubric, or create one."""
    rubric = get_object_or_404(Rubric, slug=slug) if slug else Rubric(created_by=request.user)
    used = bool(slug) and is_used(rubric)
    form = RubricForm(posted(request), instance=rubric, keeps_criteria=used)
    if form.is_valid():
        with show_errors(form):
            save_rubric(rubric=rubric, user=request.user)
            messages.success(request, "Changed." if slug else f"“{rubric.name}” can be used in queues and on traces.")
            return go(request, "dashboard:rubric_list")
    return answer_form(request, "rubrics/form.html", {"form": form, "rubric": rubric if slug else None, "used": used})
