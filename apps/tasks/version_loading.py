"""Store the tasks of a file in a version that stays invisible until it is published."""

import hashlib
import math
import time
from collections import Counter
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.disk_space import Place, check_growth, check_space
from apps.gym import process_exit
from apps.gym.resources.own_verifier import ROW_FIELD
from apps.gym.tasks.dataset_metrics import DatasetMetrics
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.files.file_limits import Readable
from apps.gym.tasks.task_rows import MAX_TAGS, read_marks
from apps.tasks.file_tasks import FileTask, FileTasks, fields_needed
from apps.tasks.models import DatasetVersion, Task, Upload, join_tags
from apps.tasks.rejected_rows import Rejects
from apps.tasks.row_matching import Base, BaseTask, Marks, SeenKeys, carry_marks
from apps.tasks.stored_images import Images, copy_references, refer_to_images, replace_images
from apps.tasks.task_splits import choose_split
from apps.tasks.unchanged_rows import copy_rest, measure_rows
from apps.tasks.upload_turns import HEARTBEAT_SECONDS, UploadTakenAway, owned

CHUNK_ROWS = 2000
CHUNK_BYTES = 8 * 1024**2
ROW_BYTES = 600
"""Estimated bytes in the database per task, besides its row: keys, excerpt, indexes."""


