"""Break the figures of a collection down by split, tag or version of the model."""

import dataclasses
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from apps.rollouts.figuring import Figures, figure
from apps.rollouts.grouping import room_to_group
from apps.rollouts.keeping import AT_ONCE, SHARE
from apps.rollouts.labelling import Facet, find_labels
from apps.rollouts.models import Collection

_REMEMBERED = 50
# By collection and facet, and what had ended where nothing more will: until when it is shown, and what.
_recent: OrderedDict[tuple[object, ...], tuple[float, "Breakdown"]] = OrderedDict()


@dataclass(frozen=True, kw_only=True)
class Share(Figures):
    """The figures of the part of a collection with one label, which is empty where a task or a rollout has none.

    A group is all attempts at one task; by version of the model, those that began with one version.
    """

    label: str


class Breakdown(NamedTuple):
    """The largest shares first, and how many there are besides."""

    shares: list[Share]
    left_out: int


def break_down(collection: Collection, facet: Facet) -> Breakdown:
    """By tag, a task counts for each of its tags."""
    with room_to_group():
        labels = find_labels(collection, facet)
        parts = figure(collection, labels)
    shares = [
        Share(
            label=part.label,
            **{field.name: getattr(part.figures, field.name) for field in dataclasses.fields(part.figures)},
        )
        for part in parts
    ]
    return Breakdown(sorted(shares, key=lambda share: (-share.rollouts, share.label)), labels.left_out)


def recent_breakdown(collection: Collection, facet: Facet) -> Breakdown:
    """For a page, which asks again and again while a collection goes on: of a large one, what was measured lately. A
    process is no busier with it than a fifth of the time, however many look."""
    if collection.total <= AT_ONCE:
        return break_down(collection, facet)
    key = collection.pk, collection.created_at, facet, collection.ended if collection.is_finished else None
    until, found = _recent.get(key, (0.0, None))
    began = time.monotonic()
    if found is None or began >= until:
        found = break_down(collection, facet)
        ended = time.monotonic()
        _recent[key] = ended + SHARE * (ended - began), found
        while len(_recent) > _REMEMBERED:
            _recent.popitem(last=False)
    return found
