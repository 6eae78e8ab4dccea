"""Plan a collection: dataset × agent × policy model × repeats → queued rollouts."""

import hashlib
import math
import zlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

import orjson
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F, Model
from django.utils import timezone

from apps.accounts.models import User
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.gym import leaving
from apps.gym.sampling import find_sampling_problems
from apps.policies.models import PolicyModel
from apps.rollouts.announcing import ring_doorbell
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.queueing import Planned, insert_rollouts
from apps.tasks.models import Dataset, DatasetVersion

CHUNK = 2_000
"""Rows a transaction: larger ones would hold up the heartbeat on SQLite."""
MAX_INTEGER = 2**31 - 1
QUIET = timedelta(minutes=5)
"""A plan that has not grown for so long has lost its planner."""
QUIET_TO_ASK_AGAIN = timedelta(seconds=60)
"""The same where somebody asks for the plan again, with its key: they are likely to know."""


class PlanConflict(Exception):
    """The idempotency key belongs to another plan, or to another person's."""


class NothingToCollect(Exception):
    """The plan has no rollouts: the dataset has no ready version, or no task is left."""


def plan_collection(
    *,
    dataset: Dataset,
    agent: Agent,
    policy_model: PolicyModel,
    repeats: int = 1,
    limit: int | None = None,
    seed: int = 0,
    sampling: dict[str, Any] | None = None,
    name: str = "",
    priority: int = 0,
    concurrency: int | None = None,
    rollout_timeout: float = 1800.0,
    max_attempts: int = 2,
    max_seconds: int | None = 7 * 86_400,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    user: User | None = None,
    idempotency_key: str | None = None,
    version: DatasetVersion | None = None,
    task_ids: Sequence[int] | None = None,
    asked: str | None = None,
) -> Collection:
    """Make the collection and its queued rollouts, and ring the workers.

    `version` is the latest where it is left out; `task_ids` are those of its tasks to attempt, all by default. Planning
    the same again with the same idempotency key gives the collection that exists; `asked` is the digest of what was
    asked for, where the caller knows it better. Raises NothingToCollect, and PlanConflict for a key that stands for
    something else, and ValidationError for sampling or limits that cannot be.
    """
    plan: dict[str, Any] = {
        "dataset": dataset,
        "agent": agent,
        "policy_model": policy_model,
        "repeats": repeats,
        "limit": limit,
        "seed": seed,
        "sampling": sampling or {},
        "priority": priority,
        "concurrency": concurrency,
        "rollout_timeout": rollout_timeout,
        "max_attempts": max_attempts,
        "max_seconds": max_seconds,
        "max_tokens": max_tokens,
        "max_cost": max_cost,
        "created_by": user,
    }
    _check(plan)
    digest = asked or _digest(plan, name)
    if earlier := find_planned(idempotency_key, digest):
        return earlier
    version = version or dataset.latest_version()
    if version is None:
        raise NothingToCollect(f"Dataset {dataset.slug} has no version yet: upload tasks first.")
    chosen = version.tasks.active().order_by("index").values_list("pk", "index")
    if task_ids is not None:
        chosen = chosen.filter(pk__in=task_ids)
    chosen = chosen[: limit or version.task_count]
    if repeats < 1 or not chosen.exists():
        raise NothingToCollect(f"{version} × {repeats} repeats holds no rollout.")
    environment = dataset.environment
    collection = Collection(
        name=name or f"{dataset.name} × {policy_model.name}",
        version=version,
        environment=environment,
        snapshot=take_snapshot(agent, policy_model, environment, version, sampling or {}),
        idempotency_key=idempotency_key or None,
        plan_digest=digest,
        **plan,
    )
    try:
        with transaction.atomic():
            collection.save()
    except IntegrityError:
        if earlier := find_planned(idempotency_key, digest):
            return earlier
        raise
    rows = (
        Planned(task_id, repeat, rollout_seed(seed, index, repeat))
        for task_id, index in chosen.iterator(chunk_size=CHUNK)
        for repeat in range(repeats)
    )
    try:
        for chunk in _chunks(rows):
            _queue(collection, chunk)
    except BaseException:
        delete_plan(collection)
        raise
    planned = Collection.objects.filter(pk=collection.pk, state=Collection.State.PLANNING)
    planned.update(state=Collection.State.RUNNING)
    transaction.on_commit(ring_doorbell)
    collection.refresh_from_db()
    return collection


LIMITS = ("concurrency", "rollout_timeout", "max_attempts", "max_seconds", "max_tokens", "max_cost", "priority")
"""What a collection's owner may set, at its planning and while it runs."""


def check_limits(limits: dict[str, Any]) -> None:
    """Raises ValidationError by field for a limit that cannot be."""
    _check_range(limits)
    given = Collection(**{name: value for name, value in limits.items() if name in LIMITS})
    others = [field.name for field in Collection._meta.fields if field.name not in limits or field.name not in LIMITS]
    given.clean_fields(exclude=others)


