"""Reject invalid plans by field before anything is stored."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from django.core.exceptions import ValidationError

from apps.agents.models import Agent
from apps.environments.models import Adapter
from apps.environments.resource_servers import drives_turns
from apps.gym.specs import spec_problems
from apps.gym.storable import find_unstorable
from apps.gym.tasks.prompt_templates import PromptTemplate, find_template_problems
from apps.gym.wires.sampling_values import find_default_problems
from apps.policies.redacted_fields import redact_input_value
from apps.rollouts.plans.plan_spec import Limits, Plan
from apps.rollouts.plans.task_selection import Choice
from apps.tasks.models import DatasetVersion, Task


def check_limits(limits: Mapping[str, Any]) -> None:
    """Raise ValidationError by field for limits that are out of range."""
    if errors := spec_problems(Limits, limits):
        raise ValidationError({name: [problem] for name, problem in errors.items()})


def check_plan(plan: Plan) -> Plan:
    """Return the plan with its texts cleaned and duplicates removed. Raise ValidationError by field."""
    plan = replace(
        plan,
        sampling=redact_input_value(plan.sampling) or {},
        split_repeats=plan.split_repeats or {},
        splits=list(dict.fromkeys(plan.splits)),
        tags=list(dict.fromkeys(plan.tags)),
        search=plan.search.strip(),
        prompt_template={part: text for part, text in (redact_input_value(plan.prompt_template) or {}).items() if text},
    )
    errors = spec_problems(Plan, vars(plan)) | _find_problems(plan)
    if errors:
        raise ValidationError({name: [problem] for name, problem in errors.items()})
    return plan


GIVE_PROMPTS = {Adapter.GYMNASIUM, Adapter.HTTP}
"""Environments whose first reply can hold the prompt: `/reset`, and `obs` of `/seed_session`."""


def refuse_missing_prompts(plan: Plan, choice: Choice) -> None:
    """Raise ValidationError if a task has no prompt and neither the environment nor the agent can give one."""
    environment, agent = plan.dataset.environment, plan.agent
    if plan.prompt_template.get("user") or agent.kind in {Agent.Kind.EXTERNAL, Agent.Kind.SERVER}:
        return
    if agent.kind == Agent.Kind.BUILTIN and environment.adapter in GIVE_PROMPTS:
        return
    if (task := choice.find_without_prompt()) is not None:
        problem = (
            f"Task {task.number} has no prompt: its `input` is empty, and {environment.name} gives none. Choose an "
            "agent server or an external agent, set a prompt template, or upload tasks with prompts."
        )
        raise ValidationError({"agent": [problem]})


def refuse_missing_judge(plan: Plan, choice: Choice) -> None:
    """Raise ValidationError if a task of a simulated user has assertions in words, and no model can judge them."""
    environment = plan.dataset.environment
    if not environment.has_simulated_user or environment.judge_model_id is not None:
        return
    tasks = Task.objects.filter(pk__in=choice.tasks().values("pk"), row_json__contains='"NL_ASSERTION"')
    if (task := tasks.order_by("index").first()) is not None:
        problem = (
            f"Task {task.number} has assertions in words (NL_ASSERTION), which a model must judge. Choose a user model "
            f"in the environment {environment.name}."
        )
        raise ValidationError({"dataset": [problem]})


def _find_problems(plan: Plan) -> dict[str, str]:
    """Return problems of field combinations and of values other than limits."""
    errors: dict[str, str] = {}
    if problems := find_default_problems(plan.sampling):
        errors["sampling"] = " ".join(problems)
    wanted = {plan.policy_model.worker_group, plan.dataset.environment.worker_group} - {""}
    if len(wanted) > 1:
        groups = " and ".join(sorted(wanted))
        errors["policy_model"] = (
            "No worker can run this, because the model and the environment belong to "
            f"different worker groups ({groups})."
        )
    if plan.agent.kind != Agent.Kind.BUILTIN and drives_turns(plan.dataset.environment):
        errors["agent"] = (
            "The environment of this dataset drives the turns itself. Choose an agent with the built-in loop."
        )
    if problem := _find_template_problem(plan.prompt_template):
        errors["prompt_template"] = problem
    earlier = plan.resume_from
    if earlier is None and plan.only_failed:
        errors["only_failed"] = (
            "Choose an earlier collection under “Continue collection” (resume_from). Its failed rollouts run again."
        )
    elif earlier is not None and earlier.dataset_id != plan.dataset.pk:
        errors["resume_from"] = f"{earlier.label} uses another dataset, {earlier.dataset.slug}."
    elif earlier is not None and (earlier.is_being_deleted or earlier.version.state != DatasetVersion.State.READY):
        errors["resume_from"] = f"{earlier.label} or its tasks are being deleted."
    return errors


def _find_template_problem(parts: Mapping[str, Any]) -> str:
    try:
        template = msgspec.convert(parts, PromptTemplate)
    except msgspec.ValidationError as wrong:
        return f"{wrong}. A prompt template has the texts system and user."
    if problems := find_template_problems(template):
        return " ".join(f"{part}: {problem}" for part, problem in problems.items())
    return "It contains a NUL character or an unpaired surrogate." if find_unstorable(parts) is not None else ""
