"""The commands of docs/use/serving.md on a fresh installation."""

import re
from pathlib import Path

import pytest
from django.test import Client

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import Role
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from tests.factories import make_user

pytestmark = pytest.mark.django_db
TEXT = (Path(__file__).resolve().parents[2] / "docs" / "use" / "serving.md").read_text()


def test_what_the_commands_name_is_there_or_is_made_by_the_command_beside_them():
    [options] = re.findall(r"gymweb models create (\w+) --name (\w+) --provider (\w+)", TEXT)
    _, token = create_api_key(user=make_user(Role.ENGINEER), name="program", scopes=["admin"])
    made = Client(headers={"authorization": f"Bearer {token}"}).post(
        "/api/v1/policy-models/",
        dict(zip(("slug", "name", "provider"), options, strict=True)),
        content_type="application/json",
    )
    assert made.status_code == 201
    named = {
        Environment: re.findall(r"(?:serve_environment|--environment) (\w+)", TEXT),
        Agent: re.findall(r"serve_agent (\w+) --model", TEXT),
        PolicyModel: re.findall(r"serve_model (\w+) --port|--model (\w+) --environment", TEXT),
    }
    for model, found in named.items():
        slugs = {slug for each in found for slug in ([each] if isinstance(each, str) else each) if slug}
        assert slugs
        assert slugs == set(model.objects.filter(slug__in=slugs).values_list("slug", flat=True))
