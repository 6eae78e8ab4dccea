"""The sample data: generated arithmetic tasks, the scripted model, and a collection of both."""

import random
from io import BytesIO

from apps.accounts.models import User
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.gym.traces.items import dump_json
from apps.policies.model_registration import register_scripted_model
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.models import Dataset, Upload
from apps.tasks.upload_jobs import upload_file

TASKS = 40
REPEATS = 8
SLUG = "demo-arithmetic"
CALCULATOR_PROMPT = (
    "You are a careful assistant. Use the calculator tool for arithmetic and give the final answer in \\boxed{}."
)


def plan_sample(user: User, *, idempotency_key: str | None = None) -> Collection:
    """Plan the sample collection, which workers then run. Tasks and model are created on first use.

    With a key that was used before, return the earlier collection.

    Raises the same errors as `plan_collection`.
    """
    about = "Generated arithmetic tasks for the calculator environment."
    dataset = load_tasks(SLUG, "Demo arithmetic", about, make_arithmetic_rows(), user)
    model = register_scripted_model(mistake_rate=0.4)
    name = "Demo: arithmetic with a scripted model"
    return plan_default(dataset, model, user, repeats=REPEATS, name=name, idempotency_key=idempotency_key)


def load_tasks(slug: str, name: str, description: str, content: bytes, user: User) -> Dataset:
    """Return the dataset of the calculator with one version, loading it if needed."""
    dataset = Dataset.objects.filter(slug=slug).first() or create_dataset(
        slug=slug,
        name=name,
        environment=Environment.objects.get(slug="calculator"),
        description=description,
        user=user,
    )
    if dataset.latest_version() is None:
        upload = upload_file(dataset=dataset, stream=BytesIO(content), filename=f"{slug}.jsonl", user=user)
        if upload.state != Upload.State.READY:
            raise ValueError(f"the tasks of {slug} were rejected: {upload.errors}")
    return dataset


def plan_default(
    dataset: Dataset,
    policy_model: PolicyModel,
    user: User,
    *,
    repeats: int,
    name: str,
    agent: Agent | None = None,
    idempotency_key: str | None = None,
) -> Collection:
    """Plan a collection with the agent, or with the default agent."""
    agent = agent or Agent.objects.get(slug="default")
    plan = Plan(dataset=dataset, agent=agent, policy_model=policy_model, repeats=repeats, seed=7, name=name)
    return plan_collection(plan, user=user, idempotency_key=idempotency_key)


def make_arithmetic_rows(count: int = TASKS) -> bytes:
    """Return seeded arithmetic tasks as NeMo Gym rows."""
    dice = random.Random(7)
    lines = []
    for number in range(count):
        a, b, c = dice.randint(11, 99), dice.randint(11, 99), dice.randint(2, 9)
        expression, answer = dice.choice(
            [
                (f"({a} + {b}) * {c}", (a + b) * c),
                (f"{a} * {b} - {c}", a * b - c),
                (f"{a} * {c} + {b}", a * c + b),
                (f"{a} - {b} * {c}", a - b * c),
            ]
        )
        prompt = [
            {"role": "system", "content": CALCULATOR_PROMPT},
            {"role": "user", "content": f"What is {expression}?"},
        ]
        row = {
            "id": f"arithmetic-{number}",
            "responses_create_params": {"input": prompt},
            "expected_answer": str(answer),
        }
        lines.append(dump_json(row))
    return "\n".join(lines).encode()
