"""Rows of the tables with the metrics of a server."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from apps.gym.redaction.shortening import shorten
from apps.rollouts.models import Collection, ServerMetrics
from apps.rollouts.server_metrics.aggregate_requests import may_have_metrics

_TEXT = 24


class MetricRow(NamedTuple):
    """A metric by the server's name. `values` has its value in each collection, shortened."""

    name: str
    values: list[str]


class ServerCard(NamedTuple):
    """The card of a collection. `row` is None if the metrics were never requested."""

    row: ServerMetrics | None
    key: list[MetricRow]
    others: list[MetricRow]


def read_server_metrics(collection: Collection) -> ServerCard | None:
    """Return the card, or None if no server computes metrics for this collection."""
    row = ServerMetrics.objects.filter(collection=collection).first()
    if row is None:
        has_server = bool(collection.rewarded) and may_have_metrics(collection.environment)
        return ServerCard(None, [], []) if has_server and collection.is_finished else None
    if row.state == ServerMetrics.State.UNSUPPORTED and not row.agent_metrics:
        return None
    row.collection = collection
    others = [name for name in row.agent_metrics if name not in row.key_metrics]
    return ServerCard(row, _rows([row.key_metrics], row.key_metrics), _rows([row.agent_metrics], others))


def compare_server_metrics(a: Collection, b: Collection) -> list[MetricRow]:
    """Return the metrics that either server computed, key metrics first."""
    rows = ServerMetrics.objects.filter(collection__in=[a, b]).order_by()
    found = {row.collection_id: row for row in rows}
    both = [found[each.pk] for each in (a, b) if each.pk in found]
    names = dict.fromkeys(name for row in both for name in [*row.key_metrics])
    names |= dict.fromkeys(name for row in both for name in row.agent_metrics)
    metrics = [
        {**found[each.pk].agent_metrics, **found[each.pk].key_metrics} if each.pk in found else {} for each in (a, b)
    ]
    return _rows(metrics, list(names))


def list_server_metrics(collection: Collection) -> list[tuple[str, Any, str]]:
    """Return all metrics as (name, full value, whether it is a headline), key metrics first."""
    row = ServerMetrics.objects.filter(collection=collection).first()
    key, every = (row.key_metrics, row.agent_metrics) if row else ({}, {})
    others = [(name, value, "no") for name, value in every.items() if name not in key]
    return [*((name, value, "yes") for name, value in key.items()), *others]


def _rows(metrics: Sequence[dict[str, Any]], names: Sequence[str] | dict[str, Any]) -> list[MetricRow]:
    return [MetricRow(name, [_show(each[name]) if name in each else "–" for each in metrics]) for name in names]


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return shorten(text, _TEXT)
