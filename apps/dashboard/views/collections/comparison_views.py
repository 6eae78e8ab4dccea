"""Compare two collections: settings, difference of mean rewards, and the tasks behind it."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.charts.bubbles import draw_bubbles
from apps.dashboard.charts.shares import draw_shares
from apps.dashboard.chrome.page_answers import answer
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.overview.comparison_verdict import describe_difference
from apps.dashboard.overview.server_metric_rows import compare_server_metrics
from apps.dashboard.tables.csv_files import answer_csv
from apps.rollouts.metrics.collection_comparison import (
    CannotContrast,
    check_contrast,
    contrast_collections,
    find_differences,
)
from apps.rollouts.metrics.paired_labels import Grouping, contrast_by
from apps.rollouts.metrics.task_changes import WHICH, Cursor, Which, count_changes, find_extreme_rollouts, list_changes
from apps.rollouts.models import Collection

AT_ONCE = 2_000
"""Maximum rollouts per side to measure within the request; larger sides load after the page."""

_A_PAGE = 50
_IN_A_FILE = 100_000
_OFFERED = 100
_WORDS: dict[Which, str] = {
    "regressed": "Regressed",
    "improved": "Improved",
    "lost": "No longer solved",
    "gained": "Newly solved",
    "same": "Unchanged",
    "all": "All",
}


@dataclass(frozen=True, slots=True)
class Sides:
    """The collections in the URL. `refusal` is the reason why they cannot be compared."""

    a: Collection | None
    b: Collection | None
    refusal: str = ""

    @property
    def both(self) -> tuple[Collection, Collection] | None:
        return (self.a, self.b) if self.a and self.b and not self.refusal else None


@allow(GET=Permission.READ)
def collection_compare(request: PageRequest) -> HttpResponse:
    """Compare `?b=` with the baseline `?a=`.

    The figures of large collections load after the page, or with `figures=1`.
    """
    sides = _sides(request)
    context: dict[str, Any] = {"sides": sides, "offered": _offered(sides)}
    if sides.both is None:
        status = 400 if sides.refusal else 200
        return answer(request, "collections/compare.html", context, part="figures", status=status)
    a, b = sides.both
    differs = find_differences(a.snapshot, b.snapshot)
    if "dataset.version" in differs:
        differs.pop("dataset.content_hash", None)
    context |= {"differs": sorted(differs.items()), "query": f"a={a.pk}&b={b.pk}"}
    if _are_small(a, b) or "figures" in request.GET:
        context |= _figures(a, b)
    return answer(request, "collections/compare.html", context, part="figures")


def _are_small(a: Collection, b: Collection) -> bool:
    return a.total + b.total <= 2 * AT_ONCE


def _figures(a: Collection, b: Collection) -> dict[str, Any]:
    contrast = contrast_collections(a, b)
    same = contrast.tasks - contrast.improved - contrast.regressed
    overall = next(iter(contrast_by(a, b, "all")), None)
    groupings: tuple[tuple[str, Grouping], ...] = (("Split", "split"), ("Tag", "tag"))
    labels = [(title, contrast_by(a, b, grouping)) for title, grouping in groupings]
    return {
        "contrast": contrast,
        "verdict": overall and describe_difference(a, b, overall),
        "by_label": [(title, rows) for title, rows in labels if len(rows) > 1 or (rows and rows[0].label)],
        "shares": draw_shares(
            [
                ("improved", contrast.improved, "ok"),
                ("unchanged", same, "muted"),
                ("regressed", contrast.regressed, "bad"),
            ]
        ),
        "bubbles": draw_bubbles(contrast.grid),
        "names": (f"#{a.pk}", f"#{b.pk}"),
        "server_metrics": compare_server_metrics(a, b),
    }


@allow(GET=Permission.READ)
def collection_changes(request: PageRequest) -> HttpResponse:
    """List the tasks that regressed, improved, flipped or stayed the same, largest differences first."""
    sides = _sides(request)
    if sides.both is None:
        return render(request, "collections/compare.html", {"sides": sides, "offered": _offered(sides)}, status=400)
    a, b = sides.both
    which = _which(request)
    changes = list_changes(a, b, which, after=Cursor.parse(request.GET.get("after", "")), limit=_A_PAGE)
    extremes = find_extreme_rollouts(a, b, changes)
    full = len(changes) == _A_PAGE
    # Counting takes as long as listing, so large collections have no counts.
    counts = count_changes(a, b) if _are_small(a, b) else {}
    context = {
        "sides": sides,
        "which": which,
        "tabs": [(name, text, counts.get(name)) for name, text in _WORDS.items()],
        "query": f"a={a.pk}&b={b.pk}",
        "changes": list(zip(changes, _addresses(extremes), strict=True)),
        "sequence": _sequence([pair for pair in extremes if pair]),
        "is_first": not request.GET.get("after"),
        "next_after": str(Cursor(changes[-1].difference, changes[-1].task)) if full else "",
    }
    return answer(request, "collections/changes.html", context, part="changes")


@allow(GET=Permission.READ)
def collection_changes_file(request: PageRequest) -> HttpResponse:
    """Download one list as CSV, up to the first hundred thousand rows."""
    sides = _sides(request)
    if sides.both is None:
        return render(request, "collections/compare.html", {"sides": sides, "offered": _offered(sides)}, status=400)
    a, b = sides.both
    which = _which(request)
    changes = list_changes(a, b, which, limit=_IN_A_FILE)
    header = ("task", "other_task", "mean_reward", "other_mean_reward", "difference", "prompt")
    rows = [
        (one.task, one.other_task, one.mean_reward, one.other_mean_reward, one.difference, one.prompt_excerpt)
        for one in changes
    ]
    return answer_csv(f"collections-{a.pk}-{b.pk}-{which}.csv", header, rows)


def _which(request: PageRequest) -> Which:
    return next((each for each in WHICH if each == request.GET.get("which")), "regressed")


def _sides(request: PageRequest) -> Sides:
    """Return `?a=` and `?b=`, or the two selected in a list (`?c=4&c=5`): then the older one is the baseline."""
    marked = sorted(request.GET.getlist("c"), key=lambda text: (len(text), text))
    if len(marked) > 2:
        return Sides(None, None, f"Select two collections to compare: {len(marked)} were given.")
    given = dict(zip("ab", marked, strict=False)) or {name: request.GET.get(name, "") for name in "ab"}
    a, b = (_collection(given.get(name, "")) for name in "ab")
    missing = [given[name] for name, found in zip("ab", (a, b), strict=True) if given.get(name) and not found]
    if missing:
        return Sides(a, b, f"Unknown collections: {', '.join(missing)}.")
    if a and b:
        if a.pk == b.pk:
            return Sides(a, b, "Choose two different collections.")
        try:
            check_contrast(a, b)
        except CannotContrast as refusal:
            return Sides(a, b, str(refusal))
    return Sides(a, b)


def _collection(text: str) -> Collection | None:
    rows = Collection.objects.present().select_related("dataset", "version__dataset", "agent", "policy_model")
    return rows.filter(pk=read_number(text.strip().removeprefix("#")) or 0).first()


def _offered(sides: Sides) -> list[Collection]:
    """Return the collections to choose from: of the same dataset if one is chosen."""
    known = sides.b or sides.a
    rows = Collection.objects.listed().filter(rewarded__gt=0)
    offered = list((rows.filter(dataset=known.dataset_id) if known else rows)[:_OFFERED])
    return [*(side for side in (sides.a, sides.b) if side and side not in offered), *offered]


def _addresses(extremes: list[tuple[int, int] | None]) -> list[str]:
    here = reverse("dashboard:rollout_compare")
    return [f"{here}?r={pair[0]},{pair[1]}" if pair else "" for pair in extremes]


def _sequence(pairs: list[tuple[int, int]]) -> str:
    """Return the URL of the page that compares these pairs one after the other."""
    named = ",".join(f"{one}-{other}" for one, other in pairs)
    return f"{reverse('dashboard:rollout_compare')}?pairs={named}" if pairs else ""
