"""Plan a collection and wait for it."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

import uvloop
from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.db.models import Count, Max
from django.utils.text import capfirst
from tqdm import tqdm

from apps.accounts.management.spec_arguments import add_arguments, describe_problems, find_row, given_options
from apps.agents.models import Agent
from apps.policies.model_registration import SCRIPTED, register_scripted_model
from apps.rollouts.checks import PROCESS_STARTS, WORKER_STARTS
from apps.rollouts.management.options import read_key, read_seats
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.models import Collection, Rollout, Worker
from apps.rollouts.plans.estimates import estimate_plan
from apps.rollouts.plans.plan_spec import Plan, change_plan, plan_again, plan_rest
from apps.rollouts.plans.planning import PlanConflict, plan_collection
from apps.rollouts.plans.task_selection import NothingToCollect
from apps.rollouts.steering.holds import Holds, explain_pause
from apps.rollouts.steering.local_worker import finish_collection

_NAMES = {"version": "--dataset-version", "policy_model": "--model", "splits": "--split", "tags": "--tag"}


class Command(BaseCommand):
    help = "Plan a rollout collection, wait for it with a progress bar and print its metrics."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_arguments(parser, Plan, names=_NAMES)
        parser.add_argument(
            "--clone", type=int, metavar="ID", help="plan this collection again; other options override its settings"
        )
        parser.add_argument(
            "--idempotency-key",
            type=read_key,
            default=None,
            metavar="KEY",
            help="already planned with this key: waiting for that collection",
        )
        parser.add_argument(
            "--seats", type=read_seats, default=None, help="rollouts in flight if this command runs them"
        )
        parser.add_argument("--estimate", action="store_true", help="print an estimate and plan nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object and no progress bar")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["skip_checks"]:
            # It may run its own worker.
            self.check(tags=[PROCESS_STARTS], include_deployment_checks=True)  # First: others read the tables.
            self.check(tags=[WORKER_STARTS], include_deployment_checks=True)
        try:
            plan = _given_plan(options)
            if options["estimate"]:
                estimate = estimate_plan(plan)
                return self._say({**estimate._asdict(), "version": str(estimate.version)}, as_json=options["json"])
            collection = plan_collection(plan, idempotency_key=options["idempotency_key"])
        except ValidationError as wrong:
            raise CommandError(describe_problems(wrong, Plan)) from wrong
        except (NothingToCollect, PlanConflict) as problem:
            raise CommandError(str(problem)) from problem
        collection = collect_with_bar(collection, seats=options["seats"], quiet=options["json"])
        metrics = measure_collection(collection)
        report = {
            "collection": collection.pk,
            "state": collection.state,
            "rollouts": collection.total,
            "completed": collection.completed,
            "failed": collection.failed,
            "retried": collection.retried,
            "retried_calls": collection.retried_calls,
            "mean_reward": collection.mean_reward,
            "pass_at_1": metrics.pass_at_1,
            "errors": metrics.errors,
        }
        self._say(report, as_json=options["json"])
        if collection.failed:
            self.stderr.write(_explain_failures(collection))
        if collection.state == Collection.State.PAUSED:
            raise CommandError(_explain_pause(collection))
        if collection.failed and not collection.completed:
            raise CommandError("No rollout was completed.")

    def _say(self, report: dict[str, Any], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(report))
            return
        for name, value in report.items():
            self.stdout.write(f"{name:>13}  {value}")


def _given_plan(options: dict[str, Any]) -> Plan:
    """Return the plan: that of the earlier collection, if one is named, changed by the given options."""
    if options.get("policy_model") == SCRIPTED:
        register_scripted_model()
    given = given_options(Plan, options)
    earlier = given.pop("resume_from", None)
    if given.get("only_failed") and earlier is None:
        raise CommandError("--only-failed needs --resume-from.")
    if earlier is not None and options["clone"]:
        raise CommandError("Give either --clone or --resume-from.")
    if earlier is not None:
        return change_plan(plan_rest(earlier), given)
    if options["clone"]:
        return change_plan(plan_again(find_row(Collection, options["clone"])), given)
    for name in ("dataset", "policy_model"):
        if name not in given:
            flag = _NAMES.get(name, f"--{name}")
            raise CommandError(f"Give {flag}, --clone or --resume-from.")
    return Plan(**{"agent": find_row(Agent, "default"), **given})


def collect_with_bar(
    collection: Collection,
    *,
    seats: int | None = None,
    quiet: bool = False,
    watch: Callable[[], None] | None = None,
) -> Collection:
    """Wait for the collection, with a progress bar on standard error unless quiet.

    `watch` is called on every poll; an exception that it raises ends the wait.

    Standard error also reports, once each, open breakers and unhealthy servers, and the workers that run the collection
    if this process does not.
    """
    told: set[str] = set()

    def tell(holds: Holds) -> None:
        for hold in holds:
            if hold.key not in told:
                waits = " Rollouts stay in the queue." if hold.blocks else ""
                tqdm.write(f"{capfirst(str(hold))}.{waits}", file=sys.stderr)
        told.clear()
        told.update(hold.key for hold in holds)

    def name(workers: list[Worker]) -> None:
        tqdm.write(f"Running on {' and '.join(map(_describe, workers))}.", file=sys.stderr)

    with tqdm(total=collection.total, unit="rollout", disable=quiet) as bar:

        def show(seen: Collection) -> None:
            if watch:
                watch()
            bar.update(seen.ended - bar.n)
            if seen.mean_reward is not None:
                bar.set_postfix(reward=f"{seen.mean_reward:.2f}", failed=seen.failed)

        async def wait() -> Collection:
            try:
                return await finish_collection(collection, progress=show, held=tell, left=name, seats=seats)
            finally:
                # Close the connections of the thread in which the loop read the database; they would stay open.
                await sync_to_async(connections.close_all)()

        return uvloop.run(wait())


def _describe(worker: Worker) -> str:
    trouble = f", which cannot claim rollouts: {worker.trouble}" if worker.trouble else ""
    return f"{worker}{trouble}"


def _explain_pause(collection: Collection) -> str:
    return (
        f"{collection.label} is paused after {collection.ended} of {collection.total} rollouts because "
        f"{explain_pause(collection)}.\nFor example: gymweb collections adjust --help; "
        f"gymweb collections resume {collection.pk}"
    )


def _explain_failures(collection: Collection) -> str:
    failed = collection.rollouts.filter(status=Rollout.Status.FAILED)
    kinds = failed.values("error_kind").annotate(number=Count("pk"), example=Max("error_message")).order_by("-number")
    lines = [f"  {kind['number']} × {kind['error_kind']}, for example: {kind['example']}" for kind in kinds]
    return "\n".join([f"{collection.failed} of {collection.total} rollouts failed and have no reward:", *lines])
