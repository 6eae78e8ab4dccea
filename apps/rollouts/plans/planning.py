"""Plan a collection: dataset × agent × policy model × repeats → queued rollouts."""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import orjson
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Model
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.idempotent_requests import KeyReused
from apps.accounts.job_declarations import background_job
from apps.accounts.models import User
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.gym import process_exit
from apps.policies.models import PolicyModel
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.notifications import notify_workers
from apps.rollouts.plans.plan_spec import LIMITS, Plan
from apps.rollouts.plans.task_selection import NothingToCollect, choose_rollouts, explain_nothing
from apps.rollouts.plans.validation import check_plan, refuse_missing_judge, refuse_missing_prompts
from apps.tasks.models import DatasetVersion


class Planned(NamedTuple):
    """A planned rollout: the fields that differ within its collection."""

    task_id: int
    repeat: int
    seed: int


def insert_rollouts(*, collection_id: int, status: str, chunk: Sequence[Planned]) -> None:
    """Insert the chunk with this status. All other columns get their defaults."""
    columns, defaults = _defaults(connection.vendor)
    given = [collection_id, status, *defaults]
    names = ", ".join(["collection_id", "status", *columns, "task_id", "repeat", "seed"])
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                f"INSERT INTO rollouts_rollout ({names}) SELECT {', '.join(['%s'] * len(given))}, v.*"  # noqa: S608
                " FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) v",
                [*given, *map(list, zip(*chunk, strict=True))],
            )
        else:
            places = ", ".join(["%s"] * (len(given) + len(Planned._fields)))
            insert = f"INSERT INTO rollouts_rollout ({names}) VALUES ({places})"  # noqa: S608
            cursor.executemany(insert, [(*given, *planned) for planned in chunk])


@cache
def _defaults(vendor: str) -> tuple[list[str], list[Any]]:
    """Return the remaining columns and their defaults from the model, because the table defines none."""
    varying = {"id", "collection_id", "status", *Planned._fields}
    fields = [field for field in Rollout._meta.concrete_fields if field.column not in varying]
    defaults = [field.get_db_prep_save(field.get_default(), connection) for field in fields]
    return [f'"{field.column}"' for field in fields], defaults


CHUNK = 2_000
"""Rows per transaction: larger ones would delay heartbeats on SQLite."""
ABANDONED_AFTER = timedelta(minutes=5)
"""A plan without progress for this long is abandoned: its process died."""
ABANDONED_ON_REPEAT = timedelta(seconds=60)
"""The same, for a request that repeats the plan's idempotency key."""


_COLUMNS = {field.name for field in Collection._meta.concrete_fields} - {"name", "version"}


class PlanConflict(KeyReused, status=409, code="idempotency-key-used"):
    """Raised if the idempotency key belongs to another plan of the same user."""


def plan_collection(
    plan: Plan,
    *,
    user: User | None = None,
    task_ids: Sequence[int] | None = None,
    idempotency_key: str | None = None,
    request_digest: str | None = None,
) -> Collection:
    """Create the collection and its queued rollouts, and notify the workers.

    `task_ids` are tasks of the version; default: all. Repeating a plan with the same key returns its collection.
    `request_digest` identifies the request (default: digest of the plan). Resumed rollouts keep their repeat number,
    and their seed if the collection has the same seed.

    Raises NothingToCollect if there are no rollouts, PlanConflict if the key belongs to another plan, and
    ValidationError by field.
    """
    plan = check_plan(plan)
    digest = request_digest or _digest(plan)
    if earlier := find_planned(idempotency_key, digest, user):
        return earlier
    choice = choose_rollouts(plan, task_ids=task_ids)
    refuse_missing_prompts(plan, choice)
    refuse_missing_judge(plan, choice)
    if next(choice.rollouts(), None) is None:
        raise NothingToCollect(explain_nothing(choice))
    collection = Collection(
        **{name: value for name, value in vars(plan).items() if name in _COLUMNS},
        name=plan.name or f"{plan.dataset.name} × {plan.policy_model.name}",
        version=choice.version,
        environment=plan.dataset.environment,
        solve_threshold=plan.dataset.environment.solve_threshold,
        snapshot={
            **take_snapshot(plan.agent, plan.policy_model, plan.dataset.environment, choice.version, plan.sampling),
            "plan": _describe_choice(plan),
        },
        idempotency_key=idempotency_key or None,
        plan_digest=digest,
        created_by=user,
    )
    try:
        with transaction.atomic():
            collection.save()
            record(
                user=user, action="collection.create", target=f"collection {collection.pk}", **_audit_values(collection)
            )
    except IntegrityError:
        if earlier := find_planned(idempotency_key, digest, user):
            return earlier
        raise
    rows = (
        Planned(task_id, repeat, rollout_seed(plan.seed, index, repeat)) for task_id, index, repeat in choice.rollouts()
    )
    try:
        while chunk := list(islice(rows, CHUNK)):
            _queue(collection, chunk)
    except BaseException:
        delete_plan(collection)
        raise
    planned = Collection.objects.filter(pk=collection.pk, state=Collection.State.PLANNING)
    planned.update(state=Collection.State.RUNNING)
    transaction.on_commit(notify_workers)
    collection.refresh_from_db()
    return collection


def _audit_values(collection: Collection) -> dict[str, Any]:
    """Return the values of the plan for the audit log."""
    return {
        "dataset": collection.dataset.slug,
        "version": collection.version.number,
        "agent": collection.agent.slug,
        "policy_model": collection.policy_model.slug,
        "repeats": collection.repeats,
    }


