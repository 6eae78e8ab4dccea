"""Store each image once, and refer to it in stored rows and traces.

A reference takes the place of a data URL only if it can be restored byte for byte, so a row is returned exactly as
uploaded (docs/decisions/0021-images-are-stored-once.md).
"""

import base64
import hashlib
import re
from collections.abc import Iterable

from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, ManyToOneRel, OuterRef

from apps.gym.image_data import DATA_URL, SCHEME, ImageFile, ImageRefused, data_url, read_data_url
from apps.gym.tasks.task_rows import load_row
from apps.gym.traces.items import TaskRow
from apps.tasks.models import DatasetVersion, StoredImage, Task, VersionImage

# Only in fields of images: the same text elsewhere, for example in a reply of a model, is not changed.
_FIELD = r'(?P<field>"(?:image_url|url)"\s*:\s*")'
_DATA_URL_FIELD = re.compile(rf'{_FIELD}(?P<url>{DATA_URL.pattern})"')
_REFERENCE = re.compile(rf'{_FIELD}{SCHEME}(?P<sha256>[0-9a-f]{{64}})"')
_DELETED_AT_ONCE = 100
IMAGE_MARK = '"data:image/'
"""Occurs in every JSON text with an image."""

Images = dict[str, ImageFile]
"""Images by their SHA-256 in hexadecimal."""


def replace_images(text: str) -> tuple[str, Images]:
    """Return JSON text with references in place of its images, and the images. Other data URLs are not changed."""
    found: Images = {}
    if IMAGE_MARK not in text:
        return text, found

    def refer(match: re.Match[str]) -> str:
        try:
            image = read_data_url(match["url"])
        except ImageRefused:
            return match[0]
        if base64.b64encode(image.content).decode() != match["data"]:
            return match[0]
        sha256 = hashlib.sha256(image.content).hexdigest()
        found[sha256] = image
        return f'{match["field"]}{SCHEME}{sha256}"'

    return _DATA_URL_FIELD.sub(refer, text), found


def find_references(text: str) -> set[str]:
    """Return the SHA-256 of each image that JSON text refers to."""
    return {match["sha256"] for match in _REFERENCE.finditer(text)} if f'"{SCHEME}' in text else set()


def with_images(text: str) -> str:
    """Return JSON text with data URLs in place of references. References to unknown images stay."""
    wanted = find_references(text)
    if not wanted:
        return text
    stored = StoredImage.objects.filter(sha256__in=wanted).values_list("sha256", "kind", "content")
    urls = {sha256: data_url(kind, bytes(content)) for sha256, kind, content in stored}

    def restore(match: re.Match[str]) -> str:
        url = urls.get(match["sha256"])
        return f'{match["field"]}{url}"' if url else match[0]

    return _REFERENCE.sub(restore, text)


def read_url(sha256: str) -> str:
    """Return a stored image as a data URL, or an empty text."""
    found = StoredImage.objects.filter(sha256=sha256).values_list("kind", "content").first()
    return data_url(found[0], bytes(found[1])) if found else ""


def full_row(task: Task) -> TaskRow:
    """Return the row with its images, for models, environments, verifiers and trainers."""
    return load_row(with_images(task.row_json))


def store_images(images: Images) -> dict[str, int]:
    """Store new images, and return the id of each one by its SHA-256. Call this in a transaction.

    Known images are locked, so that they are not deleted before the transaction refers to them.
    """
    known = _lock(images)
    new = [
        StoredImage(
            sha256=sha256,
            kind=image.kind,
            width=image.width,
            height=image.height,
            size=len(image.content),
            content=image.content,
        )
        for sha256, image in images.items()
        if sha256 not in known
    ]
    if not new:
        return known
    StoredImage.objects.bulk_create(new, ignore_conflicts=True, batch_size=20)
    return known | _lock(image.sha256 for image in new)


def _lock(wanted: Iterable[str]) -> dict[str, int]:
    rows = StoredImage.objects.filter(sha256__in=list(wanted)).order_by("id").select_for_update(no_key=True)
    return dict(rows.values_list("sha256", "id"))


def refer_to_images(version: DatasetVersion, images: Images) -> None:
    """Store images, and let the version refer to them. Call this in the transaction that adds the tasks."""
    rows = [VersionImage(version=version, image_id=pk) for pk in store_images(images).values()]
    VersionImage.objects.bulk_create(rows, ignore_conflicts=True)


def copy_references(*, base: DatasetVersion, version: DatasetVersion) -> None:
    """Let a version refer to the images of its base, whose tasks it copies."""
    table = connection.ops.quote_name(VersionImage._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} (version_id, image_id) SELECT %s, image_id FROM {table} WHERE version_id = %s "  # noqa: S608
            "ON CONFLICT DO NOTHING",
            [version.pk, base.pk],
        )


def delete_unused_images() -> int:
    """Delete images that no row of any table refers to, and return their number."""
    unused = StoredImage.objects.order_by("id")
    for relation in StoredImage._meta.get_fields(include_hidden=True):
        if isinstance(relation, ManyToOneRel):
            users = relation.related_model._base_manager.filter(**{relation.field.name: OuterRef("pk")})
            unused = unused.filter(~Exists(users))
    deleted = last = 0
    while batch := list(unused.filter(pk__gt=last).values_list("pk", flat=True)[:_DELETED_AT_ONCE]):
        last = batch[-1]
        try:
            with transaction.atomic():
                deleted += unused.filter(pk__in=batch)._raw_delete(using=unused.db)
        except IntegrityError:
            # A concurrent upload or rollout refers to one of them again. The next deletion removes the others.
            continue
    return deleted
