"""Store rows sent with a request as a dataset version for their environment."""

import hashlib
import io
import json
from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts.models import User
from apps.environments.models import Environment
from apps.gym.redaction.shortening import cut
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.mappings.shapes import find_shape
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.file_tasks import parsed_sample, row_parser, take_sample
from apps.tasks.models import Dataset, DatasetVersion, Upload
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_jobs import upload_file
from apps.tasks.upload_turns import ANSWER_SECONDS

SLUG = "online-"
SLUG_CHARS = 64
SHOWN = 100
"""Maximum retired rows listed in an error message."""


class RowsRefused(Exception):
    """Raised for invalid rows. `errors` has the index of each row, from 0, and the position in it."""

    def __init__(self, message: str, errors: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.errors = errors


def accept_rows(*, environment: Environment, rows: Sequence[Any], user: User | None = None) -> DatasetVersion:
    """Return a version with these rows in this order. Equal rows reuse the existing version.

    Raise RowsRefused for invalid or retired rows, and DatasetIsBusy.
    """
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    dataset = _dataset_of(environment, user)
    version = _known_version(dataset, lines) or _load(dataset, lines, user)
    _refuse_retired(version)
    return version


def _load(dataset: Dataset, lines: Sequence[bytes], user: User | None) -> DatasetVersion:
    choices = Choices(on_error=Upload.OnError.REJECT, on_duplicate=Upload.OnDuplicate.KEEP)
    stream = io.BytesIO(b"\n".join(lines) + b"\n")
    given: dict[str, Any] = {
        "stream": stream,
        "filename": "rows.jsonl",
        "choices": choices,
        "user": user,
        "samples_gold": False,
    }
    upload = upload_file(dataset=dataset, patience=ANSWER_SECONDS, **given)
    if upload.state != Upload.State.READY or upload.version is None:
        raise RowsRefused(upload.message, [{**error, "row": error.get("line", 1) - 1} for error in upload.errors])
    return upload.version


def _refuse_retired(version: DatasetVersion) -> None:
    """Raise RowsRefused for retired tasks, instead of silently running fewer tasks."""
    retired = version.tasks.filter(is_retired=True).order_by("index").values_list("index", "pk")
    if not retired:
        return
    errors = [
        {"row": index, "pointer": "", "code": "retired", "message": f"This row is task {pk}, which is retired."}
        for index, pk in retired
    ]
    rows = (
        "1 of these rows is a retired task" if len(errors) == 1 else f"{len(errors):,} of these rows are retired tasks"
    )
    raise RowsRefused(f"{rows} of {version}: remove them, or restore the tasks.", errors[:SHOWN])


def _dataset_of(environment: Environment, user: User | None) -> Dataset:
    """Return the dataset for rows sent with requests to this environment.

    It is separate from uploaded datasets, so that their latest version does not change.
    """
    slug = f"{SLUG}{environment.slug}"
    if len(slug) > SLUG_CHARS:
        slug = slug[: SLUG_CHARS - 9] + "-" + hashlib.sha256(slug.encode()).hexdigest()[:8]
    found = Dataset.objects.filter(slug=slug).first()
    if found is None:
        try:
            with transaction.atomic():
                return create_dataset(
                    slug=slug,
                    name=cut(f"Online: {environment.name}", 100),
                    environment=environment,
                    description="Rows sent with rollout requests.",
                    user=user,
                )
        except IntegrityError:
            found = Dataset.objects.get(slug=slug)
    if found.environment_id != environment.pk:
        message = f"The dataset {slug} belongs to another environment, but rows for {environment.slug} need this slug."
        raise RowsRefused(message, [])
    return found


def _known_version(dataset: Dataset, lines: Sequence[bytes]) -> DatasetVersion | None:
    """Return the version that has exactly these tasks, or None."""
    digest = hashlib.sha256()
    sample = take_sample(iter(enumerate(lines)))
    _, mapping = find_shape(parsed_sample([line for _, line in sample]))
    parse = row_parser(mapping)
    try:
        for line in lines:
            digest.update(parse(line).row_json.encode() + b"\n")
    except RowRefused:
        # Loading reports the errors.
        return None
    ready = dataset.versions.filter(state=DatasetVersion.State.READY, content_hash=digest.hexdigest())
    return ready.order_by("number").first()