def _describe_choice(plan: Plan) -> dict[str, Any]:
    """Return the selection for the snapshot, the only record of options that have no column."""
    elsewhere = {*LIMITS, "dataset", "agent", "policy_model", "version", "name", "sampling"}
    # Leave out unset options that later versions added, so that digests of older plans stay valid.
    return {
        name: value for name, value in _plain(plan).items() if name not in elsewhere and (value or name in _COLUMNS)
    }


def _plain(plan: Plan) -> dict[str, Any]:
    """Return the options by name, with database rows as their ids."""
    return {name: value.pk if isinstance(value, Model) else value for name, value in vars(plan).items()}


@background_job(waiting=lambda: Collection.objects.filter(state=Collection.State.PLANNING))
def sweep_plans() -> bool:
    """Background job: delete one plan whose process died. Return True if there was one."""
    abandoned_since = timezone.now() - ABANDONED_AFTER
    dead = Collection.objects.filter(state=Collection.State.PLANNING, touched_at__lt=abandoned_since).first()
    if dead is None:
        return False
    delete_plan(dead)
    return True


def delete_plan(collection: Collection) -> None:
    """Delete a collection without claimed rollouts, in chunks."""
    while ids := list(collection.rollouts.values_list("pk", flat=True)[:CHUNK]):
        Rollout.objects.filter(pk__in=ids).delete()
        process_exit.check()
    collection.delete()


def _queue(collection: Collection, chunk: list[Planned]) -> None:
    """Store a chunk and count it. Chunks of a cancelled collection are stored as cancelled."""
    with transaction.atomic():
        state = Collection.objects.select_for_update().values_list("state", flat=True).get(pk=collection.pk)
        cancelled = state == Collection.State.CANCELLED
        status = Rollout.Status.CANCELLED if cancelled else Rollout.Status.QUEUED
        insert_rollouts(collection_id=collection.pk, status=status.value, chunk=chunk)
        mark_changed((collection.pk, planned.task_id) for planned in chunk)
        made = len(chunk)
        Collection.objects.filter(pk=collection.pk).update(
            total=F("total") + made, cancelled=F("cancelled") + (made if cancelled else 0), touched_at=timezone.now()
        )


def find_planned(idempotency_key: str | None, digest: str, user: User | None) -> Collection | None:
    """Return the collection of this user's idempotency key.

    If its planning process died, the plan is deleted so that it can be repeated.
    """
    mine = Collection.objects.filter(idempotency_key=idempotency_key, created_by=user)
    earlier = mine.first() if idempotency_key else None
    if earlier is None:
        return None
    if earlier.plan_digest and earlier.plan_digest != digest:
        raise PlanConflict(f"The idempotency key {idempotency_key!r} was used for another plan. Use a new key.")
    if earlier.state != Collection.State.PLANNING:
        return earlier
    if earlier.touched_at < timezone.now() - ABANDONED_ON_REPEAT:
        delete_plan(earlier)
        return None
    return earlier


def _digest(plan: Plan) -> str:
    """Return the digest of a plan as requested."""
    return hashlib.sha256(orjson.dumps(_plain(plan), option=orjson.OPT_SORT_KEYS)).hexdigest()


def rollout_seed(seed: int, index: int, repeat: int) -> int:
    """Return a 31-bit seed that depends only on the collection's seed, the task's position and the repeat."""
    return zlib.crc32(f"{seed}:{index}:{repeat}".encode()) & 0x7FFFFFFF


def take_snapshot(
    agent: Agent,
    policy_model: PolicyModel,
    environment: Environment,
    version: DatasetVersion,
    sampling: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the current settings that decide how the rollouts run, without secrets."""
    return {
        "dataset": {"slug": version.dataset.slug, "version": version.number, "content_hash": version.content_hash},
        "agent": describe_agent(agent),
        "policy_model": {
            **_pick(policy_model, "slug", "provider", "wire", "base_url", "model_name"),
            **({"version": policy_model.version} if policy_model.version else {}),
            **({"logprob_mode": policy_model.known_logprob_mode} if policy_model.capture_tokens else {}),
            **({"engine": policy_model.engine} if policy_model.engine else {}),
        },
        "environment": {
            **_pick(environment, "slug", "adapter", "builtin", "base_url", "command", "verifies", "verifier"),
            "judge": environment.describe_judge(),
        },
        "sampling": {**policy_model.sampling, **agent.sampling, **sampling},
    }


def describe_agent(agent: Agent) -> dict[str, Any]:
    """Return the current settings of an agent. A Harness is converted from them."""
    harness = ("system_prompt", "examples", "max_steps", "time_limit", "token_limit", "parallel_tool_calls")
    return {
        "slug": agent.slug,
        # Defaults are left out, so that digests of older snapshots stay valid.
        **({"kind": agent.kind} if agent.kind != Agent.Kind.BUILTIN else {}),
        **({"command_settings": agent.command_settings} if agent.kind == Agent.Kind.COMMAND else {}),
        **(_pick(agent, "server_url", "server_route") if agent.kind == Agent.Kind.SERVER else {}),
        **_pick(agent, *harness),
        **({"retry_empty_replies": True} if agent.retry_empty_replies else {}),
        **({"strict_tools": agent.strict_tools} if agent.strict_tools != Agent.StrictTools.DECLARED else {}),
    }


def _pick(row: Model, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}
