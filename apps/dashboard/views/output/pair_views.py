"""Pages of pair sets and their pairs: build, list, decide and compare."""

from typing import Any

from django.contrib import messages
from django.db.models import Count, OuterRef, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.number_formats import count_words
from apps.dashboard.chrome.page_answers import POLL_ENDED, answer, show_refusal, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.pair_forms import QUEUE_LIMITS, DecisionForm, PairQueueForm, PairSetForm, SelectedPairsForm
from apps.dashboard.tables.option_words import describe_option, describe_options
from apps.dashboard.tables.pair_filters import (
    FLAG_WORDS,
    SORT_WORDS,
    find_place,
    next_proposed,
    page_pairs,
    pair_query,
    read_pair_filters,
)
from apps.dashboard.traces.side_by_side import Comparison, compare_rollouts
from apps.dashboard.traces.trace_reading import read_trace
from apps.gym.pairs.pair_rule import Rule
from apps.gym.trainability import label_reason
from apps.pairs.models import PairSet, PreferencePair
from apps.pairs.pair_counts import NewPair, count_pairs
from apps.pairs.pair_decisions import DecisionRefused, decide_pairs
from apps.pairs.pair_queues import create_pair_queue
from apps.pairs.pair_search import count_flags, flags_of
from apps.pairs.pair_sets import (
    cancel_pair_set,
    check_collections,
    delete_pair_set,
    order_pairs,
)
from apps.pairs.provenance import describe_opinion, describe_verdict, read_opinions
from apps.pairs.set_differences import NothingToCompare, PairSetChanges, compare_pair_sets
from apps.rollouts.models import Rollout
from apps.rollouts.search.keyset_pages import page_by_id
from apps.tasks.models import Task

PREVIEWED_PAIRS = 20


pair_set_cancel = action_view(Permission.PAIR, cancel_pair_set, PairSet, "pair_set", page="pair_set_detail")
pair_set_delete = action_view(
    Permission.PAIR,
    delete_pair_set,
    PairSet.objects.select_related("collection"),
    "pair_set",
    page="pair_set_detail",
    then="pair_set_list",
    success="{0.title} is deleted.",
)


@allow(GET=Permission.READ)
def pair_set_list(request: PageRequest) -> HttpResponse:
    """List the pair sets, each with its number of rejected and of proposed pairs."""
    pair_sets = PairSet.objects.select_related("collection", "created_by").annotate(
        rejected=_count_pairs(PreferencePair.Status.REJECTED), proposed=_count_pairs(PreferencePair.Status.PROPOSED)
    )
    page = page_by_id(pair_sets, request.GET.get("after", ""))
    rows = [(pair_set, describe_option(Rule, "level", pair_set.level)[1]) for pair_set in page.rows]
    return answer(request, "pairs/list.html", {"page": page, "rows": rows}, part="pair_sets")


def _count_pairs(status: PreferencePair.Status) -> Coalesce:
    """Return an expression that counts the pairs of a set with the status.

    As a subquery, it runs only for the sets of the page.
    """
    pairs = PreferencePair.objects.filter(pair_set=OuterRef("pk"), status=status).order_by().values("pair_set")
    return Coalesce(Subquery(pairs.values(number=Count("pk"))), 0)


@allow(GET=Permission.PAIR, POST=Permission.PAIR)
def pair_set_create(request: PageRequest) -> HttpResponse:
    """Show the form, or create the pair set. Htmx requests, `count` and `preview` only count the pairs."""
    if request.method != "POST":
        return render(request, "pairs/create.html", {"form": PairSetForm(initial=_initial_values(request))})
    form, context = PairSetForm(request.POST), {}
    if form.is_valid():
        with show_errors(form):
            if "preview" not in request.POST and "count" not in request.POST and not wants_fragment(request):
                pair_set = order_pairs(form.order, user=request.user)
                is_ready = pair_set.state == PairSet.State.READY
                message = f"{pair_set.pair_count:,} pairs built." if is_ready else "The pairs are being built."
                messages.success(request, message)
                return redirect("dashboard:pair_set_detail", pk=pair_set.pk)
            context = _count_context(form, with_pairs="preview" in request.POST)
    context = {"form": form, **context}
    return answer(request, "pairs/create.html", context, part="counts", status=422 if form.errors else 200)


