"""Receive spans over OTLP, and store complete traces as rollouts of a collection that grows.

A trace is complete when its root span has arrived and no span followed for a few seconds, or when it was quiet for
minutes. Late spans are refused by name. The ids of its spans are kept for a week, so that a repeated delivery changes
nothing.
"""

import hashlib
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, NamedTuple

import orjson
from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.disk_space import Place, check_growth, check_space
from apps.accounts.job_declarations import background_job
from apps.accounts.models import User
from apps.agents.models import Agent
from apps.gym.redaction.shortening import cut
from apps.gym.rollout_files.rollout_rows import StoredAttempt, check_task
from apps.gym.rollout_files.shapes.genai_spans import spans_of, why_refused
from apps.gym.rollout_files.shapes.stored_rows import read_line
from apps.gym.storable import clean_line
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.traces.items import dump_json
from apps.rollouts.imports.import_spec import MAX_NAME
from apps.rollouts.imports.rollout_import import find_model, store_attempts
from apps.rollouts.models import Collection, ReceivedSpan, ReceivedTrace, Rollout
from apps.rollouts.notifications import announce_collection
from apps.rollouts.plans.planning import take_snapshot
from apps.tasks.growing_versions import TasksRefused, append_tasks, create_growing_version
from apps.tasks.models import Dataset
from apps.tasks.upload_turns import DatasetIsBusy

logger = logging.getLogger(__name__)

ROOT_SECONDS = 5.0
"""How long a trace with its root span must be quiet."""
QUIET_SECONDS = 600.0
"""How long a trace without its root span must be quiet."""
KEPT_DAYS = 7
AT_ONCE = 100
MAX_TASKS = 10_000
"""Tasks of one collection, because appending reads all of them. After that, a new collection begins."""
SHOWN = 10


class Rejected(NamedTuple):
    """The part of a request that was not stored."""

    spans: int = 0
    message: str = ""


def receive_spans(row: dict[str, Any], *, dataset: Dataset, name: str, user: User | None) -> Rejected:
    """Store the spans of a request until their traces are complete. Return the number of refused spans, with reasons.

    Raises RowRefused if the request is not OTLP, and DiskFull.
    """
    check_space(Place.DATABASE)
    traces = defaultdict[tuple[str, str], list[dict[str, Any]]](list)
    problems: list[str] = []
    for span, resource in spans_of(row):
        if problem := why_refused(span):
            problems.append(problem)
        else:
            service = name or str(resource.get("service.name") or "") or "traces"
            traces[str(span["traceId"]).lower(), clean_line(service, MAX_NAME)].append(span)
    for (trace_id, service), spans in sorted(traces.items()):
        with transaction.atomic():
            problems += _keep(trace_id, spans, dataset=dataset, name=service, user=user)
    if not problems:
        return Rejected()
    more = f" And {len(problems) - SHOWN:,} more." if len(problems) > SHOWN else ""
    told = (f"{problem} (×{count})" if count > 1 else problem for problem, count in Counter(problems).items())
    rejected = Rejected(len(problems), "; ".join(list(told)[:SHOWN]) + "." + more)
    # The Python SDK ignores this part of an answer.
    logger.warning("refused %d spans for dataset %s: %s", rejected.spans, dataset.slug, rejected.message)
    return rejected


def _keep(trace_id: str, spans: list[dict[str, Any]], *, dataset: Dataset, name: str, user: User | None) -> list[str]:
    """Keep the spans of one trace. Return a problem for each refused span."""
    now = timezone.now()
    ReceivedTrace.objects.bulk_create(
        [ReceivedTrace(trace_id=trace_id, dataset=dataset, collection_name=name, created_by=user, changed_at=now)],
        ignore_conflicts=True,
    )
    trace = ReceivedTrace.objects.select_for_update().get(trace_id=trace_id, dataset=dataset)
    by_id = {str(span["spanId"]).lower(): span for span in spans}
    known = set(trace.spans.filter(span_id__in=by_id).values_list("span_id", flat=True))
    new = {span_id: dump_json(span) for span_id, span in by_id.items() if span_id not in known}
    if trace.problem:
        return [f"{trace} was refused: {trace.problem}"] * len(by_id)
    if trace.finished_at is not None:
        where = f"rollout {trace.rollout_id}" if trace.rollout_id else "a rollout that was deleted"
        return [f"span {span_id} arrived after {trace} was stored as {where}" for span_id in new]
    size = trace.size + sum(map(len, new.values()))
    if size > settings.MAX_LINE_BYTES:
        told = f"{trace} has more than {settings.MAX_LINE_BYTES:,} bytes (GYMWEB_MAX_LINE_BYTES)"
        _finish(trace, problem=told)
        return [told] * len(new)
    check_growth(size - trace.size)
    ReceivedSpan.objects.bulk_create(ReceivedSpan(trace=trace, span_id=one, body=body) for one, body in new.items())
    if new:
        trace.size, trace.changed_at = size, now
        trace.has_root = trace.has_root or any(not by_id[one].get("parentSpanId") for one in new)
        trace.save(update_fields=["size", "changed_at", "has_root"])
    return []


def _finish(trace: ReceivedTrace, *, problem: str = "", rollout: Rollout | None = None) -> None:
    trace.problem, trace.rollout, trace.finished_at = problem, rollout, timezone.now()
    trace.save(update_fields=["problem", "rollout", "finished_at"])
    trace.spans.update(body="")
    if problem:
        logger.warning("%s for dataset %s did not become a rollout: %s", trace, trace.dataset_id, trace.problem)


