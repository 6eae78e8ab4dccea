"""Import stored rollouts: files of NeMo Gym rows become a dataset version and a completed collection with traces.

Nothing is stored until every line was read; what is stored is invisible to others until it is whole.
"""

import hashlib
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.text import slugify

from apps.accounts.auditing import record
from apps.accounts.models import User
from apps.agents.models import Agent
from apps.gym import leaving
from apps.gym.events import encode_event, event_kind, event_tokens
from apps.gym.items import TaskRow, dump_json
from apps.gym.rolloutfile import (
    ROLLOUT_INDEX,
    TASK_INDEX,
    StoredAttempt,
    check_task,
    line_kind,
    own_task,
    plain_task,
    prompt_texts,
    read_attempt,
    read_object,
)
from apps.gym.storable import clean_line, clean_names
from apps.gym.taskfile import RowRefused, parse_line
from apps.gym.taskfiles.limits import READ_BYTES, BadRow
from apps.gym.taskfiles.lines import LineReader
from apps.gym.voting import MAX_ANSWER, comparable_answer
from apps.policies.models import PolicyModel, Provider
from apps.rollouts.announcing import announce_collection
from apps.rollouts.models import Collection, Rollout, TraceEvent
from apps.rollouts.planning import delete_plan, take_snapshot
from apps.rollouts.running import MAX_MESSAGE, MAX_TOOL_NAME, Tally
from apps.tasks.models import Dataset, DatasetVersion, Upload
from apps.tasks.uploading import upload_file

CHUNK = 200
"""Rollouts a transaction, with all their events."""
MAX_ERRORS = 100
MAX_INDEX = 2**31 - 1
IMPORTED_URL = "http://imported.invalid/v1"
"""The address of a policy model that is known from a file alone. The name resolves nowhere, by its standard."""


@dataclass(frozen=True, slots=True)
class BadLine:
    file: str
    line: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.message}"


class ImportRefused(Exception):
    """Nothing was stored; `errors` are the first bad lines, if that is why, of `count` in all."""

    def __init__(self, message: str, errors: Sequence[BadLine] = (), count: int = 0) -> None:
        super().__init__(message)
        self.errors = list(errors)
        self.count = count or len(self.errors)


@dataclass(frozen=True, slots=True)
class Imported:
    """`created` is False where these files were imported before: the collection is that of then."""

    collection: Collection
    created: bool
    errors: list[BadLine] = field(default_factory=list)
    refused: int = 0


@dataclass(frozen=True, slots=True)
class File:
    """One file to import: `stream` is read more than once, so it can be wound back."""

    name: str
    stream: IO[bytes]


def import_rollouts(
    *,
    dataset: Dataset,
    files: Sequence[File],
    agent: Agent,
    policy_model: PolicyModel | None = None,
    name: str = "",
    on_error: str = "reject",
    user: User | None = None,
) -> Imported:
    """Rollout rows, failures, task rows and materialised inputs, in any order and any files.

    A rollout's task is looked for among the task rows by its index and its prompt; without one, what the rollout row
    keeps of its task is the task. Without a policy model one is made that is named as in the rows.

    Raises ImportRefused.
    """
    keep_good = on_error == Upload.OnError.SKIP
    key = f"import:{_digest(dataset, files, keep_good)}"
    earlier = Collection.objects.filter(idempotency_key=key).first()
    if earlier is not None:
        if earlier.state == Collection.State.PLANNING:
            raise ImportRefused(f"These files are being imported already, as {earlier.label}.")
        return Imported(earlier, created=False)
    # The tasks lie on disk until all lines were read: a row may be megabytes, and there may be a million.
    with tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR) as tasks:
        reading = _Reading(dataset.environment.slug, tasks, keep_good=keep_good)
        reading.read_tasks(files)
        reading.read_rollouts(files)
        reading.check()
        version = reading.store_tasks(dataset, files, user)
        model = policy_model or _model_of(reading.model)
        collection = Collection(
            name=clean_line(name, 200) or f"Imported: {files[0].name}"[:200],
            dataset=dataset,
            version=version,
            environment=dataset.environment,
            agent=agent,
            policy_model=model,
            repeats=max(1, reading.repeats),
            snapshot={
                **take_snapshot(agent, model, dataset.environment, version, {}),
                "imported": {"files": [file.name for file in files], "sha256": key.removeprefix("import:")},
            },
            idempotency_key=key,
            created_by=user,
        )
        _create(collection, rollouts=reading.count)
        try:
            _store_rollouts(collection, version, reading, files)
        except BaseException:
            delete_plan(collection)
            raise
    collection.refresh_from_db()
    announce_collection(collection.pk)
    return Imported(collection, created=True, errors=reading.errors, refused=reading.refused)