def _check_range(limits: dict[str, Any]) -> None:
    """What a field's own validators let through and the engine cannot count with."""
    errors = {}
    for name in ("concurrency", "max_seconds"):
        if (limits.get(name) or 0) > MAX_INTEGER:
            errors[name] = [f"Ensure this value is less than or equal to {MAX_INTEGER}."]
    for name in ("max_cost", "rollout_timeout"):
        if not math.isfinite(limits.get(name) or 0):
            errors[name] = ["Give a finite number."]
    if errors:
        raise ValidationError(errors)


def _check(plan: dict[str, Any]) -> None:
    errors: dict[str, Any] = {}
    if problems := find_sampling_problems(plan["sampling"]):
        errors["sampling"] = problems
    wanted = {plan["policy_model"].worker_group, plan["dataset"].environment.worker_group} - {""}
    if len(wanted) > 1:
        groups = " and ".join(sorted(wanted))
        errors["policy_model"] = [
            f"No worker may run this: the model and the environment belong to different worker groups ({groups})."
        ]
    try:
        check_limits(plan)
    except ValidationError as wrong:
        errors |= wrong.update_error_dict({})
    if errors:
        raise ValidationError(errors)


def sweep_plans() -> bool:
    """Delete one plan whose planner died half-way; True when there was one. A chore of the workers."""
    quiet_since = timezone.now() - QUIET
    dead = Collection.objects.filter(state=Collection.State.PLANNING, touched_at__lt=quiet_since).first()
    if dead is None:
        return False
    delete_plan(dead)
    return True


def delete_plan(collection: Collection) -> None:
    """Delete a collection none of whose rollouts was ever claimed, in chunks as it was made."""
    while ids := list(collection.rollouts.values_list("pk", flat=True)[:CHUNK]):
        Rollout.objects.filter(pk__in=ids).delete()
        leaving.check()
    collection.delete()


def _queue(collection: Collection, chunk: list[Planned]) -> None:
    """Store a chunk and count it; once the collection is cancelled, chunks are cancelled from the start."""
    with transaction.atomic():
        state = Collection.objects.select_for_update().values_list("state", flat=True).get(pk=collection.pk)
        cancelled = state == Collection.State.CANCELLED
        status = Rollout.Status.CANCELLED if cancelled else Rollout.Status.QUEUED
        insert_rollouts(collection_id=collection.pk, status=status.value, chunk=chunk)
        made = len(chunk)
        Collection.objects.filter(pk=collection.pk).update(
            total=F("total") + made, cancelled=F("cancelled") + (made if cancelled else 0), touched_at=timezone.now()
        )


def find_planned(idempotency_key: str | None, digest: str) -> Collection | None:
    """The collection that stands for the key. A plan whose planner died is deleted, so that it can be made anew."""
    earlier = Collection.objects.filter(idempotency_key=idempotency_key).first() if idempotency_key else None
    if earlier is None:
        return None
    if earlier.plan_digest and earlier.plan_digest != digest:
        raise PlanConflict(f"The idempotency key {idempotency_key!r} was used for another plan: choose a new one.")
    if earlier.state != Collection.State.PLANNING:
        return earlier
    if earlier.touched_at < timezone.now() - QUIET_TO_ASK_AGAIN:
        delete_plan(earlier)
        return None
    return earlier


def _digest(plan: dict[str, Any], name: str) -> str:
    """Of what was asked for. The collection's own fields cannot tell: its limits may be changed while it runs."""
    asked = {field: value.pk if isinstance(value, Model) else value for field, value in plan.items()}
    return hashlib.sha256(orjson.dumps({**asked, "name": name}, option=orjson.OPT_SORT_KEYS)).hexdigest()


def rollout_seed(seed: int, index: int, repeat: int) -> int:
    """A 31-bit seed that depends on the collection's seed, the task's position and the repeat alone."""
    return zlib.crc32(f"{seed}:{index}:{repeat}".encode()) & 0x7FFFFFFF


def take_snapshot(
    agent: Agent,
    policy_model: PolicyModel,
    environment: Environment,
    version: DatasetVersion,
    sampling: dict[str, Any],
) -> dict[str, Any]:
    """Everything that decides how the rollouts go, as it stands now; secrets are not part of it."""
    return {
        "dataset": {"slug": version.dataset.slug, "version": version.number, "content_hash": version.content_hash},
        "agent": {
            "slug": agent.slug,
            "system_prompt": agent.system_prompt,
            "examples": agent.examples,
            "max_steps": agent.max_steps,
            "time_limit": agent.time_limit,
            "token_limit": agent.token_limit,
            "parallel_tool_calls": agent.parallel_tool_calls,
        },
        "policy_model": {
            "slug": policy_model.slug,
            "provider": policy_model.provider,
            "wire": policy_model.wire,
            "base_url": policy_model.base_url,
            "model_name": policy_model.model_name,
        },
        "environment": {
            "slug": environment.slug,
            "adapter": environment.adapter,
            "builtin": environment.builtin,
            "base_url": environment.base_url,
            "command": environment.command,
            "verifies": environment.verifies,
            "verifier": environment.verifier,
            "judge": environment.describe_judge(),
        },
        "sampling": {**policy_model.sampling, **agent.sampling, **sampling},
    }


def _chunks(rows: Iterator[Planned]) -> Iterator[list[Planned]]:
    while chunk := list(islice(rows, CHUNK)):
        yield chunk
