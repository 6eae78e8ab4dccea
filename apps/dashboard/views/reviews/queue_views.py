"""Queues: list, create, and the page of a queue with its figures."""

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.page_answers import answer, answer_form, carry_out, go, posted, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.review_forms import QueueChangeForm, QueueForm
from apps.dashboard.views.reviews.work_views import queues_for
from apps.reviews.agreement.queue_agreement import read_agreed, read_disputed, read_progress
from apps.reviews.agreement.queue_figures import read_figures
from apps.reviews.models import Queue, Review
from apps.reviews.queues.queue_changes import change_queue, close_queue, create_queue, delete_queue, open_queue
from apps.reviews.queues.queue_items import Item, fill_queue
from apps.reviews.queues.waiting_items import count_lapsed, read_waiting
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
    queues = queues_for(request.user).annotate(
        done=Count("reviews", filter=submitted & Q(reviews__repeat_of__isnull=True), distinct=True),
        mine=Count("reviews", filter=submitted & Q(reviews__reviewer=request.user), distinct=True),
    )
    state = request.GET.get("state", "")
    queues = queues.filter(_STATES.get(state, _STATES[""]))
    page = page_by_id(queues, request.GET.get("after", ""))
    waiting = {each.queue.pk: each for each in read_waiting(request.user, page.rows)}
    agreed = read_agreed(page.rows) if user_may(request.user, Permission.READ) else {}
    lapsed = count_lapsed(request.user, page.rows)
    rows = [(queue, waiting.get(queue.pk), agreed.get(queue.pk), lapsed.get(queue.pk)) for queue in page.rows]
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
    said = f"{queue.item_count:,} item{'' if queue.item_count == 1 else 's'} to review."
    left = len(set(given) - {rollout for _, item in items for rollout in item})
    if left:
        rollouts = "1 rollout is" if left == 1 else f"{left:,} rollouts are"
        said += f" {rollouts} in no item: not completed, or without another rollout of the task."
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


@allow(POST=Permission.LEAD)
def queue_delete(request: PageRequest, pk: int) -> HttpResponse:
    queue = get_object_or_404(Queue, pk=pk)
    return carry_out(
        request,
        lambda: delete_queue(queue=queue, user=request.user),
        said=f"“{queue.name}” is deleted.",
        then="dashboard:queue_list",
        refused=reverse("dashboard:queue_edit", args=[pk]),
    )


@allow(GET=Permission.READ)
def queue_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Show the queue. Progress updates with one query; agreement and pace cover all reviews and load on request."""
    queue = get_object_or_404(queues_for(request.user), pk=pk)
    if wants_fragment(request):
        progress, since = read_progress(queue), request.GET.get("since", "")
        context = {"queue": queue, "progress": progress, "since": since, "is_older": since != str(progress.reviews)}
        return answer(request, "queues/detail.html", context, part="progress")
    leaves_out = request.GET.get("could_see_results") == "false"
    figures = read_figures(queue, could_see_results=False if leaves_out else None)
    context = {
        "queue": queue,
        "figures": figures,
        "leaves_out": leaves_out,
        "progress": figures.progress,
        "since": figures.progress.reviews,
        "disputed": read_disputed(queue),
        "named": queue.reviewers.select_related("user"),
    }
    return answer(request, "queues/detail.html", context, part="progress")


@allow(POST=Permission.LEAD)
def queue_close(request: PageRequest, pk: int) -> HttpResponse:
    close_queue(queue=get_object_or_404(Queue, pk=pk), user=request.user)
    messages.success(request, "Closed. No more items are assigned.")
    return redirect("dashboard:queue_detail", pk=pk)


@allow(POST=Permission.LEAD)
def queue_open(request: PageRequest, pk: int) -> HttpResponse:
    open_queue(queue=get_object_or_404(Queue, pk=pk), user=request.user)
    messages.success(request, "Reopened.")
    return redirect("dashboard:queue_detail", pk=pk)