def _create(collection: Collection, *, rollouts: int) -> None:
    try:
        with transaction.atomic():
            collection.save()
            target = f"collection {collection.pk}"
            record(user=collection.created_by, action="collection.imported", target=target, rollouts=rollouts)
    except IntegrityError:
        raise ImportRefused("These files are being imported already.") from None


def _digest(dataset: Dataset, files: Sequence[File], keep_good: bool) -> str:
    """SHA-256 of what is imported where: the same again is the same collection."""
    whole = hashlib.sha256(f"{dataset.slug}\n{keep_good}\n".encode())
    for file in files:
        file.stream.seek(0)
        content = hashlib.sha256()
        while block := file.stream.read(READ_BYTES):
            content.update(block)
        whole.update(content.digest())
    return whole.hexdigest()


class _Reading:
    """What the files hold: tasks go to a file on disk, of a rollout stays which task it attempts."""

    def __init__(self, environment: str, tasks: IO[bytes], *, keep_good: bool) -> None:
        self.environment = environment
        self._tasks = tasks
        self.keep_good = keep_good
        self.errors: list[BadLine] = []
        self.refused = 0
        self.count = 0
        self.repeats = 0
        self.model = ""
        self.places: dict[tuple[int, int], tuple[int, int]] = {}
        """(file, line) → (task, repeat)"""
        self._offsets: list[int] = []
        self._by_prompt: dict[str, list[int]] = defaultdict(list)
        self._by_index: dict[int, int] = {}
        self._own: dict[object, int] = {}
        self._lengths: set[int] = set()
        self._taken: dict[int, set[int]] = defaultdict(set)

    # -- first pass: tasks

    def read_tasks(self, files: Sequence[File]) -> None:
        for _, number, file, line in self._lines(files):
            try:
                row = read_object(line)
                if line_kind(row) == "task":
                    self._take_task(row, line)
            except RowRefused as refusal:
                self._refuse(file, number, refusal)

    def _take_task(self, row: dict[str, Any], line: bytes) -> None:
        parse_line(line)
        if ROLLOUT_INDEX not in row:
            self._add_task(row, line)
            return
        # Materialised inputs: one row for each rollout of a task.
        index = row.get(TASK_INDEX)
        if isinstance(index, int) and index in self._by_index:
            return
        task = plain_task(row)
        number = self._add_task(task, dump_json(task).encode())
        if isinstance(index, int):
            self._by_index[index] = number

    def _add_task(self, task: TaskRow, text: bytes) -> int:
        number = len(self._offsets)
        self._tasks.seek(0, 2)
        self._offsets.append(self._tasks.tell())
        self._tasks.write(text + b"\n")
        texts = prompt_texts(task)
        self._lengths.add(len(texts))
        self._by_prompt[_hash(texts)].append(number)
        return number

    # -- second pass: which task each rollout attempts, and whether it can be stored

    def read_rollouts(self, files: Sequence[File]) -> None:
        for place, number, file, line in self._lines(files):
            try:
                row = read_object(line)
            except RowRefused:
                continue  # told in the first pass
            if line_kind(row) == "task":
                continue
            try:
                check_task(own_task(row))
                attempt = read_attempt(row, {}, environment=self.environment)
            except RowRefused as refusal:
                self._refuse(file, number, refusal)
                continue
            task = self._find_task(row, place)
            self.places[place, number] = task, self._repeat(task, row)
            self.count += 1
            self.model = self.model or attempt.model

    def _find_task(self, row: dict[str, Any], place: int) -> int:
        index = row.get(TASK_INDEX)
        if isinstance(index, int) and index in self._by_index:
            return self._by_index[index]
        texts = prompt_texts(row)
        # The whole prompt, else the longest task that it begins with: environments add their first observation.
        for length in sorted((one for one in self._lengths if one <= len(texts)), reverse=True):
            if found := self._by_prompt.get(_hash(texts[:length])):
                return index if isinstance(index, int) and index in found else found[0]
        task = own_task(row)
        key: object = (place, index) if isinstance(index, int) else _hash(dump_json(task))
        if key not in self._own:
            # Not among the prompts: what one row keeps of its task is no task for the others.
            self._tasks.seek(0, 2)
            self._own[key] = len(self._offsets)
            self._offsets.append(self._tasks.tell())
            self._tasks.write(dump_json(task).encode() + b"\n")
        return self._own[key]

    def _repeat(self, task: int, row: dict[str, Any]) -> int:
        wanted, taken = row.get(ROLLOUT_INDEX), self._taken[task]
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= MAX_INDEX or wanted in taken:
            wanted = len(taken)
            while wanted in taken:
                wanted += 1
        taken.add(wanted)
        self.repeats = max(self.repeats, len(taken))
        return wanted

    def check(self) -> None:
        if self.refused and not self.keep_good:
            were = "line was" if self.refused == 1 else "lines were"
            message = f"{self.refused:,} {were} refused, so nothing was stored. {self.errors[0]}"
            raise ImportRefused(message, self.errors, self.refused)
        if not self.count:
            raise ImportRefused(
                "The files hold no rollouts: rows with `response` and `reward`.", self.errors, self.refused
            )

    # -- what was read

    def store_tasks(self, dataset: Dataset, files: Sequence[File], user: User | None) -> DatasetVersion:
        """The tasks as a version of the dataset; the latest one where it holds just these."""
        self._tasks.seek(0)
        latest = dataset.latest_version()
        if latest is not None and latest.content_hash == self._content_hash():
            return latest
        self._tasks.seek(0)
        upload = upload_file(dataset=dataset, stream=self._tasks, filename=files[0].name, user=user)
        if upload.version is None:
            raise ImportRefused(f"The tasks of the rollouts were refused: {upload.message}")
        return upload.version

    def _content_hash(self) -> str:
        whole = hashlib.sha256()
        for _, line in LineReader(self._tasks, max_line_bytes=settings.MAX_LINE_BYTES):
            if isinstance(line, bytes):
                whole.update(parse_line(line).row_json.encode() + b"\n")
        return whole.hexdigest()

    def task(self, number: int) -> TaskRow:
        self._tasks.seek(self._offsets[number])
        return read_object(self._tasks.readline())

    def attempts(self, files: Sequence[File]) -> Iterator[tuple[int, int, StoredAttempt]]:
        """Third pass: (task, repeat, attempt) of every rollout that was taken."""
        for place, number, _, line in self._lines(files):
            if (place, number) in self.places:
                task, repeat = self.places[place, number]
                yield task, repeat, read_attempt(read_object(line), self.task(task), environment=self.environment)

    def _lines(self, files: Sequence[File]) -> Iterator[tuple[int, int, str, bytes]]:
        first = not self.places and not self._offsets and not self.refused
        for place, file in enumerate(files):
            file.stream.seek(0)
            for number, line in LineReader(file.stream, max_line_bytes=settings.MAX_LINE_BYTES):
                leaving.check()
                if isinstance(line, bytes):
                    yield place, number, file.name, line
                elif first:
                    self._refuse(file.name, number, _too_long(line))

    def _refuse(self, file: str, number: int, refusal: RowRefused) -> None:
        self.refused += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(BadLine(file, number, refusal.code, refusal.message))


