"""Write an export to a file, with its manifest beside it."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.exports.exporting import ExportRefused, queue_export, write_export
from apps.exports.files import manifest_path
from apps.exports.models import Export, ExportFormat, PairSet
from apps.rollouts.models import Collection


class Command(BaseCommand):
    help = "Write demonstrations, preference pairs or scored rollouts of a collection as JSON lines."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--collection", type=int, required=True, metavar="ID")
        parser.add_argument("--format", required=True, choices=ExportFormat.values)
        parser.add_argument("--out", type=Path, required=True, metavar="PATH")
        parser.add_argument(
            "--min-reward", type=float, metavar="R", help="least reward (demonstrations: 0.7 if not given)"
        )
        parser.add_argument(
            "--include-flagged",
            action="store_true",
            help="take rollouts that had credentials in their traces, and that nobody has looked at since",
        )
        parser.add_argument("--pair-set", type=int, metavar="ID", help="for preference pairs (default: the newest)")
        parser.add_argument("--json", action="store_true", help="print the manifest as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        collection = Collection.objects.present().filter(pk=options["collection"]).first()
        if collection is None:
            raise CommandError(f"There is no collection {options['collection']}.")
        pair_set = self._pair_set(collection, options["format"], options["pair_set"])
        filters: dict[str, Any] = {} if options["min_reward"] is None else {"min_reward": options["min_reward"]}
        if options["include_flagged"]:
            filters["include_flagged"] = True
        try:
            queued = queue_export(format=options["format"], collection=collection, pair_set=pair_set, filters=filters)
        except ExportRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        export = write_export(export=queued, path=options["out"])
        if export.state != Export.State.READY:
            raise CommandError(f"{export} ended {export.state}: {export.message}")
        if not export.rows:
            considered = export.manifest["counts"]["considered"]
            self.stderr.write(f"The file holds no rows: considered {considered}, dropped: {_dropped(export)}.")
        self.stdout.write(json.dumps({"export": export.pk, **export.manifest}) if options["json"] else _summary(export))

    def _pair_set(self, collection: Collection, format: str, given: int | None) -> PairSet | None:
        if given is not None:
            pair_set = PairSet.objects.filter(pk=given).first()
            if pair_set is None:
                raise CommandError(f"There is no pair set {given}.")
            return pair_set
        if format != ExportFormat.TRL_DPO:
            return None
        newest = collection.pair_sets.order_by("-id").first()
        if newest is None:
            raise CommandError(
                f"Collection {collection.label} has no pair set, and a DPO export needs a pair set: "
                f"build one with `manage.py build_pairs --collection {collection.pk}`."
            )
        self.stderr.write(f"Exporting {newest}, its newest; --pair-set names another.")
        return newest


def _dropped(export: Export) -> str:
    dropped = export.manifest["counts"]["dropped"]
    return ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in dropped.items()) or "none"


def _summary(export: Export) -> str:
    counts = export.manifest["counts"]
    return "\n".join(
        [
            f"{export.path}: {export.rows} rows, {export.bytes} bytes",
            f"  considered {counts['considered']}, dropped: {_dropped(export)}",
            f"  sha256 {export.sha256}",
            f"  manifest {manifest_path(Path(export.path))}",
        ]
    )
