"""Estimate rollouts, tokens, cost and time of a plan, from similar collections or from the words of its tasks."""

from typing import NamedTuple

from django.db.models import Avg

from apps.accounts.keyset_reading import read_by_key
from apps.gym.wires.pricing import Prices
from apps.rollouts.models import Collection, Rollout, Worker
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.task_selection import Choice, Size, choose_rollouts
from apps.rollouts.plans.validation import check_plan, refuse_missing_judge, refuse_missing_prompts
from apps.tasks.models import DatasetVersion

EARLIER = 5
"""Maximum number of similar collections to measure."""
MEASURED = 1_000
"""Maximum number of latest rollouts per collection whose duration is used."""
SAMPLED = 200
"""Number of tasks whose words are counted, spread evenly over the version."""
TOKENS_PER_WORD = 1.4
REPLY_TOKENS = 256
"""Assumed tokens of a reply without data, unless the sampling allows fewer."""


class Estimate(NamedTuple):
    """Tokens and seconds are None if unknown. `based_on` are ids of collections."""

    version: DatasetVersion
    tasks: int
    rollouts: int
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    seconds: float | None
    basis: str
    based_on: list[int]

    @property
    def tokens(self) -> int | None:
        known = self.input_tokens is not None and self.output_tokens is not None
        return (self.input_tokens or 0) + (self.output_tokens or 0) if known else None


class _RolloutUse(NamedTuple):
    """Use of one rollout."""

    input_tokens: float
    output_tokens: float
    judge_cost: float
    seconds: float | None
    basis: str
    based_on: list[int]


def estimate_plan(plan: Plan) -> Estimate:
    """Return the estimate. Raises like plan_collection for an invalid plan."""
    checked = check_plan(plan)
    choice = choose_rollouts(checked)
    refuse_missing_prompts(checked, choice)
    refuse_missing_judge(checked, choice)
    size = choice.size()
    policy_model = checked.policy_model
    each = _measured(checked) or _guessed(checked, choice)
    if each is None or not size.rollouts:
        nothing = "" if size.rollouts else "No rollouts to run."
        return Estimate(choice.version, *size, None, None, None, None, nothing or "No task data to estimate from.", [])
    prices: Prices = policy_model.prices
    input_tokens, output_tokens = round(each.input_tokens * size.rollouts), round(each.output_tokens * size.rollouts)
    cost = prices.cost({"input_tokens": input_tokens, "output_tokens": output_tokens}) + each.judge_cost * size.rollouts
    return Estimate(
        choice.version,
        *size,
        input_tokens,
        output_tokens,
        cost if cost or policy_model.is_scripted else None,
        _seconds(each, size, checked),
        each.basis,
        each.based_on,
    )


def _measured(plan: Plan) -> _RolloutUse | None:
    """Estimate from the latest collections of the dataset with this model, preferring those with this agent."""
    alike = Collection.objects.present().filter(
        dataset=plan.dataset, policy_model=plan.policy_model, completed__gt=0, started_at__isnull=False
    )
    rows = list(alike.filter(agent=plan.agent).order_by("-pk")[:EARLIER]) or list(alike.order_by("-pk")[:EARLIER])
    # Token sums include retried attempts; `ended` counts rollouts.
    ended = sum(row.completed + row.failed for row in rows)
    if not ended:
        return None
    durations = [_mean_duration(row) for row in rows]
    known = [seconds for seconds in durations if seconds is not None]
    prices: Prices = plan.policy_model.prices
    judged = [
        row.cost - prices.cost({"input_tokens": row.input_tokens, "output_tokens": row.output_tokens})
        for row in rows
        if row.judge_tokens
    ]
    word, names = "collection" if len(rows) == 1 else "collections", ", ".join(f"#{row.pk}" for row in rows)
    return _RolloutUse(
        input_tokens=sum(row.input_tokens for row in rows) / ended,
        output_tokens=sum(row.output_tokens for row in rows) / ended,
        judge_cost=max(0.0, sum(judged)) / ended,
        seconds=sum(known) / len(known) if known else None,
        basis=f"Based on {ended:,} rollouts of this dataset and model, in {word} {names}.",
        based_on=[row.pk for row in rows],
    )


def _mean_duration(collection: Collection) -> float | None:
    completed = Rollout.objects.of_collection(collection.pk).filter(status=Rollout.Status.COMPLETED)
    latest = completed.order_by("-pk")[:MEASURED]
    mean: float | None = Rollout.objects.filter(pk__in=latest.values("pk")).aggregate(mean=Avg("duration"))["mean"]
    return mean


def _guessed(plan: Plan, choice: Choice) -> _RolloutUse | None:
    """Estimate from the words of some tasks, assuming one reply to each."""
    version = choice.version
    step = max(1, version.task_count // SAMPLED)
    sampled = version.tasks.filter(index__in=range(0, step * SAMPLED, step)).values_list("index", "row_json")
    words = [len(row.split()) for _, row in read_by_key(sampled, by="index", size=50)]
    if not words:
        return None
    agent = plan.agent
    around = len(agent.system_prompt.split()) + len(str(agent.examples).split() if agent.examples else [])
    sampling = {**plan.policy_model.sampling, **agent.sampling, **plan.sampling}
    allowed = sampling.get("max_output_tokens")
    said = min(REPLY_TOKENS, allowed) if isinstance(allowed, int) and allowed > 0 else REPLY_TOKENS
    return _RolloutUse(
        input_tokens=(sum(words) / len(words) + around) * TOKENS_PER_WORD,
        output_tokens=said,
        judge_cost=0.0,
        seconds=None,
        basis=f"Rough estimate from the length of {len(words):,} tasks and one {said}-token reply per rollout. This "
        "model has no rollouts of this dataset yet.",
        based_on=[],
    )


def _seconds(each: _RolloutUse, size: Size, plan: Plan) -> float | None:
    """Return the expected seconds.

    Assumes the lowest concurrency limit of model, environment, collection and workers.
    """
    if each.seconds is None:
        return None
    seats = sum(Worker.objects.filter(state=Worker.State.ACTIVE).values_list("seats", flat=True))
    limits = [plan.policy_model.concurrency, plan.dataset.environment.concurrency, plan.concurrency, seats]
    at_once = min([limit for limit in limits if limit] or [1])
    rounds = -(-size.rollouts // at_once)
    return float(each.seconds * rounds)