def _too_long(line: BadRow) -> RowRefused:
    return RowRefused(line.code, line.message)


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode(errors="replace")).hexdigest()


def _model_of(name: str) -> PolicyModel:
    """The policy model of that name, made where there is none: it can be read about, not asked."""
    name = clean_line(name, 100).strip() or "imported"
    known = PolicyModel.objects.filter(model_name=name).order_by("pk").first()
    if known is not None:
        return known
    slug = slugify(name)[:50] or "imported"
    taken = set(PolicyModel.objects.filter(slug__startswith=slug).values_list("slug", flat=True))
    free = next(one for number in range(1, 10_000) if (one := slug if number == 1 else f"{slug}-{number}") not in taken)
    return PolicyModel.objects.create(
        slug=free, name=name, provider=Provider.COMPATIBLE, base_url=IMPORTED_URL, model_name=name
    )


# ── storing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _store_rollouts(collection: Collection, version: DatasetVersion, reading: _Reading, files: Sequence[File]) -> None:
    task_ids = dict(version.tasks.values_list("index", "pk"))
    attempts = reading.attempts(files)
    while chunk := list(islice(attempts, CHUNK)):
        leaving.check()
        _store_chunk(collection, task_ids, chunk)
    Collection.objects.filter(pk=collection.pk, state=Collection.State.PLANNING).update(
        state=Collection.State.COMPLETED, finished_at=timezone.now()
    )


