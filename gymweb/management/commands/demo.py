"""The demo, from an empty folder: load data, run a collection, build pairs, write exports, then serve."""

import json
import os
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand

from apps.accounts.models import Role, User
from apps.accounts.sign_in import create_sign_in_link
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import Export
from apps.gym.exporters.registry import FORMATS
from apps.pairs.models import PairSet
from apps.pairs.pair_sets import PairOrder, build_pairs
from apps.rollouts.management.commands.collect import collect_with_bar
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.models import Collection
from apps.rollouts.plans.sample_data import plan_sample

DEMO_FORMATS = ("trl_sft", "trl_dpo", "nemo_gym_rollouts")
"""One format of each kind: demonstrations, preference pairs, scored rollouts."""


class Command(BaseCommand):
    help = "Load demo data, run one collection with the scripted model (no LLM), build pairs, write exports, serve."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-serve", action="store_true", help="exit after the summary")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.perf_counter()
        call_command("migrate", verbosity=0)
        person = find_person()
        collection = plan_sample(person)
        self.stderr.write(f"Collecting {collection.total} rollouts of {collection.dataset.name} …")
        collection = collect_with_bar(collection)
        pair_set = build_pairs(PairOrder(collection=collection), user=person)
        exports = export_demo(collection, pair_set, person)
        self.print_summary(collection, pair_set, exports, time.perf_counter() - began)
        if not options["no_serve"]:
            self.serve(person, options["port"])

    def print_summary(
        self, collection: Collection, pair_set: PairSet, exports: list[dict[str, Any]], seconds: float
    ) -> None:
        """Print the summary. The last line on standard output is one JSON object."""
        summary = {
            "rollouts": collection.total,
            "completed": collection.completed,
            "failed": collection.failed,
            "mean_reward": collection.mean_reward,
            "pass_at_1": measure_collection(collection).pass_at_1,
            "pairs": pair_set.pair_count,
            "seconds": round(seconds, 1),
            "exports": exports,
        }
        self.stdout.write(json.dumps(summary))
        self.stdout.flush()

    def serve(self, person: User, port: int) -> None:
        """Replace this process with the server, so that its event loop and reactor are set up first."""
        token = create_sign_in_link(user=person)
        self.stderr.write(f"\nSign in once with  http://127.0.0.1:{port}/sign-in/{token}/\n")
        # Allow calls to this machine, unless the operator has set an allow-list.
        os.environ.setdefault("GYMWEB_OUTBOUND_ALLOW", "localhost")
        manage = str(settings.BASE_DIR / "manage.py")
        os.execv(sys.executable, [sys.executable, manage, "serve", "--port", str(port)])  # noqa: S606


def find_person() -> User:
    """Return the admin of the demo, who has no password.

    The printed link signs in, and a password can be set on the account page.
    """
    known = User.objects.filter(username="demo").first()
    return known or User.objects.create_user(username="demo", password=None, role=Role.ADMIN)


def export_demo(collection: Collection, pair_set: PairSet, person: User) -> list[dict[str, Any]]:
    exports = [write_demo_export(format_, collection, pair_set, person) for format_ in DEMO_FORMATS]
    return [
        {"format": export.format, "path": export.path, "rows": export.rows, "sha256": export.sha256}
        for export in exports
    ]


def write_demo_export(format_: str, collection: Collection, pair_set: PairSet, person: User) -> Export:
    pairs = pair_set if FORMATS[format_].row_kind == "preferences" else None
    export = write_export(
        export=queue_export(ExportOrder(format=format_, collection=collection, pair_set=pairs), user=person)
    )
    if export.state != Export.State.READY or not (Path(export.path) / export.files[0]["name"]).is_file():
        raise RuntimeError(f"the export {format_} was not written: {export.message}")
    return export
