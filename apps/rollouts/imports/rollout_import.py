"""Import stored rollouts, trajectories or sessions of other programs as a dataset version and a completed collection.

Nothing is stored before all lines are read. Stored rows are invisible until the import is complete.
"""

import hashlib
import json
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import msgspec
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.text import slugify

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.gym import process_exit
from apps.gym.metrics.majority_at_k import MAX_ANSWER
from apps.gym.redaction.redactor import Redactor
from apps.gym.redaction.shortening import cut_clean
from apps.gym.rollout_files.originals import without_tokens
from apps.gym.rollout_files.rollout_rows import StoredAttempt
from apps.gym.rollout_files.stored_calls import count_without_usage
from apps.gym.slugs import RESERVED_SLUGS
from apps.gym.storable import clean_line, clean_names
from apps.gym.tasks.files.file_limits import READ_BYTES
from apps.gym.traces.events import SessionOpened, event_kind
from apps.policies.installation_redactor import fresh_redactor
from apps.policies.models import PolicyModel, Provider
from apps.rollouts.engine.running import MAX_MESSAGE, MAX_TOOL_NAME, RolloutStats
from apps.rollouts.engine.trace_redaction import add_counts, clean_event
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.imports.import_spec import MAX_NAME, ImportOrder
from apps.rollouts.imports.task_matching import BadLine, File, ImportRefused, StoredFiles
from apps.rollouts.models import Collection, Rollout, TraceEvent
from apps.rollouts.notifications import announce_collection
from apps.rollouts.plans.planning import delete_plan, take_snapshot
from apps.rollouts.search.word_index import mark_unindexed
from apps.rollouts.trace_images import store_event_images, take_event_images
from apps.tasks.models import DatasetVersion, Upload

CHUNK = 200
"""Rollouts per transaction, with all their events."""
IMPORTED_URL = "http://imported.invalid/v1"
"""Address of a policy model that is known only from a file. The `.invalid` domain never resolves (RFC 2606)."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import.

    `created` is False if the same files were imported before; then `collection` is the existing one. `superseded`
    counts failures of rollouts that were attempted again. `renumbered` counts rollouts whose number was already used
    for the same task, for example because a file was given twice. `repeated` counts lines that are identical to an
    earlier line of their file; they are left out.
    """

    collection: Collection
    created: bool
    refused: int = 0
    superseded: int = 0
    renumbered: int = 0
    repeated: int = 0
    errors: list[BadLine] = field(default_factory=list)


def import_rollouts(order: ImportOrder, *, files: Sequence[File], user: User | None = None) -> Imported:
    """Import stored rollouts as a collection.

    Accepts rollout rows, failures, task rows and materialised inputs of NeMo Gym, results of `verifiers`, or chat logs,
    in any order. `format` overrides the detection by keys.

    The task of a rollout is found among the task rows by its index and prompt. If there is none, the task is restored
    from the rollout row. Without a policy model, one is created with the name in the rows.

    Raise ImportRefused if a line cannot be imported.
    """
    keep_good = order.on_error == Upload.OnError.SKIP
    order = replace(order, name=clean_line(order.name, MAX_NAME))
    key = f"import:{_digest(order, files, keep_good)}"
    earlier = Collection.objects.filter(idempotency_key=key).first()
    if earlier is not None:
        if earlier.state == Collection.State.PLANNING:
            raise ImportRefused(f"These files are already being imported as {earlier.label}.")
        return Imported(earlier, created=False)
    with tempfile.TemporaryDirectory(dir=settings.FILE_UPLOAD_TEMP_DIR, prefix="import-") as folder:
        reading = StoredFiles(order.dataset.environment.slug, Path(folder), wanted=order.format, keep_good=keep_good)
        with closing(reading):
            collection = _read_and_store(reading, order, files, key=key, user=user)
    collection.refresh_from_db()
    announce_collection(collection.pk)
    return Imported(
        collection,
        created=True,
        errors=reading.errors,
        refused=reading.refused,
        superseded=reading.superseded,
        renumbered=reading.index.renumbered,
        repeated=reading.repeated,
    )


