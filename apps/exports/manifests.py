"""Build the manifest of an export: sources, dropped rows by reason, checksums of the files."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from apps.exports.column_types import ColumnTypes
from apps.exports.export_rows import RowReader
from apps.exports.models import Export
from apps.exports.row_files import RowFile
from apps.gym.exporters.registry import find_format
from apps.pairs.models import PairSet
from apps.rollouts.models import Collection


def make_manifest(
    export: Export, files: Sequence[RowFile], *, reader: RowReader, census: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the manifest. Sizes are in bytes.

    `counts.considered` equals `counts.written_from` plus the sum of `counts.dropped`. One attempt may become several
    rows, so `counts.written` may exceed `counts.written_from`. An export without rows has no file.

    `census` has counts from `Census`: rows by `dataset_splits` ("" for no split), attempts by `model_versions`, and
    `tokens`: attempts with captured tokens. NeMo RL loads those with `one_segment` unchanged. `with_grammar_calls`
    have calls whose tokens a grammar may have forced.

    `rewards` names the source of the rewards; `set_by_people` counts overrides. It is left out for pairs, whose rule
    chose the rewards.

    For task rows, `tools` counts tasks by their attempts: `offered` tools (of these, `differing` tools), `none`, or
    `unknown` without attempts.

    `trainability` says what may be trained on, and why the rest may not (apps.gym.trainability).

    `template_check` says what the chat template of the order does to the rows.

    `credentials` counts rows with suspected credentials. These rows are unchanged unless `masked`.

    `sampling_sent` lists the sampling fields of the requests for captured tokens, with the number of calls: the 20 most
    frequent ones. Fields that a request left out have the server's defaults.

    `source.policy_model.logprob_check` is the last check of captured log probabilities, if there was one.

    `columns` has the types of the columns of rows with any fields of their tasks. Values of `mixed_columns` are texts
    in some rows only; `datasets` decodes these texts as JSON. `date_columns` of other task rows have only dates.

    `longest_row_bytes` helps to choose a trainer's `max_length`, whose default truncates long rows.
    """
    pairs = {"pair_set": _pair_set(export.pair_set)} if export.pair_set else {}
    entries = [file.entry() for file in files]
    rows = sum(file.rows for file in files)
    return {
        "format": export.format,
        "encoding": export.encoding,
        "files": entries,
        "rows": rows,
        "bytes": entries[0]["bytes"] if entries else 0,
        "sha256": entries[0]["sha256"] if entries else "",
        "longest_row_bytes": max((file.longest_row for file in files), default=0),
        "filters": export.filters,
        "options": export.options,
        "split": {"by": "prompt", "validation_share": export.validation_share, "seed": export.split_seed},
        "counts": {
            "considered": reader.ledger.considered,
            "written_from": reader.ledger.used,
            "written": rows,
            "dropped": reader.ledger.counts(),
            **({"pairs_by_source": dict(sorted((+reader.sources).items()))} if export.pair_set else {}),
        },
        "trainability": msgspec.to_builtins(reader.summarize()),
        **({"template_check": msgspec.to_builtins(reader.check.report())} if reader.check else {}),
        "not_checked": export.not_checked,
        "credentials": reader.credentials.figures(),
        **({"sampling_sent": reader.list_samplings()} if reader.samplings else {}),
        **_rewards(export, reader),
        **({"tools": reader.offers.counts} if reader.format.row_kind == "tasks" else {}),
        **census,
        "source": {**describe_source(export.collection), **pairs},
        "gymweb_version": settings.VERSION,
        "created_at": timezone.now().isoformat(timespec="seconds"),
    }


def with_staleness(export: Export) -> dict[str, Any]:
    """Return the stored manifest, with `stale` if a recheck has changed rollouts that the export used."""
    if export.stale_at is None:
        return dict(export.manifest)
    return {**export.manifest, "stale": {"at": export.stale_at.isoformat(), "reason": export.stale_reason}}


def _rewards(export: Export, reader: RowReader) -> dict[str, Any]:
    if export.pair_set:
        return {}
    return {"rewards": {"from": reader.filters.reward_from, "set_by_people": reader.set_by_people}}


