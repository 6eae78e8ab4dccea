"""Delete old traces or collections by a rule; without --run, only show what it would delete."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.disk_space import show_bytes
from apps.accounts.management.spec_arguments import add_arguments, given_options
from apps.exports.retention.retention_plan import MatchingCollection, RetentionRefused, apply_retention, plan_retention
from apps.exports.retention.retention_rule import RetentionRule
from apps.gym.specs import spec_problems
from apps.rollouts.free_pages import return_free_pages
from apps.rollouts.models import CollectionDeletion
from apps.rollouts.steering.collection_deletion import delete_next_collection
from apps.tasks.deletion_jobs import UNFINISHED_DELETIONS

NAMES = {"collections": "--collection"}
WAIT_SECONDS = 0.5


class Command(BaseCommand):
    help = "Delete old traces or collections. Without --run, list the collections to delete and to keep."

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser, RetentionRule, names=NAMES)
        parser.add_argument("--run", action="store_true", help="delete")

    def handle(self, *, run: bool, **options: Any) -> None:
        given = given_options(RetentionRule, options)
        for name, problem in spec_problems(RetentionRule, given).items():
            raise CommandError(f"{NAMES.get(name, '--' + name.replace('_', '-'))}: {problem}")
        rule = RetentionRule(**given)
        try:
            plan = plan_retention(rule)
            deletions = apply_retention(rule) if run else []
        except RetentionRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        for each in plan.kept:
            uses = ", ".join(f"{name}: {count:,}" for name, count in each.uses.items())
            self.stdout.write(f"kept     {_describe(each)}, in use ({uses})")
        if not run:
            for each in plan.deleted:
                self.stdout.write(f"delete   {_describe(each)}")
            self.stdout.write(_total("Would delete", plan.rollouts, plan.events, plan.bytes))
            return
        done = self._carry_out([deletion.pk for deletion in deletions])
        for deletion in done:
            self.stdout.write(f"{deletion.state:8} {deletion.name} {deletion.message}".rstrip())
        while return_free_pages():
            pass
        figures = [(each.deleted, each.deleted_events, each.deleted_bytes) for each in done]
        self.stdout.write(_total("Deleted", *map(sum, zip(*figures, strict=True))) if figures else "Nothing to delete.")
        if any(each.state != CollectionDeletion.State.DONE for each in done):
            raise CommandError("Some deletions failed. Their lines name the reason.")

    def _carry_out(self, ids: list[int]) -> list[CollectionDeletion]:
        """Run the deletions in this process, together with workers, and return them when all have ended."""
        rows = CollectionDeletion.objects.filter(pk__in=ids)
        while rows.filter(state__in=UNFINISHED_DELETIONS).exists():
            if not delete_next_collection():
                time.sleep(WAIT_SECONDS)
        return list(rows.order_by("pk"))


def _describe(each: MatchingCollection) -> str:
    return f"{each.collection.label}: {each.rollouts:,} rollouts, {each.events:,} events, {show_bytes(each.bytes)}"


def _total(verb: str, rollouts: int, events: int, size: int) -> str:
    return f"{verb} data of {rollouts:,} rollouts: {events:,} events, {size:,} bytes"
