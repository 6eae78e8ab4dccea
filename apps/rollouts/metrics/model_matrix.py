"""Models or model versions against datasets, splits or tags: figures, and paired differences to a baseline."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Literal, NamedTuple

from django.db.models import Avg

from apps.gym.metrics.paired_comparison import Interval
from apps.gym.request_refusals import Refusal
from apps.gym.specs import Option
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.paired_labels import Grouping, LabelContrast, PairedMean, contrast_by
from apps.rollouts.models import Collection, CollectionQuerySet, Rollout
from apps.tasks.models import Dataset, Suite

MAX_ROWS = 20
MAX_COLUMNS = 20
MAX_K = 1_000
_SEPARATOR = "@"
"""Between the slug of a model and its version, in the name of a row."""


@dataclass(frozen=True, kw_only=True)
class MatrixSpec:
    """Options of a model matrix."""

    rows: Annotated[
        Literal["model", "version"],
        Option("Rows", names={"model": "Models", "version": "Model versions"}),
    ] = "model"
    columns: Annotated[
        Literal["dataset", "split", "tag"],
        Option("Columns", names={"dataset": "Datasets", "split": "Splits", "tag": "Tags"}),
    ] = "dataset"
    dataset: Annotated[str, Option("Dataset", "Dataset slug; required if columns are splits or tags", length=100)] = ""
    suite: Annotated[str, Option("Suite", "Its slug; only the datasets of this suite, in its order", length=100)] = ""
    k: Annotated[
        int | None,
        Option("Value", "Show pass@k instead of the mean reward", low=1, high=MAX_K, none="mean reward"),
    ] = None
    baseline: Annotated[str, Option("Baseline", "Row that the others are compared with; empty: none", length=330)] = ""


class MatrixRefused(Refusal):
    """Raised for an invalid option; `argument` names it."""


class MatrixCell(NamedTuple):
    """A cell. `collection` is the collection it is computed from, or None if the row has none for this column.

    `value` is the mean reward or pass@k of its `tasks`. `value_low` and `value_high` are its 95 % interval, None for
    fewer than five tasks. `difference` is paired by task with the baseline and has a 95 % interval. It is None in the
    row of the baseline, if the baseline has no collection, or if fewer than five tasks are shared.
    """

    collection: int | None
    value: float | None
    value_low: float | None
    value_high: float | None
    tasks: int
    difference: Interval | None


NO_CELL = MatrixCell(None, None, None, None, 0, None)


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A model or version with a cell for each column.

    `cost` (USD) and `duration` (seconds) are means per completed rollout, averaged over the collections of the row.
    `cost` is None if the cost of a collection of the row is unknown.
    `trend` has the mean rewards of the model on the first dataset with collections, oldest first; `trend_dataset` is
    its slug. `mean` is the mean of the cells of a suite, in which each dataset counts the same; None if a cell has no
    value.
    """

    name: str
    model: str
    version: str
    cells: list[MatrixCell]
    cost: float | None
    duration: float | None
    trend: list[float]
    trend_dataset: str
    mean: float | None


@dataclass(frozen=True, slots=True)
class Matrix:
    """`columns` are datasets, splits or tags. `mixed` counts collections left out because they have several versions.

    `rows_left_out` and `columns_left_out` count those beyond the limits.
    """

    columns: list[str]
    rows: list[MatrixRow]
    baseline: str
    mixed: int
    rows_left_out: int
    columns_left_out: int


class _Chosen(NamedTuple):
    """The latest collection by row and dataset, and the mean rewards of all collections by model and dataset."""

    latest: dict[str, dict[str, Collection]]
    trends: dict[tuple[str, str], list[float]]
    mixed: int


def build_matrix(spec: MatrixSpec) -> Matrix:
    """Return a matrix of the latest finished collection of each row and dataset. Raise MatrixRefused."""
    if spec.columns != "dataset" and not spec.dataset:
        raise MatrixRefused("Name a dataset to see its splits or tags.", "dataset")
    suite = Suite.objects.filter(slug=spec.suite).first() if spec.suite else None
    if spec.suite and suite is None:
        raise MatrixRefused(f"Unknown suite “{spec.suite}”.", "suite")
    if suite and spec.columns != "dataset":
        raise MatrixRefused(
            "With a suite, the columns must be datasets. Choose “Datasets” as columns, or no suite.", "suite"
        )
    if suite and spec.dataset:
        raise MatrixRefused("A suite has its own datasets. Leave out the suite or the dataset.", "dataset")
    slugs = [each.slug for each in suite.datasets] if suite else None
    if spec.dataset and not Dataset.objects.filter(slug=spec.dataset).exists():
        raise MatrixRefused(f"Unknown dataset “{spec.dataset}”.", "dataset")
    with consistent_reads():
        chosen = _choose_collections(spec, slugs)
        if spec.baseline and spec.baseline not in chosen.latest:
            known = ", ".join(list(chosen.latest)[:MAX_ROWS]) or "none"
            raise MatrixRefused(f"The baseline “{spec.baseline}” is not a row. Rows: {known}.", "baseline")
        # The baseline is always shown.
        names = sorted(chosen.latest, key=lambda name: name != spec.baseline)[:MAX_ROWS]
        if spec.columns == "dataset":
            columns, cells = _read_datasets(spec, chosen, names, slugs)
        else:
            columns, cells = _read_labels(spec, chosen, names)
        costs = _read_costs(chosen)
        return Matrix(
            columns=columns[:MAX_COLUMNS],
            rows=[
                _row(name, chosen, columns, cells[name][:MAX_COLUMNS], costs, has_mean=suite is not None)
                for name in names
            ],
            baseline=spec.baseline,
            mixed=chosen.mixed,
            rows_left_out=len(chosen.latest) - len(names),
            columns_left_out=max(0, len(columns) - MAX_COLUMNS),
        )


