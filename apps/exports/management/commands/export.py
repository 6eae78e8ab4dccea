"""Write an export to a file, with its manifest beside it."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.exports.export_filters import filters_of
from apps.exports.export_folders import manifest_path, named_encoding
from apps.exports.export_jobs import check_path, write_export
from apps.exports.export_orders import ExportOrder, ExportRefused, prepare_export, queue_export
from apps.exports.export_preview import preview_rows
from apps.exports.exported_credentials import warn_of_credentials
from apps.exports.models import Encoding, Export
from apps.gym.exporters.registry import FORMATS
from apps.gym.trainability import label_reason
from apps.gym.training_ledger import describe
from apps.pairs.models import PairSet
from apps.rollouts.models import Collection


class Command(BaseCommand):
    help = "Export a collection for a trainer. --formats lists the formats and options."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--formats", action="store_true", help="list formats, options and notes")
        parser.add_argument("--collection", type=int, metavar="ID")
        parser.add_argument("--format", choices=list(FORMATS), metavar="FORMAT")
        parser.add_argument(
            "--out", type=Path, metavar="PATH", help="new folder, or one file with an ending like .jsonl"
        )
        parser.add_argument(
            "--encoding", choices=Encoding.values, help="default: the ending of --out, else the format's"
        )
        parser.add_argument(
            "--min-reward", type=float, metavar="R", help="least reward (demonstrations: 0.7 if not given)"
        )
        parser.add_argument(
            "--filter", action="append", default=[], metavar="NAME=VALUE", help="e.g. per_task=2, max_solve_rate=0.9"
        )
        parser.add_argument(
            "--option", action="append", default=[], metavar="NAME=VALUE", help="e.g. reasoning=inline, level=step"
        )
        parser.add_argument(
            "--include-flagged",
            action="store_true",
            help="include rollouts with redacted credentials that are not reviewed",
        )
        parser.add_argument("--validation", type=float, default=0.0, metavar="SHARE", help="of the prompts, e.g. 0.1")
        parser.add_argument("--split-seed", type=int, default=0, metavar="N")
        parser.add_argument(
            "--mask-credentials", action="store_true", help="mask suspected credentials (default: exact rows)"
        )
        parser.add_argument("--pair-set", type=int, metavar="ID", help="for preference pairs (default: the newest)")
        parser.add_argument("--preview", type=int, metavar="N", help="print the first rows and write nothing")
        parser.add_argument("--json", action="store_true", help="print the manifest as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["formats"]:
            self.stdout.write(_formats())
            return
        missing = [name for name in ("collection", "format") if options[name] is None]
        missing += ["out"] if options["out"] is None and options["preview"] is None else []
        if missing:
            raise CommandError(f"Missing: {', '.join('--' + name for name in missing)}.")
        collection = Collection.objects.present().filter(pk=options["collection"]).first()
        if collection is None:
            raise CommandError(f"Unknown collection {options['collection']}.")
        order = self._order(collection, options)
        try:
            prepared = prepare_export(order)
            if "splits" not in order.filters and (taken := prepared.filters.get("splits")):
                self.stderr.write(f"Of the dataset's splits {', '.join(taken)} alone; --filter splits=[] takes all.")
            if options["preview"] is not None:
                self._preview(prepared, options["preview"])
                return
            # Check before storing: a worker would write a rejected order.
            check_path(options["out"], prepared)
            export = write_export(export=queue_export(order), path=options["out"])
        except ExportRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        if export.state != Export.State.READY:
            raise CommandError(f"{export} ended {export.state}: {export.message}")
        if not export.rows:
            considered = export.manifest["counts"]["considered"]
            self.stderr.write(f"No rows, so no file: considered {considered}, left out: {_dropped(export)}.")
        if warning := warn_of_credentials(export.manifest["credentials"]):
            self.stderr.write(warning)
        self.stdout.write(json.dumps({"export": export.pk, **export.manifest}) if options["json"] else _summary(export))

    def _order(self, collection: Collection, options: dict[str, Any]) -> ExportOrder:
        filters = dict(_assignment(one) for one in options["filter"])
        if options["min_reward"] is not None:
            filters["min_reward"] = options["min_reward"]
        if options["include_flagged"]:
            filters["include_flagged"] = True
        return ExportOrder(
            format=options["format"],
            collection=collection,
            pair_set=self._pair_set(collection, options["format"], options["pair_set"]),
            filters=filters,
            options=dict(_assignment(one) for one in options["option"]),
            encoding=options["encoding"] or (named_encoding(options["out"]) if options["out"] else None),
            validation_share=options["validation"],
            split_seed=options["split_seed"],
            mask_credentials=options["mask_credentials"],
        )

    def _preview(self, export: Export, limit: int) -> None:
        preview = preview_rows(export, limit=limit)
        for row in preview.rows:
            self.stdout.write(json.dumps(row, ensure_ascii=False))
        more = f" Stopped after {preview.stopped_after:g} seconds." if preview.stopped_after else ""
        self.stderr.write(f"{describe(preview.trainability)}.{more}")
        if preview.trainability.notice:
            self.stderr.write(preview.trainability.notice)
        if preview.credentials:
            self.stderr.write(preview.credentials)

    def _pair_set(self, collection: Collection, format: str, given: int | None) -> PairSet | None:
        if given is not None:
            pair_set = PairSet.objects.filter(pk=given).first()
            if pair_set is None:
                raise CommandError(f"Unknown pair set {given}.")
            return pair_set
        if FORMATS[format].row_kind != "preferences":
            return None
        newest = collection.pair_sets.order_by("-id").first()
        if newest is None:
            raise CommandError(
                f"Collection {collection.label} has no pair set, and {FORMATS[format].title} needs a pair set: "
                f"build one with `gymweb pairs build {collection.pk}`."
            )
        self.stderr.write(f"Exporting {newest}, its newest; --pair-set names another.")
        return newest


def _assignment(given: str) -> tuple[str, Any]:
    """Parse NAME=VALUE, where the value is JSON if valid, else text."""
    name, equals, value = given.partition("=")
    if not equals:
        raise CommandError(f"{given}: write it as NAME=VALUE.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _formats() -> str:
    lines = []
    for format in FORMATS.values():
        lines += [f"{format.slug}: {format.title} ({', '.join(format.encodings)})", f"    {format.note}"]
        lines += [f"    --option {name}={'|'.join(values)}" for name, values in format.choices.items()]
        lines += [f"    --filter {', '.join(sorted(filters_of(format)))}"]
    return "\n".join(lines)


def _dropped(export: Export) -> str:
    dropped = export.manifest["counts"]["dropped"]
    return ", ".join(f"{count} {label_reason(reason)}" for reason, count in dropped.items()) or "none"


def _summary(export: Export) -> str:
    counts = export.manifest["counts"]
    files = [
        f"  {one['name']}: {one['rows']} rows, {one['bytes']} bytes, sha256 {one['sha256']}" for one in export.files
    ]
    return "\n".join(
        [
            f"{export.path}: {export.rows} rows",
            f"  considered {counts['considered']}, left out: {_dropped(export)}",
            *filter(None, [export.manifest["trainability"]["notice"]]),
            *files,
            f"  manifest {manifest_path(Path(export.path))}",
        ]
    )
