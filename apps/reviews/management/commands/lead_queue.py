"""Lead a queue: its figures, what people differ on, and the verdicts that settle it."""

import argparse
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.management.people import find_people, find_person
from apps.accounts.models import User
from apps.accounts.permissions import Permission
from apps.gym.pairs.verdicts import CHOICES
from apps.reviews.agreement.adjudication import adjudicate_item
from apps.reviews.agreement.queue_agreement import read_disputed
from apps.reviews.agreement.queue_figures import Figures, read_figures
from apps.reviews.management.answer_options import add_answer, read_answer
from apps.reviews.models import Queue, QueueItem
from apps.reviews.queues.item_leases import CannotReview
from apps.reviews.queues.item_states import State
from apps.reviews.queues.queue_changes import change_queue, close_queue, delete_queue, open_queue
from apps.reviews.queues.queue_filters import narrow_items
from apps.reviews.queues.queue_items import QueueRefused
from apps.reviews.reviews.review_answers import AnswerRefused

_FILTERS = ("state", "reviewer", "verdict", "skipped", "task_number", "text")
_CHANGES = ("name", "instructions", "overlap", "order", "lease_minutes")


class Command(BaseCommand):
    help = "Look at a queue's figures and disagreements, settle one, change the queue, close, open or delete it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("queue", type=int, metavar="ID")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        actions.add_parser("figures", help="progress, pace, and agreement with each other, themselves and rewards")
        items = actions.add_parser("items", help="what it is made of, and how far each is judged")
        items.add_argument("--state", choices=State.values, help="an item may be in several")
        items.add_argument("--reviewer", metavar="NAME", help="of which this person said something or has something")
        items.add_argument("--verdict", choices=list(CHOICES), help="of which somebody, or the reviewer, said this")
        items.add_argument("--skipped", action="store_true", default=None, help="that they skipped, or somebody")
        items.add_argument("--task-number", type=int, metavar="N", help="the task’s place in its version, from 1")
        items.add_argument("--text", help="words of the task")
        actions.add_parser("disputes", help="the items that people differ on and nobody has settled")
        settle = actions.add_parser("settle", help="say what stands of an item; what people said is kept")
        settle.add_argument("item", type=int, help="its number, as disputes tells it")
        add_answer(settle, first="its first rollout")
        change = actions.add_parser("change", help="its name, instructions, overlap, order, lease time or reviewers")
        change.add_argument("--name")
        change.add_argument("--instructions")
        change.add_argument("--overlap", type=int, help="people who judge each item")
        change.add_argument("--order", choices=Queue.Order.values)
        change.add_argument("--lease-minutes", type=int)
        who = change.add_mutually_exclusive_group()
        who.add_argument("--reviewer", action="append", metavar="NAME", help="in place of those so far")
        who.add_argument("--any-reviewer", action="store_true", help="any annotator from now on")
        close = actions.add_parser("close", help="give out no more items")
        opened = actions.add_parser("open", help="give out items again")
        delete = actions.add_parser("delete", help="with its items, while nobody has submitted anything")
        for action in (settle, change, close, opened, delete):
            action.add_argument("--by", required=True, metavar="NAME", help="who says so")
        for action in actions.choices.values():
            # Without a default of its own: that would hide the one that was given before the action.
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as before the action")

    def handle(self, *args: Any, **options: Any) -> None:
        queue = Queue.objects.select_related("rubric").filter(pk=options["queue"]).first()
        if queue is None:
            raise CommandError(f"There is no queue {options['queue']}.")
        try:
            told, words = self._act(queue, options)
        except (QueueRefused, CannotReview, AnswerRefused) as refusal:
            raise CommandError(str(refusal)) from refusal
        except ValidationError as wrong:
            raise CommandError("; ".join(wrong.messages)) from wrong
        self.stdout.write(msgspec.json.encode(told).decode() if options["json"] else words)

    def _act(self, queue: Queue, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        match options["action"]:
            case "figures":
                figures = read_figures(queue)
                return msgspec.structs.asdict(figures), _tell_figures(queue, figures)
            case "items" | "disputes":
                return _tell_items(queue, options)
            case "settle":
                return self._settle(queue, options)
            case "change":
                changed = change_queue(
                    queue=queue,
                    changes={name: options[name] for name in _CHANGES if options[name] is not None},
                    reviewers=_reviewers(options),
                    user=find_person(options["by"], Permission.LEAD),
                )
                return {"queue": changed.pk, **{name: getattr(changed, name) for name in _CHANGES}}, f"{changed}"
            case "delete":
                delete_queue(queue=queue, user=find_person(options["by"], Permission.LEAD))
                return {"deleted": options["queue"]}, f"{queue} is deleted"
        turn = close_queue if options["action"] == "close" else open_queue
        turned = turn(queue=queue, user=find_person(options["by"], Permission.LEAD))
        return {"queue": turned.pk, "is_open": turned.is_open}, f"{turned} is {'open' if turned.is_open else 'closed'}"

    def _settle(self, queue: Queue, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        item = queue.items.filter(pk=options["item"]).first()
        if item is None:
            raise CommandError(f"{queue} has no item {options['item']}.")
        answer = read_answer(options)
        review = adjudicate_item(item=item, user=find_person(options["by"], Permission.LEAD), answer=answer)
        return {"review": review.pk, "item": item.pk}, f"item {item.pk} is settled by review {review.pk}"


def _tell_figures(queue: Queue, figures: Figures) -> str:
    progress = figures.progress
    lines = [
        f"{queue}: {progress.finished} of {progress.items} items finished, {progress.reviews} of {progress.wanted} "
        f"reviews, {progress.disputed} disputed, {progress.adjudicated} settled"
    ]
    for who in figures.reviewers:
        pace = "" if who.seconds is None else f", {who.seconds:.0f} s each"
        alike = f", {who.consistent} of {who.repeated} repeats alike" if who.repeated else ""
        lines.append(f"{who.username}: {who.submitted} submitted, {who.skipped} skipped{pace}{alike}")
    for each in figures.agreement:
        numbers = {"the same": each.percent, "Cohen’s κ": each.kappa, "α": each.nominal, "α, ordered": each.scale}
        said = ", ".join(f"{name} {_number(value)}" for name, value in numbers.items())
        lines.append(f"{each.name}, judged by two or more: {each.units}; {said}")
        differed = ", ".join(f"{one} and {other} {number}" for one, other, number in each.differences)
        lines += [f"{each.name}, where two differ: {differed}"] if differed else []
    lines += [
        f"with {against.name}: {against.same} of {against.compared} the same, r {_number(against.correlation)}"
        for against in (*figures.against_rewards, *figures.against_lengths)
    ]
    return "\n".join(lines)


def _tell_items(queue: Queue, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    found: Iterable[QueueItem]
    if options["action"] == "disputes":
        name, found, none = "disputed", read_disputed(queue), "Nobody disagrees, or nobody has judged the same twice."
    else:
        passing = narrow_items(queue.items.order_by("pk"), {name: options[name] for name in _FILTERS})
        name, found, none = "items", passing.prefetch_related("entries"), "No item passes."
    rows = [_tell_item(item) for item in found]
    return {name: rows}, "\n".join(map(_describe_item, rows)) or none


def _tell_item(item: QueueItem) -> dict[str, Any]:
    rollouts = [each.rollout_id for each in item.entries.all()]
    told = {name: getattr(item, name) for name in ("doubt", "is_repeated", "is_adjudicated")}
    return {"item": item.pk, "task": item.task_id, "rollouts": rollouts, "reviews": item.done, **told}


def _describe_item(told: dict[str, Any]) -> str:
    settled = ", settled" if told["is_adjudicated"] else ""
    twice = ", comes twice" if told["is_repeated"] else ""
    differs = f", {told['doubt']:.0%} differ" if told["doubt"] and told["reviews"] > 1 else ""
    return f"item {told['item']}: rollouts {told['rollouts']}, {told['reviews']} reviews{differs}{twice}{settled}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _reviewers(options: dict[str, Any]) -> list[User] | None:
    if options["any_reviewer"]:
        return []
    if options["reviewer"] is None:
        return None
    return find_people(options["reviewer"])
