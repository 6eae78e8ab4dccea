"""The manifest of an export: where its rows come from, which were left out and why, and how to check the file."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.utils import timezone

from apps.exports.export_rows import RowReader
from apps.exports.models import Export
from apps.exports.row_files import RowFile
from apps.pairs.models import PairSet
from apps.rollouts.models import Collection


def make_manifest(
    export: Export, files: Sequence[RowFile], *, reader: RowReader, census: Mapping[str, Any]
) -> dict[str, Any]:
    """`counts.considered` = `counts.written_from` + the sum of `counts.dropped`; sizes are bytes. Without rows there is
    no file.

    An attempt may become several rows, so `counts.written` may be more than `counts.written_from`.

    `census` adds what the rows say of themselves: `dataset_splits` counts rows by the split that their task is of in
    the dataset ("" for none), `model_versions` attempts by the versions in them, `tokens` those with captured tokens,
    of which NeMo RL loads `one_segment` as they are.

    `rewards` says whose count in it; of those in what was written, `set_by_people` are not the verifier's. Pairs have
    their set's own rule.

    `tools`, of rows that are tasks, counts those whose attempts were `offered` tools (`differing`: not all the same
    ones), those where there were `none`, and those of which it is `unknown`, since nobody began an attempt.

    `longest_row_bytes` helps to set a trainer's `max_length`, whose default cuts long rows.
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
            "considered": reader.considered,
            "written_from": reader.written_from,
            "written": rows,
            "dropped": {reason: number for reason, number in sorted(reader.dropped.items()) if number},
            **({"pairs_by_source": dict(sorted((+reader.sources).items()))} if export.pair_set else {}),
        },
        **_rewards(export, reader),
        **({"tools": reader.offers.counts} if reader.makes == "tasks" else {}),
        **census,
        "source": {**_source(export.collection), **pairs},
        "gymweb_version": settings.VERSION,
        "created_at": timezone.now().isoformat(timespec="seconds"),
    }


def _rewards(export: Export, reader: RowReader) -> dict[str, Any]:
    if export.pair_set:
        return {}
    return {"rewards": {"from": reader.reward_from, "set_by_people": reader.set_by_people}}


def _source(collection: Collection) -> dict[str, Any]:
    """As planned, from the collection's snapshot: what was edited since does not matter to these rows."""
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
