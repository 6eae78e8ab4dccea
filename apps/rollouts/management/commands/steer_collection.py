"""Steer a collection that is planned or runs."""

import argparse
import json
from argparse import ArgumentParser
from typing import Any, get_args

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.management.spec_arguments import add_arguments, describe_problems, given_options
from apps.gym.errors import ErrorKind
from apps.gym.loop.agent_loop import StopReason
from apps.rollouts.models import Collection
from apps.rollouts.plans.plan_spec import Limits
from apps.rollouts.steering.archiving import archive_collection, restore_collection
from apps.rollouts.steering.collection_deletion import queue_collection_deletion
from apps.rollouts.steering.controls import (
    CannotSteer,
    adjust_collection,
    cancel_collection,
    pause_collection,
    resume_collection,
    retry_failed,
)
from apps.rollouts.steering.flag_resolution import resolve_flags
from apps.rollouts.steering.holds import explain_missing_worker, explain_pause, find_holds
from apps.rollouts.steering.rollout_deletion import ENDED, RemovalRefused, queue_rollout_deletion
from apps.tasks.dataset_deletion import AlreadyBeingDeleted, StillInUse


class Command(BaseCommand):
    help = (
        "Look at a collection, pause, resume or cancel it, retry what failed, change its limits, archive or delete it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("collection", type=int, metavar="ID")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        actions.add_parser("show", help="say how far it is and what holds it back")
        actions.add_parser("pause", help="claim no more of it; what runs goes on to its end")
        actions.add_parser("resume", help="claim of it again; a limit that is reached has to be raised first")
        actions.add_parser("cancel", help="cancel what is queued at once, and what runs within two seconds")
        retry = actions.add_parser("retry", help="queue the failed rollouts again")
        retry.add_argument(
            "--error-kind",
            action="append",
            choices=get_args(ErrorKind),
            help="only those that failed with this; may be given several times",
        )
        actions.add_parser("resolve-flags", help="say that somebody has looked at the credentials that were redacted")
        actions.add_parser("archive", help="leave it out of lists, once it has ended")
        actions.add_parser("restore", help="show it in lists again")
        actions.add_parser("delete", help="a worker deletes it with its rollouts and traces; it has to have ended")
        rid = actions.add_parser(
            "delete-rollouts", help="a worker deletes those that pass; the collection has to have ended"
        )
        rid.add_argument(
            "--rollout", type=int, action="append", metavar="ID", help="this one; may be given several times"
        )
        rid.add_argument("--status", choices=[str(one) for one in ENDED])
        rid.add_argument("--error-kind", choices=get_args(ErrorKind))
        rid.add_argument("--stop-reason", choices=get_args(StopReason))
        rid.add_argument("--min-reward", type=float, metavar="R")
        rid.add_argument("--max-reward", type=float, metavar="R")
        rid.add_argument("--flagged", action="store_true", default=None, help="those with credentials, not looked at")
        adjust = actions.add_parser("adjust", help="change its priority, concurrency and limits")
        add_arguments(adjust, Limits)
        for action in actions.choices.values():
            # Without a default of its own: that would hide the one that was given before the action.
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as before the action")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            collection = Collection.objects.present().get(pk=options["collection"])
        except Collection.DoesNotExist:
            raise CommandError(f"There is no collection {options['collection']}.") from None
        try:
            said = self._act(collection, options)
        except (CannotSteer, StillInUse, AlreadyBeingDeleted, RemovalRefused) as refusal:
            raise CommandError(str(refusal)) from refusal
        except ValidationError as wrong:
            raise CommandError(describe_problems(wrong, Limits)) from wrong
        collection = Collection.objects.select_related("policy_model", "environment").get(pk=collection.pk)
        self.stdout.write(json.dumps(_report(collection, said)) if options["json"] else _describe(collection, said))

    def _act(self, collection: Collection, options: dict[str, Any]) -> dict[str, Any]:
        """What the action has to say besides the collection as it then stands."""
        said: dict[str, Any] = {}
        match options["action"]:
            case "pause":
                pause_collection(collection=collection)
            case "resume":
                resume_collection(collection=collection)
            case "cancel":
                cancel_collection(collection=collection)
            case "resolve-flags":
                said["resolved"] = resolve_flags(collection=collection)
            case "archive":
                said["archived"] = archive_collection(collection=collection).is_archived
            case "restore":
                said["archived"] = restore_collection(collection=collection).is_archived
            case "delete":
                said["deletion"] = queue_collection_deletion(collection=collection).pk
            case "delete-rollouts":
                names = ("status", "error_kind", "stop_reason", "min_reward", "max_reward", "flagged")
                chosen = {"ids": options["rollout"], **{name: options[name] for name in names}}
                given = {name: value for name, value in chosen.items() if value is not None}
                said["deletion"] = queue_rollout_deletion(collection=collection, chosen=given).pk
            case "retry":
                said["queued"] = retry_failed(collection=collection, error_kinds=options["error_kind"] or [])
            case "adjust":
                limits = given_options(Limits, options)
                if not limits:
                    raise CommandError("Say what to change, such as --max-tokens 2000000.")
                adjust_collection(collection=collection, changes=limits)
                return limits
        return said


def _report(collection: Collection, said: dict[str, Any]) -> dict[str, Any]:
    return {
        "collection": collection.pk,
        "state": collection.state,
        "pause_reason": collection.pause_reason,
        "total": collection.total,
        "completed": collection.completed,
        "failed": collection.failed,
        "cancelled": collection.cancelled,
        "retried": collection.retried,
        "held_back_by": [str(hold) for hold in find_holds(collection)],
        **said,
    }


def _describe(collection: Collection, said: dict[str, Any]) -> str:
    lines = [f"{collection.label} is {collection.state}: {collection.ended} of {collection.total} rollouts have ended."]
    if pause := explain_pause(collection):
        lines.append(f"It is paused, since {pause}.")
    lines += [f"Held back by {hold}." if hold.blocks else f"{hold}." for hold in find_holds(collection)]
    if collection.state == Collection.State.RUNNING and (missing := explain_missing_worker(collection)):
        lines.append(f"{missing}.")
    if "queued" in said:
        queued = said.pop("queued")
        lines.append(f"{queued} failed rollout{' was' if queued == 1 else 's were'} queued again.")
    lines += [f"{name} = {'none' if value is None else value}" for name, value in said.items()]
    return "\n".join(lines)
