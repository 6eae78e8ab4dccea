"""Add, reply to and resolve comments on a rollout, an event of its trace, or a quote."""

from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.gym.request_refusals import Refusal
from apps.policies.redacted_fields import redact_input
from apps.reviews.models import Comment
from apps.rollouts.models import Rollout

MAX_CHARACTERS = 10_000
MAX_QUOTE = 2_000


class CommentRefused(Refusal, code="comment-refused"):
    """Raised if the comment is empty or too long, or refers to an unknown event or quote."""


def add_comment(
    *,
    rollout: Rollout,
    text: str,
    author: User,
    seq: int | None = None,
    quote: str = "",
    start: int | None = None,
    parent: Comment | None = None,
) -> Comment:
    """Store a comment. Credentials in the quote are redacted.

    `seq` is an event of the rollout's latest attempt; `quote` is part of its text, starting at character `start`. A
    reply refers to the same event as its `parent`. Raise CommentRefused.
    """
    text = text.strip()
    if not text:
        raise CommentRefused("A comment needs a text.")
    if len(text) > MAX_CHARACTERS:
        raise CommentRefused(f"A comment has at most {MAX_CHARACTERS:,} characters; this one has {len(text):,}.")
    if len(quote) > MAX_QUOTE:
        raise CommentRefused(f"A quote has at most {MAX_QUOTE:,} characters; this one has {len(quote):,}.")
    if parent is not None:
        parent = _thread(parent, rollout)
        seq, quote, start = parent.seq, "", None
    elif seq is not None and not rollout.events.filter(attempt=rollout.attempt, seq=seq).exists():
        raise CommentRefused(f"The rollout's latest attempt has no event {seq}.")
    if seq is None and (quote or start is not None):
        raise CommentRefused("Give `seq`, the trace event that the quote comes from.")
    with transaction.atomic():
        comment = Comment.objects.create(
            rollout=rollout,
            text=redact_input(text),
            author=author,
            seq=seq,
            quote=redact_input(quote),
            start=start if quote else None,
            parent=parent,
        )
        target = f"rollout {rollout.pk}"
        answers = parent.pk if parent else None
        record(user=author, action="comment.create", target=target, comment=comment.pk, seq=seq, answers=answers)
    return comment


def resolve_comment(*, comment: Comment, user: User, resolved: bool = True) -> Comment:
    """Resolve the thread of this comment, or reopen it."""
    with transaction.atomic():
        first = Comment.objects.select_for_update().get(pk=comment.parent_id or comment.pk)
        if (first.resolved_at is not None) != resolved:
            first.resolved_at, first.resolved_by = (timezone.now(), user) if resolved else (None, None)
            first.save(update_fields=["resolved_at", "resolved_by"])
            action = "comment.resolve" if resolved else "comment.reopen"
            record(user=user, action=action, target=f"rollout {first.rollout_id}", comment=first.pk)
    return first


def _thread(parent: Comment, rollout: Rollout) -> Comment:
    """Return the comment that starts the thread: threads have two levels."""
    if parent.rollout_id != rollout.pk:
        raise CommentRefused("The parent comment is on another rollout.")
    return parent.parent or parent
