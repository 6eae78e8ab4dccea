"""A dataset with two splits in which every second answer is wrong, and a quick model: prints their slugs as JSON."""

import json
import sys

import django

django.setup()

from apps.environments.models import Environment  # noqa: E402
from tests.factories import make_dataset, make_policy_model, make_row  # noqa: E402

TASKS = 40


def main(model_port: str) -> None:
    rows = [make_row(f"What is {number} + 1?", str(2 + number % 2)) for number in range(TASKS)]
    dataset = make_dataset(rows, slug="half-wrong", environment=Environment.objects.get(slug="calculator"))
    dataset.versions.get().tasks.filter(index__lt=TASKS // 4).update(split="validation")
    dataset.versions.get().tasks.filter(index__gte=TASKS // 4).update(split="train")
    url = f"http://127.0.0.1:{model_port}/v1"
    model = make_policy_model(slug="quick", provider="compatible", base_url=url, model_name="mock")
    print(json.dumps({"dataset": dataset.slug, "policy_model": model.slug}))


main(*sys.argv[1:])