@background_job(waiting=lambda: ReceivedTrace.objects.filter(finished_at__isnull=True))
def store_complete_traces() -> bool:
    """Store complete traces as rollouts, and forget those of last week. Return True if there were any."""
    now = timezone.now()
    ReceivedTrace.objects.filter(finished_at__lt=now - timedelta(days=KEPT_DAYS)).delete()
    quiet = Q(has_root=True, changed_at__lte=now - timedelta(seconds=ROOT_SECONDS)) | Q(
        changed_at__lte=now - timedelta(seconds=QUIET_SECONDS)
    )
    complete = ReceivedTrace.objects.filter(quiet, finished_at__isnull=True)
    found = list(
        complete.order_by("dataset", "created_by", "collection_name", "pk").values_list(
            "dataset", "created_by", "collection_name", "pk"
        )[:AT_ONCE]
    )
    for (dataset, _, _), group in groupby(found, key=lambda row: row[:3]):
        try:
            _store_group(dataset, [pk for *_, pk in group])
        except DatasetIsBusy:
            return False  # The next run tries again.
    return bool(found)


def _store_group(dataset_id: int, keys: Sequence[int]) -> None:
    """Store traces of one dataset, sender and name, in one transaction."""
    changed: set[int] = set()
    with transaction.atomic():
        dataset = Dataset.objects.select_for_update().get(pk=dataset_id)
        traces = ReceivedTrace.objects.select_for_update(of=("self",)).filter(pk__in=keys, finished_at__isnull=True)
        by_model = defaultdict[str, list[tuple[ReceivedTrace, bytes, StoredAttempt]]](list)
        for trace in traces.select_related("created_by").order_by("pk"):
            bodies = trace.spans.order_by("pk").values_list("body", flat=True)
            try:
                task, attempt = _read(bodies, environment=dataset.environment.slug)
            except RowRefused as refusal:
                _finish(trace, problem=refusal.message)
            # Otherwise, one trace would hold back all others of its dataset.
            except Exception as error:
                logger.exception("%s cannot be converted", trace)
                _finish(trace, problem=cut(f"it cannot be converted: {type(error).__name__}: {error}", 300))
            else:
                by_model[attempt.model].append((trace, task, attempt))
        for model, read in by_model.items():
            changed.add(_store(dataset, model, read))
    for pk in changed:
        announce_collection(pk)


def _read(bodies: Iterable[str], *, environment: str) -> tuple[bytes, StoredAttempt]:
    """Return the task and the attempt of a trace, converted as in an import. Raises RowRefused."""
    spans = [orjson.loads(body) for body in bodies]
    given = read_line(orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    check_task(given.task)
    return dump_json(given.task).encode(), given.attempt({}, environment=environment)


def _store(dataset: Dataset, model: str, read: Sequence[tuple[ReceivedTrace, bytes, StoredAttempt]]) -> int:
    """Store attempts of one model. Return the id of their collection."""
    collection = _collection(read[0][0], dataset, model)
    version = collection.version
    try:
        tasks = append_tasks(version, [task for _, task, _ in read])
    except TasksRefused as refused:
        for place, (trace, _, _) in enumerate(read):
            if place in refused.problems:
                _finish(trace, problem=refused.problems[place])
        rest = [one for place, one in enumerate(read) if place not in refused.problems]
        return _store(dataset, model, rest) if rest else collection.pk
    numbers = Rollout.objects.filter(collection=collection, task__in=tasks).order_by()
    last = Counter({task: most + 1 for task, most in numbers.values_list("task").annotate(most=Max("repeat"))})
    chunk = []
    for task, (_, _, attempt) in zip(tasks, read, strict=True):
        chunk.append((task.index, last[task.pk], attempt))
        last[task.pk] += 1
    rollouts = store_attempts(collection, {task.index: task.pk for task in tasks}, chunk)
    for rollout, (trace, _, _) in zip(rollouts, read, strict=True):
        _finish(trace, rollout=rollout)
    collection.snapshot["dataset"]["content_hash"] = version.content_hash
    Collection.objects.filter(pk=collection.pk).update(
        repeats=max(collection.repeats, *last.values()), snapshot=collection.snapshot, finished_at=timezone.now()
    )
    return collection.pk


def _collection(trace: ReceivedTrace, dataset: Dataset, model_name: str) -> Collection:
    """Return the collection for traces of this sender, name and model, with space for more tasks."""
    user = trace.created_by
    named = orjson.dumps([dataset.pk, trace.collection_name, model_name])
    key = f"traces:{hashlib.sha256(named).hexdigest()[:32]}:"
    found = Collection.objects.present().filter(
        idempotency_key__startswith=key, created_by=user, dataset=dataset, traces_deleted_at=None
    )
    open_ones = found.filter(version__task_count__lte=MAX_TASKS - AT_ONCE)
    if (latest := open_ones.select_related("version").order_by("pk").last()) is not None:
        return latest
    version = create_growing_version(dataset, note=f"Received traces: {trace.collection_name}", user=user)
    model, agent = find_model(model_name), Agent.objects.get(slug="default")
    collection = Collection.objects.create(
        name=trace.collection_name,
        dataset=dataset,
        version=version,
        environment=dataset.environment,
        agent=agent,
        policy_model=model,
        solve_threshold=dataset.environment.solve_threshold,
        snapshot={
            **take_snapshot(agent, model, dataset.environment, version, {}),
            "imported": {"files": [], "otlp": trace.collection_name},
        },
        state=Collection.State.COMPLETED,
        finished_at=timezone.now(),
        idempotency_key=f"{key}{uuid.uuid4().hex}",
        created_by=user,
    )
    record(user=user, action="collection.received", target=f"collection {collection.pk}", dataset=dataset.slug)
    return collection
