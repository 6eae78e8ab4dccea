"""Rollouts of one task side by side: those that the address names, or one pair after the other."""

import re
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.requests import PageRequest
from apps.dashboard.side_by_side import MOST, CannotCompare, compare_rollouts, find_rollouts

_MOST_PAIRS = 50


@allow(GET=Permission.READ)
def rollout_compare(request: PageRequest) -> HttpResponse:
    """`?r=1&r=2` or `?r=1,2`, the first being what the others are compared with; `?pairs=1-2,3-4&at=2` is the second of
    a sequence."""
    pairs = _pairs(request.GET.get("pairs", ""))
    at = min(max(1, _number(request.GET.get("at", ""))), len(pairs)) if pairs else 0
    ids = pairs[at - 1] if pairs else _ids(request.GET.getlist("r"))
    try:
        rollouts = find_rollouts(ids)
    except CannotCompare as refusal:
        # Without a choice this is the way to one; a choice that cannot be is a mistake.
        status = 400 if ids else 200
        return render(request, "rollouts/compare.html", {"refusal": str(refusal), "most": MOST}, status=status)
    context = {
        "comparison": compare_rollouts(rollouts),
        "task": rollouts[0].task,
        "columns": [(rollout, *_links(ids, rollout.pk)) for rollout in rollouts],
        "at": at,
        "pair_count": len(pairs),
        "previous_url": _step(pairs, at - 1),
        "next_url": _step(pairs, at + 1),
    }
    return render(request, "rollouts/compare.html", context)


def _ids(given: list[str]) -> list[int]:
    return [_number(part) for text in given for part in text.split(",") if part.strip()]


def _pairs(text: str) -> list[list[int]]:
    found = re.findall(r"(\d{1,18})-(\d{1,18})", text)
    return [[int(one), int(other)] for one, other in found[:_MOST_PAIRS]]


def _number(text: str) -> int:
    """0, which no row has, for what is no number."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _links(ids: list[int], chosen: int) -> tuple[str, str]:
    """Where this one is the first, and where it is not among them; empty where either is so, or too few are left."""
    others = [each for each in dict.fromkeys(ids) if each != chosen]
    first = "" if ids[0] == chosen else _address([chosen, *others])
    return first, _address(others) if len(others) > 1 else ""


def _address(ids: list[int]) -> str:
    return f"{reverse('dashboard:rollout_compare')}?r={','.join(map(str, ids))}"


def _step(pairs: list[list[int]], at: int) -> str:
    if not 1 <= at <= len(pairs):
        return ""
    given = {"pairs": ",".join(f"{one}-{other}" for one, other in pairs), "at": at}
    return f"{reverse('dashboard:rollout_compare')}?{urlencode(given, safe=',')}"
