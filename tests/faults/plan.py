#!/usr/bin/env python
"""Plan collections as their owner would, in a process of its own: a JSON object on standard input says which.

`migrate` makes the tables. `models`, `environments` and `agents` are rows by slug. `collections` are, by name, the
arguments of `plan_collection` with slugs, and `faults`, one task each. `key` is a user who gets an API key. Prints the
ids of the collections by name, and the key.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["DJANGO_SETTINGS_MODULE"] = "gymweb.settings"

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def make_row(number: int, fault: str) -> dict[str, Any]:
    text = f"Question {number}: what is the weather in Paris?"
    if fault.startswith("model_"):
        text += f" ({fault})"  # so that the model or its judge can tell
    prompt = [{"role": "user", "content": text}]
    return {"responses_create_params": {"input": prompt, "tools": [TOOL]}, "number": number, "fault": fault}


def main() -> None:
    import django

    django.setup()
    from django.core.management import call_command

    from apps.agents.models import Agent
    from apps.environments.models import Adapter, Environment
    from apps.gym.traces.items import dump_json
    from apps.policies.models import PolicyModel, Wire
    from apps.rollouts.plans.plan_spec import Plan
    from apps.rollouts.plans.planning import plan_collection
    from apps.tasks.models import Dataset, DatasetVersion, Task

    wanted = json.load(sys.stdin)
    if wanted.get("migrate"):
        call_command("migrate", verbosity=0)
    for slug, fields in wanted.get("models", {}).items():
        PolicyModel.objects.create(
            **{"slug": slug, "name": slug, "wire": Wire.CHAT, "model_name": "mock", "concurrency": 10_000, **fields}
        )
    for slug, fields in wanted.get("environments", {}).items():
        if "judge_model" in fields:
            fields["judge_model"] = PolicyModel.objects.get(slug=fields["judge_model"])
        Environment.objects.create(
            **{"slug": slug, "name": slug, "adapter": Adapter.HTTP, "concurrency": 10_000, **fields}
        )
    for slug, fields in wanted.get("agents", {}).items():
        Agent.objects.create(**{"slug": slug, "name": slug, **fields})
    planned: dict[str, Any] = {}
    for name, plan in wanted.get("collections", {}).items():
        faults, model, environment = plan.pop("faults"), plan.pop("model"), plan.pop("environment")
        agent = Agent.objects.get(slug=plan.pop("agent", "default"))
        dataset = Dataset.objects.create(slug=name, name=name, environment=Environment.objects.get(slug=environment))
        version = DatasetVersion.objects.create(dataset=dataset, number=1, state="ready", task_count=len(faults))
        Task.objects.bulk_create(
            Task(dataset=dataset, version=version, index=index, row_json=dump_json(make_row(index, fault)))
            for index, fault in enumerate(faults)
        )
        collection = plan_collection(
            Plan(
                dataset=dataset,
                agent=agent,
                policy_model=PolicyModel.objects.get(slug=model),
                **plan,
            )
        )
        planned[name] = collection.pk
    if name := wanted.get("key"):
        from apps.accounts.api_keys import create_api_key
        from apps.accounts.models import User

        user = User.objects.create_user(username=name, role="engineer")
        _, planned["key"] = create_api_key(user=user, name=name, scopes=["admin"])
    print(json.dumps(planned))


if __name__ == "__main__":
    main()