def _initial_values(request: PageRequest) -> dict[str, Any]:
    """Return the initial form values from the URL. `?again=` names a pair set whose values fill the other fields."""
    given: dict[str, Any] = {name: request.GET[name] for name in request.GET if name in PairSetForm.base_fields}
    pair_set = PairSet.objects.filter(pk=read_number(request.GET.get("again", "")) or 0).first()
    if pair_set is None:
        return given
    further = list(pair_set.further.values_list("pk", flat=True))
    sources = {"collection": pair_set.collection_id, "further": further, "name": pair_set.name}
    return {**pair_set.rule, **sources, **given}


def _count_context(form: PairSetForm, *, with_pairs: bool) -> dict[str, Any]:
    """Return the template variables of the counts, and of the first pairs if `with_pairs`."""
    order = form.order
    preview = count_pairs(check_collections(order), order.rule, max_pairs=PREVIEWED_PAIRS if with_pairs else 0)
    counts = preview.counts
    return {
        "counts": counts,
        "outcomes": [(label_reason(name), number) for name, number in counts.groups.items() if number],
        "excluded": [(label_reason(name), number) for name, number in counts.excluded.items()],
        "previewed": _compare_pairs(preview.pairs),
        "comparison_url": _comparison_url(preview.pairs),
        "share": counts.considered / counts.total if counts.total else 1.0,
        "preview": with_pairs,
    }


def _compare_pairs(pairs: list[NewPair]) -> list[tuple[NewPair, Task, Comparison]]:
    """Return each pair with its task and the comparison of its sides."""
    tasks = Task.objects.in_bulk({one.task_id for one in pairs})
    ids = {side.id for one in pairs for side in (one.chosen, one.rejected)}
    rollouts = Rollout.objects.select_related("collection__policy_model").in_bulk(ids)
    return [
        (one, tasks[one.task_id], compare_rollouts([rollouts[one.rejected.id], rollouts[one.chosen.id]]))
        for one in pairs
    ]


def _comparison_url(pairs: list[NewPair]) -> str:
    """Return the URL of the page that compares the sides of each pair, one pair at a time. Empty without pairs."""
    sequence = ",".join(f"{one.chosen.id}-{one.rejected.id}" for one in pairs)
    return f"{reverse('dashboard:rollout_compare')}?pairs={sequence}&at=1" if sequence else ""


