"""Which paths of a captured trace become rows: the main or longest one, the main conversation's segments, or all.

The trace of the built-in loop is one path, so the choice makes no difference there, apart from additional columns.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from apps.gym.exporters.protocol import MANY, Attempt, Feature, Format, Options, Row
from apps.gym.traces.graph import TraceGraph

BRANCHES = ("main", "conversation", "all", "longest")
_COLUMNS: dict[str, Feature] = {"segment": "int64", "lineage": "int64", "weight": "float64"}
_SEVERAL = {"segment", "turn"}
"""Columns of formats that can have several rows for one path."""
_SOURCES = {"demonstrations", "labels", "scored"}


def offer_branches(format: Format) -> Format:
    """Return the format with the option `branches`, if its rows are attempts at a task.

    Archives of whole rollouts are unchanged: they have a row for each rollout, or the option already.
    """
    if format.row_kind not in _SOURCES or format.keeps_all:
        return format

    def rows(attempt: Attempt, options: Options) -> Iterator[Row]:
        return _rows(format, attempt, options)

    def features(options: Options) -> dict[str, Feature]:
        found = format.features(options)
        if _has_columns(found, options):
            return {**found, **_COLUMNS}
        # A rollout with several rows counts once.
        return {**found, "weight": _COLUMNS["weight"]} if _SEVERAL & set(found) else found

    return replace(format, rows=rows, features=features, choices={**format.choices, "branches": BRANCHES})


def _rows(format: Format, attempt: Attempt, options: Options) -> Iterator[Row]:
    graph = TraceGraph(attempt.events)
    if options.branches not in MANY:
        (leaf,) = find_leaves(graph, options)
        rows = list(format.rows(replace(attempt, events=graph.line(leaf)), options))
        weight = {"weight": _weight(rows)} if rows and _SEVERAL & set(rows[0]) else {}
        yield from ({**row, **weight} for row in rows)
        return
    found = [
        (leaf, row)
        for leaf, branch in _split(graph, attempt, find_leaves(graph, options))
        for row in format.rows(branch, options)
    ]
    if not _has_columns(format.features(options), options):
        yield from (row for _, row in found)
        return
    segments = sum(bool(row.get("input_ids")) for _, row in found)
    share = _weight([row for _, row in found])
    for number, (leaf, row) in enumerate(found):
        lineage = graph.calls[leaf].lineage if leaf else 0
        totals: dict[str, Any] = {"segments": segments} if "segments" in row else {}
        yield {**row, **totals, "segment": number, "lineage": lineage or 1, "weight": share}


def find_leaves(graph: TraceGraph, options: Options) -> list[int]:
    """Return the leaves whose paths become rows. Without calls, the only path is 0."""
    if options.branches in MANY:
        return (graph.conversation_leaves if options.branches == "conversation" else graph.leaves) or [0]
    return [graph.main_leaf if options.branches == "main" else graph.longest_leaf]


def _split(graph: TraceGraph, attempt: Attempt, leaves: list[int]) -> Iterator[tuple[int, Attempt]]:
    """Yield each leaf with its path. A call on several paths is trained on the first one."""
    trained: set[int] = set()
    for leaf in leaves:
        calls = graph.calls_on(leaf)
        masked = frozenset(place for place, call in enumerate(calls, start=1) if call in trained)
        trained.update(calls)
        yield leaf, replace(attempt, events=graph.line(leaf), masked=masked)


def _has_columns(features: dict[str, Feature], options: Options) -> bool:
    """Return True if rows tell their branch: only formats with columns for their origin allow more columns."""
    return options.branches in MANY and "rollout_id" in features


def _weight(rows: list[Row]) -> float:
    """Return the weight of each row of a rollout, in seven decimals: JSON readers may round longer ones.

    Rows whose tokens are all masked do not count.
    """
    masks = [row["loss_mask"] for row in rows if "loss_mask" in row]
    return round(1 / (sum(map(any, masks)) or len(rows) or 1), 7)