def describe_source(collection: Collection) -> dict[str, Any]:
    """Return the source of the rows, from the snapshot of the collection: later edits did not affect them."""
    policy_model = collection.policy_model
    planned = collection.snapshot.get("policy_model", {})
    return {
        "collection": {"id": collection.pk, "name": collection.name, "state": collection.state},
        "dataset": f"{collection.dataset.slug}@v{collection.version.number}",
        "dataset_sha256": collection.version.content_hash,
        "environment": collection.environment.slug,
        "agent": collection.snapshot.get("agent", {"slug": collection.agent.slug}),
        "policy_model": {
            "slug": policy_model.slug,
            "provider": planned.get("provider", policy_model.provider),
            "model_name": planned.get("model_name", policy_model.model_name),
            **({"logprob_mode": planned["logprob_mode"]} if "logprob_mode" in planned else {}),
            **planned.get("engine", {}),
            **({"logprob_check": policy_model.logprob_check} if policy_model.logprob_check else {}),
        },
        "sampling": collection.snapshot.get("sampling", collection.sampling),
        "repeats": collection.repeats,
        "seed": collection.seed,
    }


def _pair_set(pair_set: PairSet) -> dict[str, Any]:
    return {
        "id": pair_set.pk,
        "name": pair_set.name,
        "version": pair_set.version,
        "collections": [pair_set.collection_id, *pair_set.further.order_by("pk").values_list("pk", flat=True)],
        "rule": pair_set.rule,
        "rule_digest": pair_set.rule_digest,
        "groups": pair_set.counts,
        "excluded": pair_set.excluded,
        "sources": pair_set.sources,
    }


Rows = list[dict[str, Any]]
RowFacts = tuple[set[str], dict[str, int]]
"""Model versions of an attempt, and its token capture: number of `segments`, and `captured` out of `calls`."""


class Census:
    """Counts rows while they are written: by split, model version and captured tokens; and types open columns.

    It counts only fields that the format defines, because task fields can have any name.
    """

    def __init__(self, format: str) -> None:
        self.splits: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self._read = _READERS.get(format)
        known = find_format(format)
        self._is_open = known.open_columns
        self._columns = ColumnTypes() if self._is_open or known.row_kind == "tasks" else None

    def count(self, rows: Rows, *, dataset_split: str) -> None:
        """Count the rows of one attempt, pair or task."""
        self.splits[dataset_split] += len(rows)
        if self._columns:
            self._columns.add(rows)
        if self._read is None:
            return
        versions, found = self._read(rows)
        self.versions.update(versions - {""})
        if found:
            self.tokens["rows"] += 1
            self.tokens["one_segment" if found["segments"] == 1 else "more_segments"] += 1
            self.tokens["every_call_captured"] += found["captured"] == found["calls"]
            self.tokens["with_grammar_calls"] += found["grammar"] > 0

    def figures(self) -> dict[str, Any]:
        """Return the counts for the manifest. Absent splits, versions and tokens are left out."""
        names = ("rows", "one_segment", "more_segments", "every_call_captured", "with_grammar_calls")
        counts = {name: self.tokens[name] for name in names}
        return {
            **({"dataset_splits": dict(sorted(self.splits.items()))} if any(self.splits) else {}),
            **({"model_versions": dict(sorted(self.versions.items()))} if self.versions else {}),
            **({"tokens": counts} if self.tokens else {}),
            **self._describe_columns(),
        }

    def _describe_columns(self) -> dict[str, Any]:
        if self._columns is None:
            return {}
        if self._is_open:
            return {"columns": self._columns.features(), "mixed_columns": self._columns.mixed()}
        return {"date_columns": self._columns.dates()}


def _of_rollout(rows: Rows) -> RowFacts:
    own = rows[0]["gymweb"]
    versions = {*own.get("model_versions", ()), own.get("model_version", "")}
    tokens = own.get("tokens")
    return versions, {**tokens, "grammar": own.get("grammar_calls", 0)} if tokens else {}


def _of_segments(rows: Rows) -> RowFacts:
    first = rows[0]
    versions = {one["version"] for row in rows for one in row["sampled"]} or {first["model_version"]}
    found = {
        "segments": first["segments"],
        "captured": first["captured_calls"],
        "calls": first["calls"],
        "grammar": sum(one.get("grammar", False) for row in rows for one in row["sampled"]),
    }
    return versions, found if first["segments"] else {}


_READERS: dict[str, Callable[[Rows], RowFacts]] = {"nemo_gym_rollouts": _of_rollout, "scored_rollouts": _of_segments}
