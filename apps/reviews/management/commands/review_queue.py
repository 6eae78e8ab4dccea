"""Review in a queue: take an item, keep it, say what one thinks, skip it, take the last one back."""

import argparse
import uuid
from argparse import ArgumentParser
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.management.people import find_person
from apps.accounts.models import User
from apps.accounts.permissions import Permission
from apps.gym.traces.alignment import steps_of
from apps.reviews.management.answer_options import add_answer, read_answer, read_object
from apps.reviews.management.review_lines import printable
from apps.reviews.models import Queue, Review
from apps.reviews.queues.blind_items import read_shown, reveal, tell_shown
from apps.reviews.queues.item_leases import MAX_DRAFT, CannotReview, claim_item, find_held, renew_lease, skip_item
from apps.reviews.reviews.drafts import find_draft_problem, tell_draft
from apps.reviews.reviews.review_answers import AnswerRefused
from apps.reviews.reviews.submission import submit_and_claim, submit_review
from apps.reviews.reviews.undo import undo_review


class Command(BaseCommand):
    help = "Review in a queue as its page does: what the queue hides stands in nothing that this prints."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("queue", type=int, metavar="ID")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        claim = actions.add_parser("next", help="the item that you hold, or the next one, kept for you")
        keep = actions.add_parser("keep", help="the item for as long again, and what is written so far")
        keep.add_argument("--draft", metavar="JSON", help="in the fields of an answer; left out: as it was")
        submit = actions.add_parser("submit", help="say what you think")
        add_answer(submit, first="the first side shown")
        submit.add_argument("--next", action="store_true", help="and take the next item with it")
        submit.add_argument("--token", default="", help="your own: the same one twice counts once")
        skip = actions.add_parser("skip", help="leave the item to others")
        skip.add_argument("--reason", required=True, help="who leads the queue reads it")
        undo = actions.add_parser("undo", help="your last submission or skip, within ten minutes")
        undo.add_argument("--review", type=int, metavar="ID", help="that one or none: twice takes back one")
        for action in (keep, submit, skip):
            action.add_argument("--review", type=int, metavar="ID", help="default: of the item that you hold")
        for action in (claim, keep, submit, skip, undo):
            action.add_argument("--by", required=True, metavar="NAME", help="who reviews")
            # Without a default of its own: that would hide the one that was given before the action.
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as before the action")

    def handle(self, *args: Any, **options: Any) -> None:
        queue = Queue.objects.select_related("rubric").filter(pk=options["queue"]).first()
        if queue is None:
            raise CommandError(f"There is no queue {options['queue']}.")
        try:
            told, words = _act(queue, find_person(options["by"], Permission.REVIEW), options)
        except (CannotReview, AnswerRefused) as refusal:
            raise CommandError(str(refusal)) from refusal
        self.stdout.write(msgspec.json.encode(told).decode() if options["json"] else words)


def _act(queue: Queue, user: User, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    match options["action"]:
        case "next":
            claimed = claim_item(queue=queue, user=user)
            if claimed is None:
                return {"review": None}, "Nothing is left for you here."
            return _show(claimed)
        case "undo":
            return _show(undo_review(queue=queue, user=user, wanted=options["review"]))
        case "keep":
            kept = renew_lease(review=_own(queue, user, options), user=user, draft=_draft(options["draft"]))
            return _tell(kept), f"review {kept.pk} is kept for {user.username} until {kept.leased_until:%H:%M} UTC"
        case "skip":
            skipped = skip_item(review=_own(queue, user, options), user=user, reason=options["reason"])
            return _tell(skipped), f"review {skipped.pk} is skipped"
    return _submit(_own(queue, user, options), user, options)


def _submit(review: Review, user: User, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    token, answer = options["token"] or uuid.uuid4().hex, read_answer(options)
    following: Review | None = None
    if options["next"]:
        said, following = submit_and_claim(review=review, user=user, token=token, answer=answer)
    else:
        said = submit_review(review=review, user=user, token=token, answer=answer)
    behind = reveal(said)
    lines = [f"review {said.pk} is submitted"]
    lines += [f"{each['label']} was rollout {each['rollout']} of {each['model']}: {each['reward']}" for each in behind]
    told, words = (None, "Nothing is left for you here.") if following is None else _show(following)
    more = {"next": told} if options["next"] else {}
    return {**_tell(said), "revealed": behind, **more}, "\n".join([*lines, *([words] if options["next"] else [])])


def _own(queue: Queue, user: User, options: dict[str, Any]) -> Review:
    if options["review"] is None:
        held = find_held(queue, user)
        if held is None:
            raise CommandError(f"{user.username} holds no item of {queue}: take one with next, or name a --review.")
        return held
    mine = Review.objects.filter(queue=queue, reviewer=user, is_adjudication=False).select_related("queue__rubric")
    review = mine.filter(pk=options["review"]).first()
    if review is None:
        raise CommandError(f"{user.username} has no review {options['review']} in {queue}.")
    return review


def _draft(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    draft = read_object("--draft", text)
    if len(text) > MAX_DRAFT:
        raise CommandError(f"A draft has at most {MAX_DRAFT:,} bytes.")
    if problem := find_draft_problem(draft):
        raise CommandError(problem)
    return draft


def _tell(review: Review) -> dict[str, Any]:
    told = {name: getattr(review, name) for name in ("status", "leased_until", "draft")}
    return {"review": review.pk, "queue": review.queue_id, **told}


def _show(review: Review) -> tuple[dict[str, Any], str]:
    """Where the sides are what the queue shows: the rollouts' own numbers stand nowhere."""
    shown = read_shown(review)
    lines = [f"review {review.pk}, yours until {review.leased_until:%H:%M} UTC"]
    if written := tell_draft(review.draft):
        lines += ["", "so far", written]
    if shown.expected is not None:
        lines += ["", "expected", msgspec.json.encode(shown.expected).decode()]
    for side in shown.sides:
        known = [f"reward {side.reward}"] if side.reward is not None else []
        known += [side.model] if side.model else []
        lines += ["", " · ".join([side.label, side.stop_reason, *known])]
        lines += [f"  {' '.join(filter(None, [each.kind, each.name]))}: {each.text}" for each in steps_of(side.events)]
        lines += [f"  … {side.left_out} more"] if side.left_out else []
    return {**_tell(review), "shown": tell_shown(review, shown)}, printable("\n".join(lines))
