"""Count a collection in blocks of tasks, and count only changed blocks again.

A change of rollouts marks their tasks in the same transaction. A block without marks is exact. Marked blocks are
counted from the rows when figures are read, and a background job replaces them.
"""

import contextlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

import msgspec
import zstandard
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.job_declarations import background_job
from apps.gym import process_exit
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.task_ranges import TaskRange
from apps.rollouts.metrics.whole_parts import CollectionPart, read_whole_part
from apps.rollouts.models import LAST_SPAN, SPAN_BITS, Collection, FigureBlock, FigureMark

BLOCK_ROLLOUTS = 8_192
"""Approximate rollouts per block. Counting one takes 40 ms on PostgreSQL."""
BLOCKS_AT_ONCE = 8
"""Maximum new blocks per run of the background job."""
SETTLED_SECONDS = 20.0
"""Age of a mark after which its block is counted again. Running rollouts change the same blocks for a while."""
_CLAIM_EXPIRES = timedelta(minutes=5)
_VERSION = b"\x04"  # increase it if the meaning of a count changes
_LEVEL = 1


class Spans(NamedTuple):
    """A range of spans, `first` to `last`, with its counts if they are up to date."""

    first: int
    last: int
    content: bytes = b""


def read_whole_parts(collection: Collection) -> list[CollectionPart]:
    """Return counts that together cover the collection. Call it within `consistent_reads`."""
    blocks = FigureBlock.objects.filter(collection=collection).order_by("first")
    marks = FigureMark.objects.filter(collection=collection).order_by("span").distinct()
    marked = list(marks.values_list("span", flat=True))
    spans = [
        Spans(first, last, b"" if _is_marked(marked, first, last) else bytes(content))
        for first, last, content in blocks.values_list("first", "last", "content")
    ]
    return [
        _decode(each.content)
        if each.content.startswith(_VERSION)
        else read_whole_part(TaskRange.of_spans(collection.pk, each.first, each.last))
        for each in _joined(spans or [Spans(0, LAST_SPAN)])
    ]


def _is_marked(marked: Sequence[int], first: int, last: int) -> bool:
    place = bisect_left(marked, first)
    return place < len(marked) and marked[place] <= last


def _joined(spans: Iterable[Spans]) -> Iterator[Spans]:
    """Yield the ranges, with adjacent ones that must be counted merged."""
    for is_counted, group in groupby(spans, key=lambda each: each.content.startswith(_VERSION)):
        found = list(group)
        yield from found if is_counted else [Spans(found[0].first, found[-1].last)]


def _encode(part: CollectionPart) -> bytes:
    return _VERSION + zstandard.ZstdCompressor(level=_LEVEL).compress(msgspec.msgpack.encode(part))


def _decode(content: bytes) -> CollectionPart:
    plain = zstandard.ZstdDecompressor().decompress(content[len(_VERSION) :])
    return msgspec.msgpack.decode(plain, type=CollectionPart)


@background_job(thread="figures", waiting=FigureMark.objects.all, every=5.0)
def count_marked_blocks() -> bool:
    """Background job: recount one block with settled marks. Return True if there was one."""
    settled = timezone.now() - timedelta(seconds=SETTLED_SECONDS)
    block = _claim(settled)
    if block is None:
        return False
    with consistent_reads():
        marks = FigureMark.objects.filter(collection=block.collection_id, span__range=(block.first, block.last))
        seen = dict(marks.values_list("pk", "span"))
        counted = list(_count(block))
    # The collection may have been deleted meanwhile.
    with contextlib.suppress(IntegrityError):
        _replace(block, counted, seen, settled)
    return True


def _claim(settled: datetime) -> FigureBlock | None:
    """Claim a block with settled marks, if any. New collections have a single block."""
    marks = FigureMark.objects.filter(marked_at__lte=settled, collection__is_being_deleted=False)
    now = timezone.now()
    free = Q(claimed_at__isnull=True) | Q(claimed_at__lt=now - _CLAIM_EXPIRES)
    for mark in marks.exclude(collection__state=Collection.State.PLANNING).order_by("pk")[:20]:
        FigureBlock.objects.get_or_create(collection_id=mark.collection_id, first=0, defaults={"last": LAST_SPAN})
        around = FigureBlock.objects.filter(free, collection=mark.collection_id, first__lte=mark.span)
        block = around.filter(last__gte=mark.span).defer("content").first()
        if block and FigureBlock.objects.filter(free, pk=block.pk).update(claimed_at=now):
            return block
    return None


def _count(block: FigureBlock) -> Iterator[FigureBlock]:
    """Yield the new blocks that replace this one: one, or several if it has grown too large.

    If there are too many to count at once, the last one has no content.
    """
    first = block.first
    for _ in range(BLOCKS_AT_ONCE):
        last = _find_end(block.collection_id, first, block.last)
        part = read_whole_part(TaskRange.of_spans(block.collection_id, first, last))
        yield FigureBlock(collection_id=block.collection_id, first=first, last=last, content=_encode(part))
        process_exit.check()
        first = last + 1
        if first > block.last:
            return
    yield FigureBlock(collection_id=block.collection_id, first=first, last=block.last)


def _find_end(collection_id: int, first: int, last: int) -> int:
    """Return the last span of a block that starts at span `first`."""
    rollouts = TaskRange.of_spans(collection_id, first, last).rollouts()
    ids = rollouts.order_by("task").values_list("task", flat=True)
    if not ids[2 * BLOCK_ROLLOUTS : 2 * BLOCK_ROLLOUTS + 1]:
        return last
    cut = ids[BLOCK_ROLLOUTS] >> SPAN_BITS
    # At least one span, even if it has more rollouts than a block should.
    return max(cut - 1, ids[0] >> SPAN_BITS)


def _replace(block: FigureBlock, counted: Sequence[FigureBlock], seen: dict[int, int], settled: datetime) -> None:
    """Store the new blocks and delete the marks that they include, unless another worker replaced the block."""
    *_, end = counted
    done = [pk for pk, span in seen.items() if end.content or span < end.first]
    with transaction.atomic():
        if not FigureBlock.objects.filter(pk=block.pk).delete()[0]:
            return
        FigureBlock.objects.bulk_create(counted)
        for start in range(0, len(done), 1_000):
            FigureMark.objects.filter(pk__in=done[start : start + 1_000]).delete()
        if not end.content:
            FigureMark.objects.create(collection_id=end.collection_id, span=end.last, marked_at=settled)
