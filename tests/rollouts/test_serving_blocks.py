"""What the serving commands print for the other side is read by another GymWeb as it stands."""

import pytest

from apps.environments.models import Environment
from apps.rollouts.imports.gym_config_import import register_pasted
from apps.rollouts.management.serving_options import yaml_block

pytestmark = pytest.mark.django_db


def test_a_served_environment_is_registered_by_the_block_that_its_command_prints(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    block = yaml_block(
        kind="resources_servers", name="sums", server="sums", at=("127.0.0.1", 8101), more="      domain: agent\n"
    )
    register_pasted(text=block, addresses={})
    environment = Environment.objects.get(slug="sums")
    assert (environment.adapter, environment.base_url) == ("http", "http://127.0.0.1:8101")


def test_the_three_blocks_together_are_one_configuration(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
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
    register_pasted(text="".join(blocks), addresses={}, without_models=True)
    assert Environment.objects.filter(slug="sums").exists()
