"""Preference pairs: sets of them, and two traces side by side."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from apps.accounts.permissions import Permission, allow
from apps.dashboard.answering import answer
from apps.dashboard.forms.exports import PairSetForm
from apps.dashboard.keyset import page_by_id
from apps.dashboard.requests import PageRequest
from apps.dashboard.traces.reading import read_trace
from apps.exports.models import PairSet, PreferencePair
from apps.exports.pairing import build_pairs


@allow(GET=Permission.READ)
def pair_set_list(request: PageRequest) -> HttpResponse:
    page = page_by_id(PairSet.objects.select_related("collection", "created_by"), request.GET.get("after", ""))
    return answer(request, "pairs/list.html", {"page": page}, part="pair_sets")


@allow(GET=Permission.PAIR, POST=Permission.PAIR)
def pair_set_create(request: PageRequest) -> HttpResponse:
    if request.method != "POST":
        form = PairSetForm(initial={name: request.GET[name] for name in ["collection"] if name in request.GET})
        return render(request, "pairs/create.html", {"form": form})
    form = PairSetForm(request.POST)
    if not form.is_valid():
        return render(request, "pairs/create.html", {"form": form}, status=422)
    pair_set = build_pairs(**form.cleaned_data, user=request.user)
    messages.success(request, f"{pair_set.pair_count} pairs built.")
    return redirect("dashboard:pair_set_detail", pk=pair_set.pk)


@allow(GET=Permission.READ)
def pair_set_detail(request: PageRequest, pk: int) -> HttpResponse:
    pair_set = get_object_or_404(PairSet.objects.select_related("collection", "created_by"), pk=pk)
    pairs = PreferencePair.objects.filter(pair_set=pair_set).select_related("task", "chosen", "rejected")
    page = page_by_id(pairs, request.GET.get("after", ""), descending=False)
    counts = sorted((name.replace("_", " "), count) for name, count in pair_set.counts.items())
    context = {"pair_set": pair_set, "counts": counts, "page": page}
    return answer(request, "pairs/detail.html", context, part="pairs")


@allow(GET=Permission.READ)
def pair_detail(request: PageRequest, pk: int) -> HttpResponse:
    """The shared prompt once, then both attempts side by side."""
    pairs = PreferencePair.objects.select_related("pair_set__collection", "task", "chosen", "rejected")
    pair = get_object_or_404(pairs, pk=pk)
    siblings = PreferencePair.objects.filter(pair_set=pair.pair_set_id).order_by("id").values_list("id", flat=True)
    sides = [("chosen", pair.chosen), ("rejected", pair.rejected)]
    traces = [(name, rollout, read_trace(rollout, rollout.attempt)) for name, rollout in sides]
    return render(
        request,
        "pairs/pair.html",
        {
            "pair": pair,
            "opening": traces[0][2].opening,
            "sides": traces,
            "previous": siblings.filter(id__lt=pk).last(),
            "next": siblings.filter(id__gt=pk).first(),
        },
    )
