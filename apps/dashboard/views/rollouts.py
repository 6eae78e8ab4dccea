"""Rollouts: the table across collections, and the trace of one."""

import orjson
from django.contrib import messages
from django.db.models import BinaryField, Count, QuerySet
from django.db.models.functions import Substr
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.vary import vary_on_headers

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.answering import answer, wants_fragment
from apps.dashboard.causes import CAUSES
from apps.dashboard.forms.rollouts import CommentForm, RolloutSearchForm
from apps.dashboard.requests import PageRequest
from apps.dashboard.trace import Trace, build_trace
from apps.gym.tokens import HEADER_BYTES
from apps.reviews.commenting import CommentRefused, add_comment
from apps.rollouts.models import Rollout, RolloutQuerySet, TraceEvent

POLL_ENDED = 286  # htmx: swap, and stop polling
NOT_CHANGED = 204  # htmx: swap nothing, poll on


def with_parts() -> RolloutQuerySet:
    return Rollout.objects.select_related("task", "collection__policy_model", "collection__agent")


@allow(GET=Permission.READ)
def rollout_list(request: PageRequest) -> HttpResponse:
    filters = RolloutSearchForm(request.GET)
    context = {"filters": filters, "page": filters.page(with_parts())}
    return answer(request, "rollouts/list.html", context, part="rollouts")


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_detail(request: PageRequest, pk: int) -> HttpResponse:
    """The trace. While the rollout runs the page polls its live part, naming how many events it has seen."""
    rollout = _rollout(pk)
    attempt = _attempt(request, rollout)
    context = _parts(request, rollout, attempt)
    if wants_fragment(request):
        ended = rollout.finished_at is not None
        if not ended and request.GET.get("seen") == context["mark"]:
            return HttpResponse(status=NOT_CHANGED)
        return render(request, "rollouts/detail.html#live", context, status=POLL_ENDED if ended else 200)
    return _page(request, rollout, context | {"form": CommentForm.opened_with(request.GET)})


@allow(GET=Permission.READ)
def rollout_raw(request: PageRequest, pk: int) -> HttpResponse:
    """Every stored field and event of one attempt, as JSON; `?download=1` saves it."""
    rollout = _rollout(pk)
    attempt = _attempt(request, rollout)
    payloads = _events(rollout, attempt).values_list("payload", flat=True)
    raw = HttpResponse(
        orjson.dumps(
            {
                "rollout": {field.attname: getattr(rollout, field.attname) for field in Rollout._meta.concrete_fields},
                "attempt": attempt,
                "events": [orjson.Fragment(payload) for payload in payloads],
            }
        ),
        content_type="application/json",
    )
    if request.GET.get("download"):
        raw["Content-Disposition"] = f'attachment; filename="rollout-{rollout.pk}.json"'
    return raw


@allow(POST=Permission.COMMENT)
def rollout_comment(request: PageRequest, pk: int) -> HttpResponse:
    rollout = _rollout(pk)
    form = CommentForm(request.POST)
    if form.is_valid():
        try:
            comment = add_comment(rollout=rollout, author=request.user, **form.cleaned_data)
        except CommentRefused as refusal:
            form.add_error(None, str(refusal))
        else:
            messages.success(request, "Comment added.")
            return redirect(f"{reverse('dashboard:rollout_detail', args=[pk])}#c{comment.pk}")
    return _page(request, rollout, _parts(request, rollout, rollout.attempt) | {"form": form}, status=422)


def read_trace(rollout: Rollout, attempt: int) -> Trace:
    head = Substr("tokens", 1, HEADER_BYTES, output_field=BinaryField())
    rows = _events(rollout, attempt).values_list("seq", "kind", "payload", head)
    return build_trace(rows)


def _events(rollout: Rollout, attempt: int) -> QuerySet[TraceEvent]:
    return rollout.events.filter(attempt=attempt).order_by("seq")


def _rollout(pk: int) -> Rollout:
    return get_object_or_404(with_parts().select_related("task__version__dataset"), pk=pk)


def _attempt(request: PageRequest, rollout: Rollout) -> int:
    """The attempt that the address names, or the latest."""
    given = request.GET.get("attempt", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 5 else rollout.attempt


def _parts(request: PageRequest, rollout: Rollout, attempt: int) -> dict[str, object]:
    """What the live part of the page shows. `mark` changes whenever that part would."""
    trace = read_trace(rollout, attempt)
    return {
        "rollout": rollout,
        "attempt": attempt,
        "is_latest": attempt == rollout.attempt,
        # Comments are about the latest start: an earlier one has other events under the same numbers.
        "may_comment": attempt == rollout.attempt and user_may(request.user, Permission.COMMENT),
        "error_seq": trace.place_of_error(rollout.error_message),
        "cause": CAUSES.get(rollout.error_kind, "It failed"),
        "components": sorted(rollout.components.items()),
        "trace": trace,
        "mark": f"{rollout.status}-{rollout.attempt}-{trace.event_count}",
    }


def _page(request: PageRequest, rollout: Rollout, context: dict[str, object], *, status: int = 200) -> HttpResponse:
    group = list(
        Rollout.objects.filter(collection=rollout.collection_id, task=rollout.task_id)
        .order_by("repeat")
        .only("id", "repeat", "status", "reward")
    )
    place = next(index for index, each in enumerate(group) if each.pk == rollout.pk)
    attempts = rollout.events.order_by("attempt").values("attempt").annotate(events=Count("seq"))
    return render(
        request,
        "rollouts/detail.html",
        context
        | {
            "group": group,
            "place": place + 1,
            "previous": group[place - 1] if place else None,
            "next": group[place + 1] if place + 1 < len(group) else None,
            "attempts": attempts,
            "comments": rollout.comments.select_related("author"),
        },
        status=status,
    )