def _store_chunk(
    collection: Collection, task_ids: dict[int, int], chunk: Sequence[tuple[int, int, StoredAttempt]]
) -> None:
    # When they ended, and how long they took, the files do not say.
    now = timezone.now()
    rollouts = [_rollout(collection, task_ids[task], repeat, attempt) for task, repeat, attempt in chunk]
    for rollout in rollouts:
        rollout.finished_at = now
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    failed = sum(rollout.status == Rollout.Status.FAILED for rollout in rollouts)
    with transaction.atomic():
        Rollout.objects.bulk_create(rollouts)
        TraceEvent.objects.bulk_create(
            TraceEvent(
                rollout_id=rollout.pk,
                attempt=1,
                seq=seq,
                kind=event_kind(event),
                payload=encode_event(event),
                tokens=event_tokens(event),
            )
            for rollout, (_, _, attempt) in zip(rollouts, chunk, strict=True)
            for seq, event in enumerate(attempt.events)
        )
        Collection.objects.filter(pk=collection.pk).update(
            total=F("total") + len(rollouts),
            completed=F("completed") + len(rollouts) - failed,
            failed=F("failed") + failed,
            rewarded=F("rewarded") + len(rewards),
            reward_sum=F("reward_sum") + sum(rewards),
            input_tokens=F("input_tokens") + sum(rollout.input_tokens for rollout in rollouts),
            output_tokens=F("output_tokens") + sum(rollout.output_tokens for rollout in rollouts),
            touched_at=now,
        )


def _rollout(collection: Collection, task_id: int, repeat: int, attempt: StoredAttempt) -> Rollout:
    tally = Tally()
    for event in attempt.events:
        tally.add(event)
    verified = tally.verification
    return Rollout(
        collection_id=collection.pk,
        task_id=task_id,
        repeat=repeat,
        status=Rollout.Status.FAILED if attempt.error_kind else Rollout.Status.COMPLETED,
        attempt=1,
        failures=1 if attempt.error_kind else 0,
        model_version=clean_line(attempt.model, 200),
        reward=attempt.reward,
        components=clean_names(attempt.components),
        stop_reason="" if attempt.error_kind else clean_line(attempt.stop_reason, 32),
        error_kind=attempt.error_kind,
        error_message=clean_line(attempt.error_message, MAX_MESSAGE),
        turns=tally.turns,
        tool_calls=tally.tool_calls,
        tool_errors=tally.tool_errors,
        input_tokens=tally.input_tokens,
        output_tokens=tally.output_tokens,
        tools={clean_line(name, MAX_TOOL_NAME): counts for name, counts in tally.tools.items()},
        answer=clean_line(comparable_answer(tally.said, verified.details), MAX_ANSWER) if verified else "",
    )
