"""The rollouts beside one in the list that somebody came from, whose filters and order the address carries."""

from typing import NamedTuple

from django.http import QueryDict

from apps.dashboard.forms.rollouts import RolloutSearchForm
from apps.rollouts.models import Rollout

UNFILTERED = "sort="
"""What stands for the list of all rollouts."""
_LONGEST = 1_500
_REVERSED = {"": "id", "id": "", "-reward": "reward", "reward": "-reward"}


class Neighbours(NamedTuple):
    previous: int | None
    next: int | None


def write_list(given: QueryDict, **fixed: str) -> str:
    """The list that these filters of a page mean, for `?list=` of the rollouts in it."""
    kept = given.copy()
    kept.pop("after", None)
    for name, value in fixed.items():
        kept[name] = value
    return kept.urlencode() or UNFILTERED


def find_neighbours(listed: str, rollout: Rollout) -> Neighbours | None:
    """None where what is given means no list."""
    form = RolloutSearchForm(QueryDict(listed[:_LONGEST]))
    if not listed or not form.is_valid():
        return None
    sort = form.cleaned_data["sort"]
    return Neighbours(previous=_before(listed, rollout, sort), next=_first(listed, sort, _cursor(rollout, sort)))


def _before(listed: str, rollout: Rollout, sort: str) -> int | None:
    """The list backwards; rollouts without a reward stand at its end in either order of rewards."""
    back = _REVERSED[sort]
    if not sort.endswith("reward"):
        return _first(listed, back, _cursor(rollout, sort))
    found = _first(listed, back, _cursor(rollout, sort), has_reward=rollout.reward is not None)
    if found is None and rollout.reward is None:
        found = _first(listed, back, "", has_reward=True)
    return found


def _first(listed: str, sort: str, after: str, *, has_reward: bool | None = None) -> int | None:
    query = QueryDict(listed[:_LONGEST], mutable=True)
    query["sort"], query["after"] = sort, after
    rows = Rollout.objects.only("id", "reward")
    if has_reward is not None:
        rows = rows.filter(reward__isnull=not has_reward)
    page = RolloutSearchForm(query).page(rows)
    return page.rows[0].pk if page.rows else None


def _cursor(rollout: Rollout, sort: str) -> str:
    if not sort.endswith("reward"):
        return str(rollout.pk)
    return f"{'' if rollout.reward is None else repr(rollout.reward)}~{rollout.pk}"
