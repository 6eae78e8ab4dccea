"""Plan a collection: dataset × agent × policy model × repeats → queued rollouts."""

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

import msgspec
import orjson
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F, Model
from django.utils import timezone

from apps.accounts.auditing import record
from apps.accounts.models import User
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.gym import leaving
from apps.gym.prompting import PromptTemplate, find_template_problems
from apps.gym.sampling import find_default_problems
from apps.gym.storable import find_unstorable
from apps.policies.models import PolicyModel
from apps.policies.typed_texts import clean_typed_value
from apps.rollouts.announcing import ring_doorbell
from apps.rollouts.choosing import Choice, find_version
from apps.rollouts.models import LARGEST, Collection, Rollout
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
    """The idempotency key belongs to another plan of the same person."""


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
    split_repeats: Mapping[str, int] | None = None,
    splits: Sequence[str] = (),
    tags: Sequence[str] = (),
    search: str = "",
    prompt_template: Mapping[str, str] | None = None,
    resume_from: Collection | None = None,
    only_failed: bool = False,
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
    version: DatasetVersion | int | None = None,
    task_ids: Sequence[int] | None = None,
    asked: str | None = None,
) -> Collection:
    """Make the collection and its queued rollouts, and ring the workers.

    `resume_from` makes only what failed, was cancelled or is missing in that earlier collection of the same dataset, of
    the version that it was planned on; with `only_failed`, only what failed there. A rollout keeps its repeat, and with
    the same seed its own.

    `version`, or its number, is the latest where it is left out; `task_ids` are those of its tasks to attempt, all by
    default. Planning the same again with the same idempotency key gives the collection that exists; `asked` is the
    digest of what was asked for, where the caller knows it better. Raises NothingToCollect, and PlanConflict for a key
    that stands for something else, and ValidationError for what cannot be.
    """
    sampling, prompt_template = clean_typed_value(sampling), clean_typed_value(prompt_template)
    plan = check_plan(
        {
            "dataset": dataset,
            "agent": agent,
            "policy_model": policy_model,
            "repeats": repeats,
            "limit": limit,
            "seed": seed,
            "sampling": sampling,
            "split_repeats": split_repeats,
            "splits": splits,
            "tags": tags,
            "search": search,
            "prompt_template": prompt_template,
            "resume_from": resume_from,
            "only_failed": only_failed,
            "priority": priority,
            "concurrency": concurrency,
            "rollout_timeout": rollout_timeout,
            "max_attempts": max_attempts,
            "max_seconds": max_seconds,
            "max_tokens": max_tokens,
            "max_cost": max_cost,
            "created_by": user,
        }
    )
    digest = asked or _digest(plan, name, version)
    if earlier := find_planned(idempotency_key, digest, user):
        return earlier
    choice = choose_rollouts(plan, version=version, task_ids=task_ids)
    if next(choice.rollouts(), None) is None:
        raise NothingToCollect(_explain_nothing(choice))
    version, environment = choice.version, dataset.environment
    collection = Collection(
        name=name or f"{dataset.name} × {policy_model.name}",
        version=version,
        environment=environment,
        snapshot={
            **take_snapshot(agent, policy_model, environment, version, sampling or {}),
            "plan": _describe_choice(plan),
        },
        idempotency_key=idempotency_key or None,
        plan_digest=digest,
        **plan,
    )
    try:
        with transaction.atomic():
            collection.save()
            record(user=user, action="collection.create", target=f"collection {collection.pk}", **_say_plan(collection))
    except IntegrityError:
        if earlier := find_planned(idempotency_key, digest, user):
            return earlier
        raise
    rows = (Planned(task_id, repeat, rollout_seed(seed, index, repeat)) for task_id, index, repeat in choice.rollouts())
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


CHOSEN = ("repeats", "split_repeats", "limit", "splits", "tags", "search", "only_failed")
"""Of a plan, what says which rollouts there are."""


def choose_rollouts(
    plan: Mapping[str, Any], *, version: DatasetVersion | int | None = None, task_ids: Sequence[int] | None = None
) -> Choice:
    """Which rollouts the plan has. Raises NothingToCollect for a dataset that was never filled, and ValidationError
    for a version or splits that it does not have."""
    dataset, earlier = plan["dataset"], plan.get("resume_from")
    if isinstance(version, int):
        version = find_version(dataset, version)
    if earlier and version and version != earlier.version:
        raise ValidationError({"version": [f"{earlier.label} is of {earlier.version}: leave the version out."]})
    version = earlier.version if earlier else version or dataset.latest_version()
    if version is None:
        raise NothingToCollect(f"Dataset {dataset.slug} has no version yet: upload tasks first.")
    chosen: dict[str, Any] = {name: plan[name] for name in CHOSEN if name in plan}
    lists: dict[str, Any] = {name: tuple(chosen.pop(name, ())) for name in ("splits", "tags")}
    choice = Choice(version=version, task_ids=task_ids, resume_from=earlier, **lists, **chosen)
    if unknown := choice.unknown_splits():
        told = {name: [f"{version} has no split {', '.join(splits)}."] for name, splits in unknown.items()}
        raise ValidationError(told)
    return choice


def _explain_nothing(choice: Choice) -> str:
    if choice.resume_from is not None and choice.tasks().exists():
        what = "failed" if choice.only_failed else "is left to do"
        return f"Nothing of {choice.resume_from.label} {what} among these tasks."
    if choice.is_filtered:
        return f"No task of {choice.version} has what the filters ask for."
    return f"{choice.version} × {choice.repeats} repeats holds no rollout."