class Loader:
    """One pass over the rows of an upload, with one chunk in memory: at most 2,000 rows or about 8 MB.

    Without a version, it only validates and counts.
    """

    def __init__(
        self,
        *,
        upload: Upload,
        version: DatasetVersion | None,
        base: DatasetVersion | None,
        stream: Readable,
        rejects: Rejects,
        seen: SeenKeys,
    ) -> None:
        self._upload, self._version, self._base_version = upload, version, base
        self._upserts = upload.mode == Upload.Mode.UPSERT
        self.rejects, self._seen = rejects, seen
        self.counts: Counter[str] = Counter()
        # Opening the file reads its first block.
        self._last_heartbeat = math.inf
        self.tasks = FileTasks(upload=upload, stream=stream, rejects=rejects, counts=self.counts, on_read=self._beat)
        self._keep_good = upload.on_error == Upload.OnError.SKIP
        self._base = Base(base)
        self._first_new = base.task_count if base else 0
        self._hash = hashlib.sha256()
        self.content_hash = ""
        self.final_newline = True
        self.metrics = DatasetMetrics()
        self._chunk: list[FileTask] = []
        self._needs = fields_needed(upload.dataset.environment)
        self._verifies_here = upload.dataset.environment.verifies_here
        self._lacking: Counter[str] = Counter()
        self._accepted = 0
        self._stored_bytes = 0

    def expected_bytes(self) -> int:
        """Estimate the size of the whole version in bytes, from the rows stored and the share of the file read."""
        share = self.tasks.bytes_read / self._upload.received_bytes if self._upload.received_bytes else 0.0
        return int(self._stored_bytes / max(share, 0.01)) if self._stored_bytes else 0

    def find_refusal(self) -> str:
        """Return why the file is rejected as a whole, or nothing."""
        rejects, lines = self.rejects, self.tasks.lines
        if not lines:
            rejects.first.append({"line": 1, "pointer": "", "code": "empty_file", "message": "the file has no rows"})
            return "The file has no rows."
        if not self._version or not rejects.count or (self._accepted and not self._is_refused):
            return ""
        first = rejects.first[0]
        were = "was" if rejects.count == 1 else "were"
        told = f"{rejects.count:,} of {lines:,} lines {were}" if lines > 1 else "The only line was"
        return f"{told} rejected, so nothing was stored. Line {first['line']}: {first['message']}"

    @property
    def remarks(self) -> str:
        """Return warnings about rows that were loaded."""
        # Only a warning: the tasks may be for another environment, or for human review.
        lacking = [
            f"No {field} in {number:,} of {self._accepted:,} tasks: {self._upload.dataset.environment} cannot verify "
            "those."
            for field, number in sorted(self._lacking.items())
        ]
        return " ".join(filter(None, [*lacking, self.tasks.remarks]))

    def load(self) -> None:
        """Load all rows.

        Raise FileRefused if the file cannot be read to its end, UploadTakenAway if another worker took over, and
        DiskFull.
        """
        held = 0
        self._last_heartbeat = time.monotonic()
        for candidate in self.tasks:
            self._beat()
            if candidate is None:
                continue
            self._chunk.append(candidate)
            held += len(candidate.task.row_json)
            if len(self._chunk) >= CHUNK_ROWS or held >= CHUNK_BYTES:
                self._store_chunk()
                held = 0
        self._store_chunk()
        self.counts["removed"] = self._count_removed()
        if self._upserts and self._base_version and self._version and not self._is_refused and self._accepted:
            copy_references(base=self._base_version, version=self._version)
            copy_rest(base=self._base_version, version=self._version, after_chunk=self._check_and_report)
            self.content_hash, self.metrics = measure_rows(version=self._version, after_chunk=self._check_and_report)
        else:
            self.final_newline = self.tasks.final_newline
            if self._accepted and self.final_newline:
                self._hash.update(b"\n")
            self.content_hash = self._hash.hexdigest()

    @property
    def task_count(self) -> int:
        """Return the number of tasks of the new version."""
        return self._first_new + self.counts["new"] if self._upserts else self._accepted

    def report(self, **ended: Any) -> None:
        """Store the progress, or how the upload `ended`. Raise UploadTakenAway if another worker took over."""
        self._last_heartbeat = time.monotonic()
        ours = owned(self._upload).update(
            lines=self.tasks.lines,
            accepted=self._accepted,
            rejected=self.rejects.count,
            read_bytes=self.tasks.bytes_read,
            counts=dict(self.counts),
            touched_at=timezone.now(),
            **ended,
        )
        if not ours:
            raise UploadTakenAway(f"{self._upload} was cancelled while it was loading")

    @property
    def _is_refused(self) -> bool:
        """Return True if nothing will be stored, because a row was rejected. The rest is still validated."""
        return bool(self.rejects.count) and not self._keep_good

    def _beat(self) -> None:
        """Report every few seconds. Called for each row and each block, because a large file may have few rows."""
        if time.monotonic() - self._last_heartbeat > HEARTBEAT_SECONDS:
            self._check_and_report()

    def _check_and_report(self) -> None:
        process_exit.check()
        # Between chunks and every few seconds: a small compressed file may become a large version.
        check_space(Place.DATABASE)
        self.report()

    def _store_chunk(self) -> None:
        known = self._base.find([(candidate.key, candidate.row_hash) for candidate in self._chunk])
        row_marks = self._previous_marks(known)
        tasks = []
        for candidate in self._chunk:
            before = known.get(candidate.key)
            first_line = self._seen.first_line(candidate.key, candidate.row_hash, candidate.line, before)
            if first_line is not None and not self._handle_duplicate(candidate, first_line):
                continue
            if self._upserts and before and before.count > 1 and not self._is_unchanged(candidate, before):
                message = "the previous version has several tasks with this id, so none can be replaced"
                self._reject(candidate, "ambiguous_id", message)
                continue
            marks = carry_marks(
                candidate.task, before, row_marks=row_marks.get(candidate.key), chosen=self._choose(candidate)
            )
            if len(marks.tags) > MAX_TAGS:
                message = f"has {len(marks.tags)} tags with those that users added, more than {MAX_TAGS}. Remove some"
                self._reject(candidate, "too_many", message)
                continue
            change = "new" if before is None else "unchanged" if before.copies[candidate.row_hash] else "updated"
            index = self._accepted
            if self._upserts:
                index = before.index if before else self._first_new + self.counts["new"]
            if first_line is None:
                self.counts[change] += 1
            else:
                self.counts.update(self._seen.count_later(candidate.key, candidate.row_hash, before))
            fields = self._accept(candidate, marks)
            # Unchanged rows of a merge are copied later, unless the chosen split moves them.
            is_copied_later = before and change == "unchanged" and (before.count > 1 or marks.split == before.split)
            if self._version and not (self._upserts and is_copied_later):
                tasks.append(
                    Task(dataset_id=self._upload.dataset_id, version_id=self._version.pk, index=index, **fields)
                )
        self._chunk = []
        if self._version and tasks and not self._is_refused:
            new_bytes = sum(len(task.row_json) + ROW_BYTES for task in tasks)
            self._stored_bytes += new_bytes
            check_growth(new_bytes)
            images: Images = {}
            for task in tasks:
                task.row_json, found = replace_images(task.row_json)
                images |= found
            with transaction.atomic():
                if images:
                    refer_to_images(self._version, images)
                Task.objects.bulk_create(tasks)
        self._check_and_report()

    def _is_unchanged(self, candidate: FileTask, before: BaseTask) -> bool:
        """Return True if all previous tasks with this key have this row, and no other split was chosen."""
        return before.copies[candidate.row_hash] == before.count and not self._choose(candidate)

    def _handle_duplicate(self, candidate: FileTask, first_line: int) -> bool:
        self.counts["duplicate"] += 1
        if self._upload.on_duplicate == Upload.OnDuplicate.REJECT:
            what = f"the id {candidate.task.external_id}" if candidate.task.external_id else "the same row"
            self._reject(candidate, "duplicate", f"{what} is already in line {first_line:,}")
        return self._upload.on_duplicate == Upload.OnDuplicate.KEEP

    def _reject(self, candidate: FileTask, code: str, message: str) -> None:
        self.tasks.reject(candidate.line, RowRefused(code, message), candidate.task.row_json.encode())

    def _previous_marks(self, known: dict[str, BaseTask]) -> dict[str, Marks]:
        """Return split and tags in the rows of the previous version, for keys that are unique in it."""
        previous: dict[str, Marks] = {}
        places: dict[int, str] = {}
        for candidate in self._chunk:
            before = known.get(candidate.key)
            if before is None or before.count > 1:
                continue
            if before.copies[candidate.row_hash]:
                previous[candidate.key] = Marks(candidate.task.split, candidate.task.tags)
            elif before.split or before.tags or candidate.task.split or candidate.task.tags:
                places[before.index] = candidate.key
            else:
                previous[candidate.key] = Marks("", ())
        for index, row in self._base.rows(places):
            previous[places[index]] = Marks(*read_marks(row))
        return previous

    def _choose(self, candidate: FileTask) -> str:
        """Return the split chosen for rows without one, or an empty string."""
        if self._upload.split or not self._upload.split_ratios:
            return self._upload.split
        return choose_split(key=candidate.key, ratios=self._upload.split_ratios, seed=self._upload.split_seed)

    def _accept(self, candidate: FileTask, marks: Marks) -> dict[str, Any]:
        """Count an accepted row, and return its column values."""
        task = candidate.task
        text = task.row_json.encode()
        self._hash.update(b"\n" + text if self._accepted else text)
        self.metrics.add(task.row, size=len(text), split=marks.split, tags=marks.tags)
        self._accepted += 1
        if not (self._verifies_here and ROW_FIELD in task.row):
            self._lacking.update(self._needs - task.row.keys())
        return {
            "external_id": task.external_id,
            "prompt_excerpt": task.prompt_excerpt,
            "row_json": task.row_json,
            "row_hash": candidate.row_hash,
            "key": candidate.key,
            "split": marks.split,
            "tags_text": join_tags(marks.tags),
            "is_retired": marks.is_retired,
        }

    def _count_removed(self) -> int:
        if self._upserts or self._base_version is None:
            return 0
        return max(0, self._base_version.task_count - self.counts["updated"] - self.counts["unchanged"])