def _read_and_store(
    reading: StoredFiles, order: ImportOrder, files: Sequence[File], *, key: str, user: User | None
) -> Collection:
    reading.read_tasks(files)
    reading.read_rollouts(files)
    reading.check()
    version = reading.store_tasks(order.dataset, files, user)
    model = order.policy_model or find_model(reading.model)
    collection = Collection(
        name=order.name or cut_clean(f"Imported: {files[0].name}", MAX_NAME),
        dataset=order.dataset,
        version=version,
        environment=order.dataset.environment,
        agent=order.agent,
        policy_model=model,
        repeats=max(1, reading.index.largest_group()),
        solve_threshold=order.dataset.environment.solve_threshold,
        snapshot={
            **take_snapshot(order.agent, model, order.dataset.environment, version, {}),
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
    return collection


def _create(collection: Collection, *, rollouts: int) -> None:
    try:
        with transaction.atomic():
            collection.save()
            target = f"collection {collection.pk}"
            record(user=collection.created_by, action="collection.imported", target=target, rollouts=rollouts)
    except IntegrityError:
        raise ImportRefused("These files are already being imported.") from None


def _digest(order: ImportOrder, files: Sequence[File], keep_good: bool) -> str:
    """Return the SHA-256 of files and options. Importing the same again returns the same collection."""
    model = order.policy_model.pk if order.policy_model else None
    # Encoded as JSON, so that a line break in a name cannot make different options equal.
    chosen = [order.dataset.slug, keep_good, order.format, order.agent.pk, model, order.name]
    whole = hashlib.sha256(json.dumps(chosen).encode())
    for file in files:
        file.stream.seek(0)
        content = hashlib.sha256()
        while block := file.stream.read(READ_BYTES):
            content.update(block)
        whole.update(content.digest())
    return whole.hexdigest()


def find_model(name: str) -> PolicyModel:
    """Return the policy model with this name, or create one that cannot be called."""
    # Redact before truncating: half a credential would not be recognised.
    name = clean_line(fresh_redactor().redact_text(name)[0], 100).strip() or "imported"
    known = PolicyModel.objects.filter(model_name=name).order_by("pk").first()
    if known is not None:
        return known
    slug = slugify(name)[:50] or "imported"
    taken = RESERVED_SLUGS | set(PolicyModel.objects.filter(slug__startswith=slug).values_list("slug", flat=True))
    free = next(one for number in range(1, 10_000) if (one := slug if number == 1 else f"{slug}-{number}") not in taken)
    return PolicyModel.objects.create(
        slug=free, name=name, provider=Provider.COMPATIBLE, base_url=IMPORTED_URL, model_name=name
    )


def _store_rollouts(
    collection: Collection, version: DatasetVersion, reading: StoredFiles, files: Sequence[File]
) -> None:
    attempts = reading.attempts(files)
    while chunk := list(islice(attempts, CHUNK)):
        process_exit.check()
        indexes = {task for task, _, _ in chunk}
        task_ids = dict(version.tasks.filter(index__in=indexes).values_list("index", "pk"))
        store_attempts(collection, task_ids, chunk)
    Collection.objects.filter(pk=collection.pk, state=Collection.State.PLANNING).update(
        state=Collection.State.COMPLETED, finished_at=timezone.now()
    )


def store_attempts(
    collection: Collection, task_ids: dict[int, int], chunk: Sequence[tuple[int, int, StoredAttempt]]
) -> list[Rollout]:
    """Store attempts with their events. The chunk has task index, repeat and attempt of each. Return the rollouts."""
    # The files have neither end times nor durations.
    now = timezone.now()
    redactor = fresh_redactor()
    rollouts, traces = [], []
    for task, repeat, attempt in chunk:
        rollout = _rollout(collection, task_ids[task], repeat, attempt, redactor)
        rollout.finished_at = now
        rollouts.append(rollout)
        traces.append(_clean_trace(rollout, attempt, redactor))
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    failed = sum(rollout.status == Rollout.Status.FAILED for rollout in rollouts)
    with transaction.atomic():
        Rollout.objects.bulk_create(rollouts)
        events, images = take_event_images(
            [
                (rollout.pk, 1, seq, *event)
                for rollout, trace in zip(rollouts, traces, strict=True)
                for seq, event in enumerate(trace)
            ]
        )
        store_event_images(images)
        TraceEvent.objects.bulk_create(
            TraceEvent(rollout_id=pk, attempt=attempt, seq=seq, kind=kind, payload=payload, tokens=tokens)
            for pk, attempt, seq, kind, payload, tokens in events
        )
        mark_unindexed([rollout.pk for rollout in rollouts])
        mark_changed((collection.pk, rollout.task_id) for rollout in rollouts)
        Collection.objects.filter(pk=collection.pk).update(
            total=F("total") + len(rollouts),
            completed=F("completed") + len(rollouts) - failed,
            failed=F("failed") + failed,
            rewarded=F("rewarded") + len(rewards),
            reward_sum=F("reward_sum") + sum(rewards),
            input_tokens=F("input_tokens") + sum(rollout.input_tokens for rollout in rollouts),
            output_tokens=F("output_tokens") + sum(rollout.output_tokens for rollout in rollouts),
            calls_without_usage=F("calls_without_usage") + sum(rollout.calls_without_usage for rollout in rollouts),
            touched_at=now,
        )
    return rollouts


def _clean_trace(rollout: Rollout, attempt: StoredAttempt, redactor: Redactor) -> list[tuple[str, str, bytes | None]]:
    """Return kind, payload and tokens of each event. Adds the redacted credentials to the rollout's counts."""
    trace = []
    counts: dict[str, int] | None = rollout.redactions
    for event in attempt.events:
        payload, tokens, counts = clean_event(event, redactor, counts)
        trace.append((event_kind(event), payload, tokens))
    opened = attempt.events[0]
    if counts and isinstance(opened, SessionOpened) and opened.original:
        bare = msgspec.structs.replace(opened, original=without_tokens(opened.original))
        trace[0] = (event_kind(bare), *clean_event(bare, redactor, None)[:2])
    rollout.redactions = counts or {}
    rollout.flagged = bool(counts)
    return trace


def _rollout(collection: Collection, task_id: int, repeat: int, attempt: StoredAttempt, redactor: Redactor) -> Rollout:
    tally = RolloutStats()
    for event in attempt.events:
        tally.add(event)
    outcome = tally.outcome()
    message, found = redactor.redact_text(attempt.error_message)
    answer, also_found = redactor.redact_text(outcome.get("answer", ""))
    version, _ = redactor.redact_text(attempt.model)
    tools, _ = redactor.redact_value(dict(tally.tools))
    components, _ = redactor.redact_value(dict(attempt.components))
    return Rollout(
        collection_id=collection.pk,
        task_id=task_id,
        repeat=repeat,
        status=Rollout.Status.FAILED if attempt.error_kind else Rollout.Status.COMPLETED,
        attempt=1,
        failures=1 if attempt.error_kind else 0,
        model_version=clean_line(version, 200),
        reward=attempt.reward,
        masked=outcome.get("masked", ""),
        notices=outcome.get("notices", ""),
        components=clean_names(components),
        stop_reason="" if attempt.error_kind else clean_line(attempt.stop_reason, 32),
        error_kind=attempt.error_kind,
        error_message=clean_line(message, MAX_MESSAGE),
        **tally.counts(),
        input_tokens=tally.input_tokens,
        output_tokens=tally.output_tokens,
        calls_without_usage=count_without_usage(attempt.events),
        tools={clean_line(name, MAX_TOOL_NAME): counts for name, counts in tools.items()},
        answer=clean_line(answer, MAX_ANSWER),
        # The text of an answer or message is also in the events and is counted there.
        redactions={} if attempt.events else add_counts(found, also_found),
    )
