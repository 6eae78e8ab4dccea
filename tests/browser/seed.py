"""Rows for the site of the browser tests, made in a process of its own: prints what the tests need to know as JSON."""

import json
import sys

import django

django.setup()

from apps.accounts.api_keys import create_api_key  # noqa: E402
from apps.accounts.models import Role  # noqa: E402
from apps.environments.models import Environment  # noqa: E402
from tests.factories import make_agent, make_dataset, make_policy_model, make_row, make_user  # noqa: E402


def main(model_port: str, password: str) -> None:
    user = make_user(Role.ENGINEER, username="erika")
    user.set_password(password)
    user.save()
    _, token = create_api_key(user=user, name="tests", scopes=["admin"])
    rows = [make_row(f"What is {number} + 1?", "2") for number in range(40)]
    dataset = make_dataset(rows, slug="sums", environment=Environment.objects.get(slug="calculator"))
    where = {"provider": "compatible", "base_url": f"http://127.0.0.1:{model_port}/v1", "model_name": "mock"}
    model = make_policy_model(slug="slow", **where)
    gone = make_policy_model(slug="gone", max_tries=1, **{**where, "base_url": "http://127.0.0.1:9/v1"})
    agent = make_agent(slug="patient")
    print(
        json.dumps(
            {"token": token, "dataset": dataset.slug, "model": model.slug, "gone": gone.slug, "agent": agent.slug}
        )
    )


main(*sys.argv[1:])
