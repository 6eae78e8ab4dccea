"""What the serving commands print for the other side is read by another GymWeb as it stands."""

import pytest
from django.core.management import call_command

from apps.environments.models import Environment
from apps.rollouts.management.serving_options import yaml_block

pytestmark = pytest.mark.django_db


def test_a_served_environment_is_registered_by_the_block_that_its_command_prints(tmp_path, settings, monkeypatch):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    monkeypatch.chdir(tmp_path)
    block = yaml_block(
        kind="resources_servers", name="sums", server="sums", at=("127.0.0.1", 8101), more="      domain: agent\n"
    )
    (tmp_path / "served.yaml").write_text(block)
    call_command("import_gym_config", "served.yaml", "--no-data")
    environment = Environment.objects.get(slug="sums")
    assert (environment.adapter, environment.base_url) == ("http", "http://127.0.0.1:8101")


def test_the_three_blocks_together_are_one_configuration(tmp_path, settings, monkeypatch):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    monkeypatch.chdir(tmp_path)
    references = (
        "      resources_server: {type: resources_servers, name: sums}\n"
        "      model_server: {type: responses_api_models, name: policy_model}\n"
    )
    blocks = [
        yaml_block(kind="resources_servers", name="sums", server="sums", at=("127.0.0.1", 8101)),
        yaml_block(
            kind="responses_api_agents", name="helper", server="helper", at=("127.0.0.1", 8102), more=references
        ),
        yaml_block(kind="responses_api_models", name="policy_model", server="openai_model", at=("127.0.0.1", 8103)),
    ]
    (tmp_path / "served.yaml").write_text("".join(blocks))
    call_command("import_gym_config", "served.yaml", "--no-data", "--no-models")
    assert Environment.objects.filter(slug="sums").exists()
