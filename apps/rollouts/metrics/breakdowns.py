"""Break the figures of a collection down by split, tag or version of the model."""

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.label_figures import Figures, figure
from apps.rollouts.metrics.labels import Facet, find_labels
from apps.rollouts.models import Collection


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
    with consistent_reads():
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
