"""Say something of a rollout, or of one event of its trace."""

from django.db import transaction

from apps.accounts.auditing import record
from apps.accounts.models import User
from apps.policies.typed_texts import clean_typed
from apps.reviews.models import Comment
from apps.rollouts.models import Rollout

MAX_CHARACTERS = 10_000


class CommentRefused(Exception):
    """The comment is empty, too long, or about an event that the rollout does not have."""


def add_comment(*, rollout: Rollout, text: str, author: User, seq: int | None = None) -> Comment:
    """Store the comment; `seq` is an event of the rollout's latest attempt. Raises CommentRefused.

    Credentials that were quoted in it are taken out, as they are everywhere.
    """
    text = text.strip()
    if not text:
        raise CommentRefused("A comment needs a text.")
    if len(text) > MAX_CHARACTERS:
        raise CommentRefused(f"A comment has at most {MAX_CHARACTERS:,} characters; this one has {len(text):,}.")
    if seq is not None and not rollout.events.filter(attempt=rollout.attempt, seq=seq).exists():
        raise CommentRefused(f"The rollout's latest attempt has no event {seq}.")
    clean = clean_typed(text)
    with transaction.atomic():
        comment = Comment.objects.create(rollout=rollout, text=clean, author=author, seq=seq)
        record(user=author, action="comment.create", target=f"rollout {rollout.pk}", comment=comment.pk, seq=seq)
    return comment
