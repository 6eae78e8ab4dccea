"""References to stored images in traces. The images of a collection's traces are kept as long as the collection."""

from collections.abc import Mapping, Sequence

from apps.rollouts.models import Rollout, TraceImage
from apps.tasks.stored_images import IMAGE_MARK, Images, replace_images, store_images

EventRow = tuple[int, int, int, str, str, bytes | None]
"""(rollout id, attempt, seq, kind, payload, packed tokens)"""


def take_event_images(events: Sequence[EventRow]) -> tuple[Sequence[EventRow], dict[int, Images]]:
    """Return the events with references in place of images, and the images by rollout id."""
    if not [row for row in events if IMAGE_MARK in row[4]]:
        return events, {}
    found: dict[int, Images] = {}
    taken: list[EventRow] = []
    for rollout_id, attempt, seq, kind, payload, tokens in events:
        text, images = replace_images(payload)
        taken.append((rollout_id, attempt, seq, kind, text, tokens))
        if images:
            found.setdefault(rollout_id, {}).update(images)
    return taken, found


def store_event_images(found: Mapping[int, Images]) -> None:
    """Store the images of events that are stored in the same transaction."""
    if not found:
        return
    ids = store_images({sha256: image for images in found.values() for sha256, image in images.items()})
    collections = dict(Rollout.objects.filter(pk__in=found).values_list("pk", "collection"))
    uses = {(collections[rollout_id], ids[sha256]) for rollout_id, images in found.items() for sha256 in images}
    TraceImage.objects.bulk_create(
        (TraceImage(collection_id=collection, image_id=image) for collection, image in sorted(uses)),
        ignore_conflicts=True,
    )
