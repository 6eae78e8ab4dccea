"""Rechecks: list the changes by the current rules, and apply them."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import POLL_ENDED, answer, carry_out, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.exports.models import Export
from apps.exports.rechecks.recheck_jobs import apply_recheck, cancel_recheck, queue_recheck, resume_recheck
from apps.exports.rechecks.stale_outputs import collections_to_recheck, find_overrides, find_pairs, find_reviews
from apps.rollouts.models import Collection, Recheck, RolloutChange
from apps.rollouts.search.keyset_pages import page_by_id

SHOWN = 100
"""Maximum collections, pairs, exports and reviews on a page. The API lists all."""
_ROWS = Recheck.objects.select_related("collection", "created_by")
_KINDS = ["", *RolloutChange.Kind.values]

recheck_apply = action_view(Permission.COLLECT, apply_recheck, _ROWS, "recheck", page="recheck_detail")
recheck_cancel = action_view(Permission.COLLECT, cancel_recheck, _ROWS, "recheck", page="recheck_detail")
recheck_resume = action_view(Permission.COLLECT, resume_recheck, _ROWS, "recheck", page="recheck_detail")


@allow(GET=Permission.READ)
def recheck_list(request: PageRequest) -> HttpResponse:
    """List the collections that need a recheck, and all rechecks."""
    earlier = collections_to_recheck().order_by("-pk")
    context = {
        "page": page_by_id(_ROWS, request.GET.get("after", "")),
        "earlier": earlier[:SHOWN],
        "earlier_count": earlier.count(),
    }
    return answer(request, "rechecks/list.html", context, part="rechecks")


@allow(POST=Permission.COLLECT)
def recheck_create(request: PageRequest) -> HttpResponse:
    """Queue a recheck of each chosen collection."""
    wanted = [int(one) for one in request.POST.getlist("collection")[:SHOWN] if one.isdecimal() and len(one) < 19]
    collections = Collection.objects.present().filter(pk__in=wanted)
    listed = reverse("dashboard:recheck_list")
    return carry_out(
        request, lambda: [queue_recheck(collection=one, user=request.user) for one in collections], then=listed
    )


@allow(GET=Permission.READ)
def recheck_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Show the recheck. The page polls its live part until the worker has finished."""
    recheck = get_object_or_404(_ROWS, pk=pk)
    kind = request.GET.get("kind", "")
    kind = kind if kind in _KINDS else ""
    changes = recheck.changes.select_related("rollout__task")
    pairs, reviews, overrides = find_pairs(recheck), find_reviews(recheck), find_overrides(recheck)
    context = {
        "recheck": recheck,
        "kinds": RolloutChange.Kind.choices,
        "kind": kind,
        "page": page_by_id(
            changes.filter(kind=kind) if kind else changes, request.GET.get("after", ""), descending=False
        ),
        "reverifications": recheck.reverifications.order_by("pk"),
        "pairs": pairs.select_related("pair_set").order_by("pk")[:SHOWN],
        "pair_count": pairs.count(),
        "exports": Export.objects.filter(pk__in=recheck.exports).order_by("pk")[:SHOWN],
        "reviews": reviews.select_related("reviewer", "queue").order_by("pk")[:SHOWN],
        "review_count": reviews.count(),
        "overrides": overrides.select_related("author").order_by("pk")[:SHOWN],
        "override_count": overrides.count(),
    }
    status = POLL_ENDED if recheck.is_settled and wants_fragment(request) else 200
    return answer(request, "rechecks/detail.html", context, part="live", status=status)
