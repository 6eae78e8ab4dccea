"""Rollouts of one task side by side, from the URL or as a sequence of pairs, with a verdict form."""

import math
import re
import uuid
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.page_answers import show_refusal
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.forms.review_forms import FlagForm, read_posted_answer
from apps.dashboard.reviewing.work_items import read_fields
from apps.dashboard.traces.side_by_side import compare_rollouts
from apps.reviews.models import Flag, Queue, Review
from apps.reviews.queues.blind_items import LABELS
from apps.reviews.queues.item_leases import CannotReview
from apps.reviews.queues.queue_items import QueueRefused
from apps.reviews.reviews.flags import raise_flag
from apps.reviews.reviews.own_verdicts import read_own_verdict, save_own_verdict
from apps.reviews.reviews.review_answers import Answer, AnswerRefused
from apps.rollouts.models import Rollout
from apps.rollouts.rollout_steps import MOST, CannotCompare, find_rollouts

_MOST_PAIRS = 50


@allow(GET=Permission.READ)
def rollout_compare(request: PageRequest) -> HttpResponse:
    """Compare `?r=1&r=2` or `?r=1,2`, with the first as the reference.

    `?pairs=1-2,3-4&at=2` shows the second of a sequence.
    """
    return _page(request, request.GET)


@allow(GET=Permission.LEAD, POST=Permission.LEAD)
def rollouts_judge(request: PageRequest) -> HttpResponse:
    """Save the user's verdict on the compared rollouts, then show the next of the sequence.

    A rejected form is shown at this URL; opening it again starts over.
    """
    if request.method != "POST":
        return redirect("dashboard:rollout_compare")
    pairs, at, ids = _chosen(request.POST)
    said = read_posted_answer(request.POST, [], len(ids) if len(ids) > 2 else 0)
    token = request.POST.get("token", "")[:64] or uuid.uuid4().hex
    try:
        ids = [rollout.pk for rollout in find_rollouts(ids)]
        save_own_verdict(rollout_ids=ids, user=request.user, answer=said, token=token)
    except AnswerRefused as refusal:
        return _page(request, request.POST, said=said, errors=refusal.wrong)
    except (CannotCompare, CannotReview, QueueRefused) as refusal:
        return _page(request, request.POST, said=said, errors={"": str(refusal)})
    messages.success(request, f"Verdict saved for {' and '.join(f'#{one}' for one in ids)}.")
    return redirect(_step(pairs, at + 1) or _step(pairs, at) or _address(ids))


@allow(POST=Permission.COMMENT)
def rollouts_flag(request: PageRequest) -> HttpResponse:
    """Set a flag on all compared rollouts."""
    pairs, at, ids = _chosen(request.POST)
    form = FlagForm(request.POST)
    if not form.is_valid() or form.cleaned_data["seq"] is not None:
        messages.error(request, "Not flagged. Choose a problem.")
        return redirect(_step(pairs, at) or _address(ids))
    rollouts = list(Rollout.objects.filter(pk__in=ids[:MOST], collection__is_being_deleted=False).order_by("pk"))
    with show_refusal(request):
        with transaction.atomic():
            for rollout in rollouts:
                raise_flag(rollout=rollout, author=request.user, **form.cleaned_data)
        messages.success(request, f"Flagged {len(rollouts)} rollouts.")
    return redirect(_step(pairs, at) or _address(ids))


def _page(
    request: PageRequest, given: QueryDict, *, said: Answer | None = None, errors: dict[str, str] | None = None
) -> HttpResponse:
    pairs, at, ids = _chosen(given)
    try:
        rollouts = find_rollouts(ids)
    except CannotCompare as refusal:
        # Without ids the page explains how to choose rollouts; invalid ids are an error.
        status = 400 if ids else 200
        return render(request, "rollouts/compare.html", {"refusal": str(refusal), "most": MOST}, status=status)
    ids = [rollout.pk for rollout in rollouts]
    context = {
        "comparison": compare_rollouts(rollouts),
        "task": rollouts[0].task,
        "columns": [(rollout, *_links(ids, rollout.pk)) for rollout in rollouts],
        "letters": LABELS,
        "at": at,
        "pair_count": len(pairs),
        "previous_url": _step(pairs, at - 1),
        "next_url": _step(pairs, at + 1),
        "chosen": {"pairs": _told(pairs), "at": at} if pairs else {"r": ",".join(map(str, ids))},
        "ids": ids,
        "every_pair": math.comb(len(ids), 2),
        "flag_kinds": Flag.Kind.choices,
        **_verdict(request, rollouts, said, errors or {}),
    }
    return render(request, "rollouts/compare.html", context, status=422 if errors else 200)


def _verdict(
    request: PageRequest, rollouts: list[Rollout], said: Answer | None, errors: dict[str, str]
) -> dict[str, Any]:
    """Return the verdict form with the user's last verdict.

    Empty if they may not review or the rollouts are no item of a queue.
    """
    is_item = len({each.task_id for each in rollouts}) == 1
    if (
        not user_may(request.user, Permission.LEAD)
        or not is_item
        or any(each.status != Rollout.Status.COMPLETED for each in rollouts)
    ):
        return {}
    ids = [each.pk for each in rollouts]
    before = read_own_verdict(ids, request.user)
    shown = said or before
    kind = Queue.Kind.PAIRWISE if len(ids) == 2 else Queue.Kind.RANKING
    draft = Review(queue=Queue(kind=kind), arrangement=ids, draft=msgspec.structs.asdict(shown) if shown else {})
    return {"fields": read_fields(draft, errors), "judged_before": before is not None, "token": uuid.uuid4().hex}


def _chosen(given: QueryDict) -> tuple[list[list[int]], int, list[int]]:
    """Return the sequence, the position in it, and the compared rollouts."""
    found = re.findall(r"(\d{1,18})-(\d{1,18})", given.get("pairs", ""))
    pairs = [[int(one), int(other)] for one, other in found[:_MOST_PAIRS]]
    if pairs:
        at = min(max(1, read_number(given.get("at", "").strip()) or 0), len(pairs))
        return pairs, at, pairs[at - 1]
    # Id 0, which no row has, for text that is not a number.
    parts = [part.strip() for text in given.getlist("r") for part in text.split(",")]
    return [], 0, [read_number(part) or 0 for part in parts if part]


def _links(ids: list[int], chosen: int) -> tuple[str, str]:
    """Return the URLs with this rollout as the first, and without it.

    Empty if it already is the first, or if too few would be left.
    """
    others = [each for each in dict.fromkeys(ids) if each != chosen]
    first = "" if ids[0] == chosen else _address([chosen, *others])
    return first, _address(others) if len(others) > 1 else ""


def _address(ids: list[int]) -> str:
    return f"{reverse('dashboard:rollout_compare')}?r={','.join(map(str, ids))}"


def _step(pairs: list[list[int]], at: int) -> str:
    if not 1 <= at <= len(pairs):
        return ""
    given = {"pairs": _told(pairs), "at": at}
    return f"{reverse('dashboard:rollout_compare')}?{urlencode(given, safe=',')}"


def _told(pairs: list[list[int]]) -> str:
    return ",".join(f"{one}-{other}" for one, other in pairs)
