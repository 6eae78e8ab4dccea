"""What people said, told on the command line: as plain data for programs, and in a line for people."""

from typing import Any

from apps.accounts.models import User
from apps.reviews.agreement.decisions import StandingVerdict
from apps.reviews.models import Comment, Flag, Review


def tell_flag(flag: Flag) -> tuple[dict[str, Any], str]:
    told = {
        "flag": flag.pk,
        "rollout": flag.rollout_id,
        "seq": flag.seq,
        "kind": flag.kind,
        "note": flag.note,
        "author": _name(flag.author),
        "at": flag.created_at,
        "withdrawn_at": flag.withdrawn_at,
    }
    end = ", withdrawn" if flag.withdrawn_at else ""
    return told, f"flag {flag.pk}: {flag.kind}{_step(flag.seq)} by {_name(flag.author)}{end}{_note(flag.note)}"


def tell_comment(comment: Comment) -> tuple[dict[str, Any], str]:
    told = {
        "comment": comment.pk,
        "rollout": comment.rollout_id,
        "seq": comment.seq,
        "quote": comment.quote,
        "start": comment.start,
        "parent": comment.parent_id,
        "author": _name(comment.author),
        "text": comment.text,
        "at": comment.created_at,
        "resolved_at": comment.resolved_at,
        "resolved_by": _name(comment.resolved_by),
    }
    answers = f", answers {comment.parent_id}" if comment.parent_id else ""
    end = ", settled" if comment.resolved_at else ""
    words = f"comment {comment.pk}{_step(comment.seq)} by {_name(comment.author)}{answers}{end}{_note(comment.text)}"
    return told, words


def tell_score(review: Review) -> tuple[dict[str, Any], str]:
    told = {
        "review": review.pk,
        "rollout": review.rollout_id,
        "seq": review.seq,
        "rubric": review.rubric.slug if review.rubric else None,
        "scores": review.scores,
        "note": review.note,
        "reviewer": _name(review.reviewer),
        "at": review.submitted_at,
    }
    scores = ", ".join(f"{key} {value}" for key, value in review.scores.items())
    words = f"review {review.pk} by {told['rubric']}{_step(review.seq)} by {told['reviewer']}"
    return told, f"{words}: {printable(scores)}{_note(review.note)}"


def tell_verdict(verdict: StandingVerdict) -> tuple[dict[str, Any], str]:
    sides = ("low", "high", "low_collection", "high_collection")
    names = (*sides, "outcome", "winner", "loser", "strength", "how", "reviewers", "agreeing", "reviews")
    told = {name: getattr(verdict, name) for name in names}
    who = verdict.outcome if verdict.winner is None else f"{verdict.winner} is better"
    over = f" (of collections {verdict.low_collection} and {verdict.high_collection})" if verdict.is_across else ""
    said = f"{who}, {verdict.how}, {verdict.agreeing} of {verdict.reviewers} say so"
    return told, f"{verdict.low} and {verdict.high}{over}: {said}"


def printable(text: str) -> str:
    """What a model wrote may hold the codes that move a terminal's cursor."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)


def _name(user: User | None) -> str | None:
    return user.username if user else None


def _step(seq: int | None) -> str:
    return "" if seq is None else f" at step {seq}"


def _note(text: str) -> str:
    return f": {printable(text)}" if text else ""
