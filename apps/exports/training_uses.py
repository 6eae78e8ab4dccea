"""Count what one collection gives to SFT, DPO and RL, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.exports.export_orders import ExportOrder, ExportRefused, prepare_export
from apps.exports.export_preview import Preview, preview_rows
from apps.gym.exporters.protocol import Format
from apps.gym.exporters.registry import FORMATS
from apps.gym.pairs.pair_rule import Rule
from apps.pairs.models import PairSet
from apps.pairs.pair_counts import PairCounts, count_pairs
from apps.rollouts.models import Collection

USES = ("trl_sft", "trl_dpo", "scored_rollouts")
SECONDS = 1.0
"""Time limit of each count, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingUse:
    """The counts of one format, with its default options.

    `refusal` is the reason if the export would be refused. Without a pair set, `proposed` counts the pairs that the
    default rule would build from the whole collection. Filters do not apply to it.
    """

    format: Format
    preview: Preview | None = None
    refusal: str = ""
    pair_set: PairSet | None = None
    proposed: PairCounts | None = None


def count_uses(
    collection: Collection, *, pair_set: PairSet | None = None, filters: Mapping[str, Any] | None = None
) -> list[TrainingUse]:
    """Return the counts of each format in USES. The default pair set is the newest one of the collection."""
    newest = PairSet.objects.filter(collection=collection, state=PairSet.State.READY).order_by("-pk").first()
    return [_count(FORMATS[slug], collection, pair_set or newest, dict(filters or {})) for slug in USES]


def _count(format: Format, collection: Collection, pair_set: PairSet | None, filters: dict[str, Any]) -> TrainingUse:
    if format.row_kind != "preferences":
        pair_set = None
    elif pair_set is None:
        counted = count_pairs([collection], Rule(), seconds=SECONDS)
        return TrainingUse(format=format, proposed=counted.counts)
    order = ExportOrder(format=format.slug, collection=collection, pair_set=pair_set, filters=filters)
    try:
        preview = preview_rows(prepare_export(order), limit=0, seconds=SECONDS)
    except ExportRefused as refusal:
        return TrainingUse(format=format, refusal=str(refusal), pair_set=pair_set)
    return TrainingUse(format=format, preview=preview, pair_set=pair_set)
