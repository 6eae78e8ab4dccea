"""`manage.py reverify --collection ID`: verify stored rollouts again, tell what would change, and apply it if asked."""

import time
from argparse import ArgumentParser
from typing import Any, get_args

import msgspec
from django.core.management.base import BaseCommand, CommandError

from apps.gym.loop.agent_loop import StopReason
from apps.rollouts.models import Collection, Reverification
from apps.rollouts.reverification.ownership import requeue_quiet
from apps.rollouts.reverification.rescoring import FAILED_BY_VERIFIER
from apps.rollouts.reverification.reverification_jobs import (
    ReverifyRefused,
    apply_reverification,
    finish_reverification,
    queue_reverification,
)
from apps.rollouts.reverification.reward_changes import Comparison, compare_rewards

SHOWN = 20
WAIT_SECONDS = 0.5


class Command(BaseCommand):
    help = "Verify stored rollouts again, without inference: tells what would change, and changes it with --apply."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--collection", type=int, required=True, metavar="ID")
        parser.add_argument("--judge-failures", action="store_true", help="only what failed with judge_error")
        parser.add_argument("--min-reward", type=float, metavar="R")
        parser.add_argument("--max-reward", type=float, metavar="R")
        parser.add_argument("--stop-reason", choices=get_args(StopReason))
        parser.add_argument("--error-kind", choices=FAILED_BY_VERIFIER)
        parser.add_argument("--replay", action="store_true", help="make the recorded tool calls again first")
        parser.add_argument("--force", action="store_true", help="even where the verifier may need the attempt's state")
        parser.add_argument("--apply", action="store_true", help="give the rollouts their new rewards")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, **options: Any) -> None:
        collection = Collection.objects.present().select_related("environment").filter(pk=options["collection"]).first()
        if collection is None:
            raise CommandError(f"There is no collection {options['collection']}.")
        names = ("judge_failures", "min_reward", "max_reward", "stop_reason", "error_kind")
        filters = {name: options[name] for name in names if options[name] not in (None, False)}
        try:
            queued = queue_reverification(
                collection=collection, filters=filters, force=options["force"], replay=options["replay"]
            )
        except ReverifyRefused as refusal:
            raise CommandError(str(refusal)) from None
        done = _finish(queued)
        if options["apply"] and done.state == Reverification.State.READY:
            done = _finish(apply_reverification(reverification=done))
        comparison = compare_rewards(done)
        if options["json"]:
            report = {"reverification": done.pk, "state": done.state, "applied": done.applied, "stale": done.stale}
            self.stdout.write(msgspec.json.encode({**report, **msgspec.structs.asdict(comparison)}).decode())
        else:
            self._tell(done, comparison)
        if done.state == Reverification.State.FAILED:
            raise CommandError(done.message)

    def _tell(self, done: Reverification, comparison: Comparison) -> None:
        self.stdout.write(
            f"{done}: {comparison.verified:,} verified, {comparison.changed:,} changed "
            f"({comparison.better:,} better, {comparison.worse:,} worse, {comparison.newly_rewarded:,} had no reward), "
            f"{comparison.failed:,} not verified"
        )
        if comparison.old_mean is not None and comparison.new_mean is not None:
            self.stdout.write(f"  mean reward {comparison.old_mean:.4g} → {comparison.new_mean:.4g}")
        for reward in done.rewards.filter(changed=True).order_by("id")[:SHOWN]:
            self.stdout.write(f"  {reward}")
        if comparison.changed > SHOWN:
            self.stdout.write(f"  … and {comparison.changed - SHOWN:,} more")
        for kind, number in comparison.errors.items():
            example = done.rewards.filter(error_kind=kind).values_list("error_message", flat=True).first()
            self.stderr.write(f"  {number:,} × {kind}, such as: {example}")
        if done.state == Reverification.State.APPLIED:
            left = f"; {done.stale:,} had changed meanwhile" if done.stale else ""
            self.stdout.write(f"  applied to {done.applied:,} rollouts{left}")
        elif done.changed:
            self.stdout.write("  nothing is changed yet: --apply does")


def _finish(reverification: Reverification) -> Reverification:
    """Do it here, or wait for the worker that was faster."""
    while not finish_reverification(reverification=reverification).is_settled:
        time.sleep(WAIT_SECONDS)
        requeue_quiet()
    return reverification
