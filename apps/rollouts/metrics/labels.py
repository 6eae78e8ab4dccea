"""Labels by which rollouts are grouped: a single one for all, or split, tag or model version."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from django.db import connection

from apps.rollouts.models import Collection

Facet = Literal["split", "tag", "model_version"]
FACETS: tuple[Facet, ...] = ("split", "tag", "model_version")
MAX_LABELS = 100
"""Maximum labels of a breakdown. The most frequent are kept."""

_TASK = "JOIN tasks_task t ON t.id = r.task_id"
# Tags are stored in one text column, one per line. SQLite cannot split text, so the text is converted to a JSON array:
# backslashes are escaped, and line ends become separators.
_LINES = {
    "postgresql": """CROSS JOIN LATERAL unnest(
        CASE WHEN btrim(raw, chr(10)) = '' THEN ARRAY[''] ELSE string_to_array(btrim(raw, chr(10)), chr(10)) END
    ) AS part(value)""",
    "sqlite": r"""CROSS JOIN json_each(
        '[' || replace(replace(json_quote(trim(raw, char(10))), '\\', '\u005c'), '\n', '","') || ']'
    ) AS part""",
}
# Group by stored value before splitting into labels, because there are fewer values.
_LARGEST = """
    SELECT label, rollouts, COUNT(*) OVER () FROM (
        SELECT {label} AS label, SUM(size) AS rollouts FROM (
            SELECT {raw} AS raw, COUNT(*) AS size FROM rollouts_rollout r {join}
            WHERE r.collection_id = %s GROUP BY {raw}
        ) stored {parts} GROUP BY 1
    ) labels ORDER BY rollouts DESC, label LIMIT %s
"""


class Labelling(NamedTuple):
    """SQL fragments to group by label.

    `raw` is the stored value of rollouts `r` after `join`, grouped by `by`. `label` is one label in it, after joining
    `parts`. `version` is an additional column by which queries over tasks group rollouts; there, `r` is such a group.
    """

    raw: str
    by: str
    join: str = ""
    version: str = ""
    label: str = "raw"
    parts: str = ""


class Labels(NamedTuple):
    """The labels to measure, most frequent first, and the number of labels left out."""

    labelling: Labelling
    names: Sequence[str]
    left_out: int = 0


def single_label() -> Labels:
    return Labels(Labelling(raw="CAST('' AS text)", by=""), [""])


def find_labels(collection: Collection, facet: Facet) -> Labels:
    labelling = _labelling(facet)
    with connection.cursor() as cursor:
        cursor.execute(_LARGEST.format(**labelling._asdict()), [collection.pk, MAX_LABELS])
        rows = cursor.fetchall()
    return Labels(labelling, [row[0] for row in rows], rows[0][2] - len(rows) if rows else 0)


def _labelling(facet: Facet) -> Labelling:
    if facet == "model_version":
        return Labelling(raw="r.model_version", by="r.model_version, ", version=", r.model_version")
    if facet == "split":
        return Labelling(raw="t.split", by="t.split, ", join=_TASK)
    lines = _LINES[connection.vendor]
    return Labelling(raw="t.tags_text", by="t.tags_text, ", join=_TASK, label="part.value", parts=lines)


def read_by_label(
    query: str, labels: Labels, given: Sequence[Any], known: Mapping[str, Sequence[float]] | None = None, **parts: str
) -> list[tuple[Any, ...]]:
    """Run a query with the placeholders of Labelling and {known}, and return its rows.

    `known` has rows of a label and its numbers, named n0, n1 and so on. Without it, rows of all labels are returned.
    """
    rows = [(name, *numbers) for name, numbers in (known or dict.fromkeys(labels.names, ())).items()]
    if not rows:
        return []
    width = len(rows[0]) - 1
    numbers = ", CAST(%s AS double precision)" * width
    values = ", ".join([f"(CAST(%s AS text){numbers})"] * len(rows))
    columns = "".join(f", n{place}" for place in range(width))
    text = query.format(known=f"known(label{columns}) AS (VALUES {values})", **labels.labelling._asdict(), **parts)
    with connection.cursor() as cursor:
        cursor.execute(text, [each for row in [*rows, given] for each in row])
        return list(cursor.fetchall())