def _say_plan(collection: Collection) -> dict[str, Any]:
    """For the audit log: what is attempted by whom."""
    return {
        "dataset": collection.dataset.slug,
        "version": collection.version.number,
        "agent": collection.agent.slug,
        "policy_model": collection.policy_model.slug,
        "repeats": collection.repeats,
    }


def _describe_choice(plan: Mapping[str, Any]) -> dict[str, Any]:
    """For the snapshot: which rollouts, and how they were asked."""
    earlier = plan["resume_from"]
    return {
        **{name: plan[name] for name in (*CHOSEN, "seed", "prompt_template")},
        "resume_from": earlier.pk if earlier else None,
    }


MAX_REPEATS = 10_000
MAX_MARKS = 64
"""Splits or tags that one plan may name."""

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
        if not abs(limits.get(name) or 0) <= LARGEST:
            errors[name] = ["Give a finite number."]
    if errors:
        raise ValidationError(errors)


def check_plan(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a collection, out of arguments of plan_collection. Raises ValidationError by field."""
    fields = {name: Collection._meta.get_field(name).get_default() for name in (*CHOSEN, *LIMITS)}  # type: ignore[union-attr]
    plan = {**fields, "seed": 0, "resume_from": None, **given}
    for name in ("name", "idempotency_key", "user", "version"):
        plan.pop(name, None)
    plan |= {
        "sampling": plan.get("sampling") or {},
        "split_repeats": dict(plan["split_repeats"] or {}),
        "splits": list(dict.fromkeys(plan["splits"])),
        "tags": list(dict.fromkeys(plan["tags"])),
        "search": plan["search"].strip(),
        "prompt_template": {part: text for part, text in (plan.get("prompt_template") or {}).items() if text},
    }
    _check(plan)
    return plan


def _check(plan: dict[str, Any]) -> None:
    errors: dict[str, Any] = {}
    if problems := find_default_problems(plan["sampling"]):
        errors["sampling"] = problems
    wanted = {plan["policy_model"].worker_group, plan["dataset"].environment.worker_group} - {""}
    if len(wanted) > 1:
        groups = " and ".join(sorted(wanted))
        errors["policy_model"] = [
            f"No worker may run this: the model and the environment belong to different worker groups ({groups})."
        ]
    errors |= _find_choice_problems(plan)
    try:
        check_limits(plan)
    except ValidationError as wrong:
        errors |= wrong.update_error_dict({})
    if errors:
        raise ValidationError(errors)


def _find_choice_problems(plan: dict[str, Any]) -> dict[str, Any]:
    errors: dict[str, Any] = {}
    for name in ("splits", "tags", "split_repeats"):
        if len(plan[name]) > MAX_MARKS or not all(
            isinstance(mark, str) and 0 < len(mark) <= 64 and "\n" not in mark for mark in plan[name]
        ):
            errors[name] = [f"At most {MAX_MARKS} names of 1 to 64 characters."]
    numbers = plan["split_repeats"].values()
    if not all(isinstance(one, int) and not isinstance(one, bool) and 1 <= one <= MAX_REPEATS for one in numbers):
        errors["split_repeats"] = [f"Give each split a whole number from 1 to {MAX_REPEATS:,}."]
    if len(plan["search"]) > 200:
        errors["search"] = ["At most 200 characters."]
    if find_unstorable([plan["search"], *plan["splits"], *plan["tags"], *plan["split_repeats"]]) is not None:
        errors["search"] = ["A split, a tag or the search holds a zero byte or half a surrogate pair."]
    try:
        template = msgspec.convert(plan["prompt_template"], PromptTemplate)
    except msgspec.ValidationError as wrong:
        errors["prompt_template"] = [f"{wrong}. It has the parts system and user, each a text."]
    else:
        if problems := find_template_problems(template):
            errors["prompt_template"] = [f"{part}: {problem}" for part, problem in problems.items()]
        elif find_unstorable(plan["prompt_template"]) is not None:
            errors["prompt_template"] = ["It holds a zero byte or half a surrogate pair."]
    earlier = plan["resume_from"]
    if earlier is None and plan["only_failed"]:
        errors["only_failed"] = ["Name the earlier collection whose failed rollouts are meant."]
    elif earlier is not None and earlier.dataset_id != plan["dataset"].pk:
        errors["resume_from"] = [f"{earlier.label} is of another dataset, {earlier.dataset.slug}."]
    elif earlier is not None and (earlier.is_being_deleted or earlier.version.state != DatasetVersion.State.READY):
        errors["resume_from"] = [f"{earlier.label} or its tasks are being deleted."]
    return errors


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


def find_planned(idempotency_key: str | None, digest: str, user: User | None) -> Collection | None:
    """The collection that stands for this person's key. A plan whose planner died is deleted, so that it can be made
    anew."""
    mine = Collection.objects.filter(idempotency_key=idempotency_key, created_by=user)
    earlier = mine.first() if idempotency_key else None
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


def _digest(plan: dict[str, Any], name: str, version: DatasetVersion | int | None) -> str:
    """Of what was asked for. The collection's own fields cannot tell: its limits may be changed while it runs."""
    # What came later counts where it is given: the keys of earlier plans stay good.
    later = {*CHOSEN, "prompt_template", "resume_from"} - {"repeats", "limit"}
    given = {field: value for field, value in plan.items() if value or field not in later}
    if version is not None:
        given["version"] = version if isinstance(version, int) else version.number
    asked = {field: value.pk if isinstance(value, Model) else value for field, value in given.items()}
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
