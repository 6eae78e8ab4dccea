"""All rows of a version, as they were uploaded, in flat memory."""

from collections.abc import AsyncIterator

from django.db.models import QuerySet

from apps.tasks.models import DatasetVersion, Task

CHUNK_ROWS = 200


async def read_rows(*, version: DatasetVersion) -> AsyncIterator[bytes]:
    """JSONL, a chunk of lines at a time; a chunk is a query, so that nothing stays open for a slow reader."""
    last = -1
    tasks: QuerySet[Task] = Task.objects.filter(version=version).order_by("index")
    while True:
        rows = [row async for row in tasks.filter(index__gt=last).values_list("index", "row_json")[:CHUNK_ROWS]]
        if not rows:
            return
        last = rows[-1][0]
        yield b"".join(text.encode() + b"\n" for _, text in rows)
