"""Put collections that have ended out of sight, and bring them back: nothing of them changes."""

from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.rollouts.models import Collection
from apps.rollouts.steering.controls import CannotSteer


def archive_collection(*, collection: Collection, user: User | None = None) -> Collection:
    """Lists leave it out from now on. Archiving twice is once. Raises CannotSteer for one that goes on."""
    with transaction.atomic():
        collection = Collection.objects.select_for_update().get(pk=collection.pk)
        if not collection.is_finished:
            raise CannotSteer(f"{collection.label} is {collection.state}: only what has ended can be archived.")
        if not collection.is_archived:
            collection.archived_at = timezone.now()
            collection.save(update_fields=["archived_at"])
            record(user=user, action="collection.archived", target=f"collection {collection.pk}")
    return collection


def restore_collection(*, collection: Collection, user: User | None = None) -> Collection:
    """Lists show it again. Restoring twice is once."""
    with transaction.atomic():
        collection = Collection.objects.select_for_update().get(pk=collection.pk)
        if collection.is_archived:
            collection.archived_at = None
            collection.save(update_fields=["archived_at"])
            record(user=user, action="collection.restored", target=f"collection {collection.pk}")
    return collection