@allow(GET=Permission.READ)
def pair_set_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Show the pair set. The page polls its live part until the set is built."""
    pair_set = get_object_or_404(PairSet.objects.select_related("collection", "created_by"), pk=pk)
    pairs = PreferencePair.objects.filter(pair_set=pair_set).select_related("task", "chosen", "rejected")
    shown, changes = read_pair_filters(request.GET), _changes(pair_set, request.GET.get("since", ""))
    page = page_pairs(pairs, shown, request.GET.get("after", ""))
    context = {
        "pair_set": pair_set,
        "outcomes": [(label_reason(name), count) for name, count in pair_set.counts.items() if count],
        "excluded": [(label_reason(name), count) for name, count in pair_set.excluded.items()],
        "sources": [(PreferencePair.Source(name).label, count) for name, count in pair_set.sources.items()],
        "page": page,
        "decided": _count_statuses(pair_set),
        "query": pair_query(shown),
        "rows": [(pair, [FLAG_WORDS[flag] for flag in flags_of(pair)], describe_verdict(pair)) for pair in page.rows],
        "shown": shown,
        "statuses": PreferencePair.Status.choices,
        "sorts": SORT_WORDS.items(),
        "source_choices": PreferencePair.Source.choices,
        "flag_choices": [(flag, FLAG_WORDS[flag], count) for flag, count in count_flags(pair_set.pairs.all()).items()],
        "further": pair_set.further.order_by("pk"),
        "versions": PairSet.objects.filter(name=pair_set.name).order_by("-version")[:20] if pair_set.name else [],
        "changes": changes,
        "changed_settings": sorted(changes.settings.items()) if changes else [],
        "rule": describe_options(Rule, pair_set.rule),
        "ended": pair_set.is_settled,
        "queue_limits": QUEUE_LIMITS,
    }
    part = "pairs" if pair_set.is_settled and "live" not in request.GET else "live"
    status = POLL_ENDED if part == "live" and pair_set.is_settled and wants_fragment(request) else 200
    return answer(request, "pairs/detail.html", context, part=part, status=status)


def _count_statuses(pair_set: PairSet) -> list[tuple[str, str, int]]:
    """Return (value, label, number of pairs) of each status."""
    counts = dict(pair_set.pairs.order_by().values_list("status").annotate(Count("pk")))
    return [(value, label, counts.get(value, 0)) for value, label in PreferencePair.Status.choices]


def _changes(pair_set: PairSet, since: str) -> PairSetChanges | None:
    """Return the changes since the version with the number `since`, or since the previous version if it is empty."""
    if pair_set.state != PairSet.State.READY:
        return None
    try:
        return compare_pair_sets(pair_set, since=read_number(since, digits=9))
    except NothingToCompare:
        return None


@allow(POST=Permission.PAIR)
def pair_set_decide(request: PageRequest, pk: int) -> HttpResponse:
    """Accept, reject or reset the selected pairs, then show the filtered table again."""
    pair_set, form = get_object_or_404(PairSet, pk=pk), SelectedPairsForm(request.POST)
    form.fields["pair"].queryset = pair_set.pairs.all()  # type: ignore[attr-defined]
    if not form.is_valid():
        messages.error(
            request, "Select at least one pair, then accept, reject or reset. A reason has at most 500 characters."
        )
    else:
        given = form.cleaned_data
        with show_refusal(request):
            changed = decide_pairs(
                pairs=given["pair"], status=given["status"], reason=given["reason"], user=request.user
            )
            messages.success(request, f"{changed} of {len(given['pair'])} selected pairs changed.")
    query = request.GET.urlencode()
    return redirect(f"{reverse('dashboard:pair_set_detail', args=[pk])}{'?' if query else ''}{query}")


@allow(POST=Permission.LEAD)
def pair_set_ask(request: PageRequest, pk: int) -> HttpResponse:
    """Create a review queue of proposed pairs, smallest margin first."""
    pair_set = get_object_or_404(PairSet.objects.select_related("collection"), pk=pk)
    form = PairQueueForm(request.POST)
    if not form.is_valid():
        errors = (f"{form[name].label}: {' '.join(map(str, problems))}" for name, problems in form.errors.items())
        messages.error(request, " ".join(errors))
        return redirect("dashboard:pair_set_detail", pk=pk)
    with show_refusal(request):
        queue = create_pair_queue(pair_set=pair_set, **form.options, user=request.user)
        messages.success(request, f"This queue holds {count_words(queue.item_count, 'pair', 'pairs')}.")
        return redirect("dashboard:queue_detail", pk=queue.pk)
    return redirect("dashboard:pair_set_detail", pk=pk)


@allow(GET=Permission.READ)
def pair_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Show a pair: the common prompt, then both attempts side by side."""
    models = (f"{side}__collection__policy_model" for side in ("chosen", "rejected"))
    pair = get_object_or_404(PreferencePair.objects.select_related("pair_set__collection", "task", *models), pk=pk)
    shown = read_pair_filters(request.GET)
    sides = zip(("chosen", "rejected"), (pair.chosen, pair.rejected), pair.rewards, strict=True)
    traces = [(name, rollout, read_trace(rollout, rollout.attempt), reward) for name, rollout, reward in sides]
    opinions = read_opinions(pair)
    return render(
        request,
        "pairs/pair.html",
        {
            "pair": pair,
            "verdict": describe_verdict(pair),
            "opinions": [(one, describe_opinion(one)) for one in opinions],
            "deleted_reviews": len(pair.reviews) - len(opinions),
            "opening": traces[0][2].opening,
            "sides": traces,
            "flags": [FLAG_WORDS[flag] for flag in flags_of(pair)],
            "decisions": pair.decisions.select_related("user").order_by("-id"),
            "comparison": compare_rollouts([pair.rejected, pair.chosen]),
            "place": find_place(pair, shown),
            "shown": shown,
            "query": pair_query(shown),
        },
    )


@allow(POST=Permission.PAIR)
def pair_decide(request: PageRequest, pk: int) -> HttpResponse:
    """Accept, reject or reset one pair. With `next`, accepting and rejecting open the next proposed pair."""
    pair, form = get_object_or_404(PreferencePair, pk=pk), DecisionForm(request.POST)
    shown = read_pair_filters(request.GET)
    opened = pk
    with show_refusal(request):
        if not form.is_valid():
            raise DecisionRefused("Accept or reject the pair, or reset it to proposed.", "status")
        decide_pairs(pairs=[pair], user=request.user, **form.cleaned_data)
        goes_on = "next" in request.POST and form.cleaned_data["status"] != PreferencePair.Status.PROPOSED
        opened = (goes_on and next_proposed(pair, shown)) or pk
    return redirect(f"{reverse('dashboard:pair_detail', args=[opened])}{pair_query(shown)}")
