"""Say something of one rollout: a flag, scores by a rubric, a comment; and read what people said of it."""

import argparse
from argparse import ArgumentParser
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.management.people import find_person
from apps.accounts.permissions import Permission
from apps.reviews.comments.commenting import CommentRefused, add_comment, resolve_comment
from apps.reviews.management.answer_options import read_object
from apps.reviews.management.review_lines import tell_comment, tell_flag, tell_score
from apps.reviews.models import Comment, Flag, Review, Rubric
from apps.reviews.queues.item_leases import CannotReview
from apps.reviews.reviews.flags import FlagRefused, raise_flag, withdraw_flag
from apps.reviews.reviews.review_answers import AnswerRefused
from apps.reviews.reviews.submission import score_rollout
from apps.rollouts.models import Rollout


class Command(BaseCommand):
    help = "Flag, score or comment on a rollout, take that back or settle it, or show what people said of it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("rollout", type=int, metavar="ID")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        actions.add_parser("show", help="its flags, scores and comments; override_reward shows its rewards")
        flag = actions.add_parser("flag", help="what is wrong with it, in a word that can be counted")
        flag.add_argument("kind", choices=Flag.Kind.values)
        flag.add_argument("--note", default="")
        withdraw = actions.add_parser("withdraw-flag", help="it stays as history")
        withdraw.add_argument("number", type=int, metavar="FLAG")
        score = actions.add_parser("score", help="by a rubric; your last scores count")
        score.add_argument("rubric", metavar="SLUG")
        score.add_argument("--scores", metavar="JSON", required=True, help="by the key of the criterion")
        score.add_argument("--note", default="")
        score.add_argument("--token", default="", help="your own: the same one twice counts once")
        comment = actions.add_parser("comment", help="say something of it")
        comment.add_argument("text")
        comment.add_argument("--quote", default="", help="words of the step that it is about")
        comment.add_argument("--start", type=int, metavar="N", help="the character of the step's text they begin at")
        comment.add_argument("--answers", type=int, metavar="COMMENT")
        for action in (flag, score, comment):
            action.add_argument("--step", type=int, metavar="SEQ", help="of this event of its latest attempt")
        settle = actions.add_parser("settle", help="the thread of a comment")
        reopen = actions.add_parser("reopen", help="the thread of a comment")
        for action in (settle, reopen):
            action.add_argument("number", type=int, metavar="COMMENT")
        for action in (flag, withdraw, score, comment, settle, reopen):
            action.add_argument("--by", required=True, metavar="NAME", help="who says so")
        for action in actions.choices.values():
            # Without a default of its own: that would hide the one that was given before the action.
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as before the action")

    def handle(self, *args: Any, **options: Any) -> None:
        present = Rollout.objects.filter(collection__is_being_deleted=False)
        rollout = present.filter(pk=options["rollout"]).first()
        if rollout is None:
            raise CommandError(f"There is no rollout {options['rollout']}.")
        try:
            told, words = _show(rollout) if options["action"] == "show" else _act(rollout, options)
        except (FlagRefused, CommentRefused, AnswerRefused, CannotReview) as refusal:
            raise CommandError(str(refusal)) from refusal
        self.stdout.write(msgspec.json.encode(told).decode() if options["json"] else words)


def _act(rollout: Rollout, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    match options["action"]:
        case "flag":
            author = find_person(options["by"], Permission.COMMENT)
            flag = raise_flag(
                rollout=rollout, kind=options["kind"], author=author, seq=options["step"], note=options["note"]
            )
            return tell_flag(flag)
        case "withdraw-flag":
            user = find_person(options["by"], Permission.COMMENT)
            return tell_flag(withdraw_flag(flag=_find(Flag, rollout, options["number"]), user=user))
        case "score":
            return _score(rollout, options)
        case "comment":
            parent = _find(Comment, rollout, options["answers"]) if options["answers"] is not None else None
            comment = add_comment(
                rollout=rollout,
                text=options["text"],
                author=find_person(options["by"], Permission.COMMENT),
                seq=options["step"],
                quote=options["quote"],
                start=options["start"],
                parent=parent,
            )
            return tell_comment(comment)
    comment, user = _find(Comment, rollout, options["number"]), find_person(options["by"], Permission.COMMENT)
    return tell_comment(resolve_comment(comment=comment, user=user, resolved=options["action"] == "settle"))


def _score(rollout: Rollout, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    rubric = Rubric.objects.filter(slug=options["rubric"]).first()
    if rubric is None:
        raise CommandError(f"There is no rubric {options['rubric']}.")
    review = score_rollout(
        rollout=rollout,
        rubric=rubric,
        scores=read_object("--scores", options["scores"]),
        reviewer=find_person(options["by"], Permission.COMMENT),
        seq=options["step"],
        note=options["note"],
        token=options["token"],
    )
    return tell_score(review)


def _find(model: type[Any], rollout: Rollout, number: int) -> Any:
    found = model.objects.filter(rollout=rollout, pk=number).first()
    if found is None:
        raise CommandError(f"Rollout {rollout.pk} has no {model.__name__.lower()} {number}.")
    return found


def _show(rollout: Rollout) -> tuple[dict[str, Any], str]:
    scores = Review.objects.filter(rollout=rollout, repeat_of__isnull=True).submitted().exclude(scores={})
    found = {
        "flags": map(tell_flag, Flag.objects.filter(rollout=rollout).select_related("author")),
        "scores": map(tell_score, scores.select_related("reviewer", "rubric").order_by("pk")),
        "comments": map(tell_comment, Comment.objects.filter(rollout=rollout).select_related("author", "resolved_by")),
    }
    rows = {name: list(said) for name, said in found.items()}
    lines = [words for said in rows.values() for _, words in said]
    told = {"rollout": rollout.pk, **{name: [each for each, _ in said] for name, said in rows.items()}}
    return told, "\n".join(lines) or f"Nobody has said anything of rollout {rollout.pk}."