def _choose_collections(spec: MatrixSpec, slugs: Sequence[str] | None) -> _Chosen:
    """Choose the collections to show. `slugs` restricts them to these datasets; None allows all."""
    finished = Collection.objects.listed().filter(rewarded__gt=0, finished_at__isnull=False)
    if slugs is not None:
        finished = finished.filter(dataset__slug__in=slugs)
    if spec.dataset:
        finished = finished.filter(dataset__slug=spec.dataset)
    versions = _read_versions(finished) if spec.rows == "version" else {}
    latest: dict[str, dict[str, Collection]] = {}
    trends: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    mixed = 0
    for each in finished.select_related("dataset", "policy_model", "version__dataset").order_by("pk"):
        name = each.policy_model.slug
        found = versions.get(each.pk, {""})
        if len(found) > 1:
            mixed += 1
            continue
        if version := next(iter(found)):
            name += f"{_SEPARATOR}{version}"
        # Moved to the end, so that rows are ordered by their newest collection.
        latest[name] = {**latest.pop(name, {}), each.dataset.slug: each}
        trends[each.policy_model.slug, each.dataset.slug].append(each.reward_sum / each.rewarded)
    return _Chosen(dict(reversed(latest.items())), dict(trends), mixed)


def _read_versions(collections: CollectionQuerySet) -> dict[int, set[str]]:
    found: defaultdict[int, set[str]] = defaultdict(set)
    rewarded = Rollout.objects.filter(collection__in=collections.order_by().values("pk")).rewarded().order_by()
    for pk, version in rewarded.values_list("collection", "model_version").distinct():
        found[pk].add(version)
    return found


def _read_datasets(
    spec: MatrixSpec, chosen: _Chosen, names: Sequence[str], slugs: Sequence[str] | None
) -> tuple[list[str], dict[str, list[MatrixCell]]]:
    found = sorted({slug for name in names for slug in chosen.latest[name]})
    columns = found if slugs is None else list(slugs)
    base = chosen.latest.get(spec.baseline, {})
    return columns, {
        name: [_of_dataset(spec, chosen.latest[name].get(column), base.get(column)) for column in columns]
        for name in names
    }


def _of_dataset(spec: MatrixSpec, collection: Collection | None, base: Collection | None) -> MatrixCell:
    if collection is None:
        return NO_CELL
    return _read_cells(spec, collection, base, "all").get("", NO_CELL)


def _read_labels(
    spec: MatrixSpec, chosen: _Chosen, names: Sequence[str]
) -> tuple[list[str], dict[str, list[MatrixCell]]]:
    grouping: Grouping = "split" if spec.columns == "split" else "tag"
    base = chosen.latest.get(spec.baseline, {}).get(spec.dataset)
    found = {name: _read_cells(spec, chosen.latest[name][spec.dataset], base, grouping) for name in names}
    sizes: Counter[str] = Counter()
    for cells in found.values():
        sizes.update({label: cell.tasks for label, cell in cells.items()})
    columns = sorted(sizes, key=lambda label: (-sizes[label], label))
    return columns, {name: [cells.get(label, NO_CELL) for label in columns] for name, cells in found.items()}


def _read_cells(
    spec: MatrixSpec, collection: Collection, base: Collection | None, grouping: Grouping
) -> dict[str, MatrixCell]:
    """Return a cell for each label."""
    own = contrast_by(collection, collection, grouping, k=spec.k or 1)
    paired = contrast_by(base, collection, grouping, k=spec.k or 1) if base and base.pk != collection.pk else []
    differences = {each.label: _figure(spec, each).interval for each in paired}
    return {each.label: _cell(collection, _figure(spec, each), differences.get(each.label)) for each in own}


def _cell(collection: Collection, figure: PairedMean, difference: Interval | None) -> MatrixCell:
    low, high = figure.other_confidence or (None, None)
    return MatrixCell(collection.pk, figure.mean, low, high, figure.tasks, difference)


def _figure(spec: MatrixSpec, contrast: LabelContrast) -> PairedMean:
    return contrast.pass_at_k if spec.k else contrast.reward


def _read_costs(chosen: _Chosen) -> dict[int, tuple[float | None, float]]:
    """Return the mean cost, None if unknown, and duration of a completed rollout by collection."""
    collections = {each.pk: each for row in chosen.latest.values() for each in row.values()}
    rows = Rollout.objects.filter(collection__in=collections).completed().order_by()
    means = rows.values_list("collection").annotate(Avg("cost"), Avg("duration"))
    return {pk: (None if collections[pk].known_cost is None else cost, took) for pk, cost, took in means}


def _row(
    name: str,
    chosen: _Chosen,
    columns: Sequence[str],
    cells: list[MatrixCell],
    costs: Mapping[int, tuple[float | None, float]],
    *,
    has_mean: bool,
) -> MatrixRow:
    collections = chosen.latest[name]
    found = [costs[each.pk] for each in collections.values() if each.pk in costs]
    known = [cost for cost, _ in found if cost is not None]
    model, _, version = name.partition(_SEPARATOR)
    values = [cell.value for cell in cells if cell.value is not None]
    # A row has at least one collection, and so a trend.
    shown = next(slug for slug in [*columns, *collections] if (model, slug) in chosen.trends)
    return MatrixRow(
        name=name,
        model=model,
        version=version,
        cells=cells,
        cost=fmean(known) if known and len(known) == len(found) else None,
        duration=fmean(duration for _, duration in found) if found else None,
        trend=chosen.trends[model, shown],
        trend_dataset=shown,
        mean=fmean(values) if has_mean and len(values) == len(cells) else None,
    )
