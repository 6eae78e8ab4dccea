"""Registering NeMo Gym configurations: what is stored, what a second import changes, and how it refuses."""

import pytest

from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.gym.gymconfig.merging import ConfigRefused
from apps.gym.gymconfig.pasted_files import join_texts
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import stored_key
from apps.rollouts.imports.gym_config_import import register_pasted
from apps.tasks.models import Dataset
from tests.gym.gymconfig.test_describing import ENV, LAB, MODEL

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _reachable(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]


def register(lab=LAB, env=ENV, **options):
    text = join_texts([("lab.yaml", lab), ("model.yaml", MODEL), ("env.yaml", env)])
    done = register_pasted(text=text, addresses=options.pop("addresses", {}), **options)
    return [f"{line.outcome} {line.kind} {line.slug} {line.told}".strip() for line in done.lines]


def test_everything_is_registered_and_told():
    assert register() == [
        "created environment lab http://127.0.0.1:8123",
        "created agent lab_simple_agent",
        "created policy model policy_model https://api.openai.com/v1",
        "created dataset lab-train",
        "created dataset lab-example",
        "skipped tasks lab-train resources_servers/lab/data/train.jsonl is not on this server; "
        "download it from Hugging Face lab/tasks train.jsonl",
        "skipped tasks lab-example resources_servers/lab/data/example.jsonl is not on this server",
    ]
    lab = Environment.objects.get(slug="lab")
    assert (lab.adapter, lab.base_url, lab.description) == ("http", "http://127.0.0.1:8123", "Tools of the lab")
    assert Agent.objects.get(slug="lab_simple_agent").max_steps == 6
    model = PolicyModel.objects.get(slug="policy_model")
    assert (model.provider, model.wire, model.model_name, model.extra_headers) == (
        "openai",
        "responses",
        "gpt-5",
        {"X-Team": "rl"},
    )
    assert stored_key(model) == "sk-1"
    dataset = Dataset.objects.get(slug="lab-train")
    assert (dataset.environment, dataset.latest_version()) == (lab, None)
    assert ("Apache 2.0" in dataset.description, "lab/tasks train.jsonl" in dataset.description) == (True, True)


def test_a_second_import_changes_nothing():
    def stamps():
        return [list(model.objects.values_list("updated_at")) for model in (Environment, PolicyModel)]

    register()
    before = stamps()
    assert [" ".join(line.split()[:2]) for line in register()] == [
        "unchanged environment",
        "unchanged agent",
        "unchanged policy",
        "skipped tasks",
        "skipped tasks",
    ]
    assert stamps() == before


def test_what_changed_is_changed_and_what_people_set_stays():
    register()
    Agent.objects.update(system_prompt="Be brief.")
    addresses = {"lab": "http://127.0.0.1:9001/"}
    lines = register(LAB.replace("max_steps: 6", "max_steps: 3"), ENV.replace("sk-1", "sk-2"), addresses=addresses)
    assert [line.split()[0] for line in lines[:3]] == ["changed"] * 3
    assert Environment.objects.get(slug="lab").base_url == "http://127.0.0.1:9001"
    assert Agent.objects.values_list("max_steps", "system_prompt").get(slug="lab_simple_agent") == (3, "Be brief.")
    assert stored_key(PolicyModel.objects.get(slug="policy_model")) == "sk-2"


def test_a_key_that_can_no_longer_be_read_is_stored_anew():
    register()
    PolicyModel.objects.filter(slug="policy_model").update(api_key_encrypted="damaged")
    assert register()[2].startswith("changed policy model")
    assert stored_key(PolicyModel.objects.get(slug="policy_model")) == "sk-1"


def test_a_server_without_an_address_is_refused_with_what_to_do_and_nothing_is_written():
    with pytest.raises(ConfigRefused) as refused:
        register(LAB.replace(", host: 0.0.0.0, port: 8123", ""))
    assert str(refused.value).startswith("lab.yaml: lab.resources_servers.lab: ")
    assert "gymweb import config --address lab=URL" in str(refused.value)
    assert not Environment.objects.filter(slug="lab").exists()
    assert not PolicyModel.objects.filter(slug="policy_model").exists()
    assert not Agent.objects.filter(slug="lab_simple_agent").exists()


def test_a_gymnasium_agent_makes_a_gymnasium_server():
    register(LAB.replace("simple_agent:", "gymnasium_agent:"), without_data=True)
    assert Environment.objects.get(slug="lab").adapter == "gymnasium"
    assert not Dataset.objects.filter(slug="lab-example").exists()


def agent_lines(lab, **options):
    return [line for line in register(lab, **options) if line.split()[1] == "agent"]


def agent_line(lab, **options):
    """The line of the only agent."""
    (line,) = agent_lines(lab, **options)
    return line


CODER = LAB.replace("simple_agent:", "codex_agent:")


def test_a_harness_of_its_own_becomes_an_agent_server_for_its_environment_and_model():
    line = agent_line(CODER, addresses={"lab_codex_agent": "http://127.0.0.1:9100/"})
    assert line.startswith("created agent lab_codex_agent http://127.0.0.1:9100; ")
    assert "with environment lab; with policy model policy_model;" in line
    agent = Agent.objects.get(slug="lab_codex_agent")
    assert (agent.kind, agent.server_url, agent.server_route, agent.max_steps) == (
        "agent_server",
        "http://127.0.0.1:9100",
        "responses",
        6,
    )


def test_an_agent_server_has_the_address_of_the_configuration_and_no_low_limit():
    lab = CODER.replace("max_steps: 6", "host: 0.0.0.0\n      port: 9200")
    assert agent_line(lab).startswith("created agent lab_codex_agent http://127.0.0.1:9200; ")
    Agent.objects.filter(slug="lab_codex_agent").update(max_steps=30)
    assert agent_line(lab).startswith("unchanged agent")
    moved = agent_line(lab, addresses={"lab_codex_agent": "http://127.0.0.1:9300"})
    assert moved.startswith("changed agent lab_codex_agent http://127.0.0.1:9300; ")
    # The second import keeps what people set.
    assert Agent.objects.values_list("max_steps", "server_route").get(slug="lab_codex_agent") == (30, "responses")


def test_an_agent_server_without_an_address_is_listed_and_the_rest_is_registered():
    lines = register(CODER)
    assert [line.split()[0] for line in lines[:3]] == ["created", "skipped", "created"]
    assert "--address lab_codex_agent=URL" in lines[1]
    assert not Agent.objects.filter(slug="lab_codex_agent").exists()


def test_an_agent_with_its_own_verifier_is_asked_over_run():
    alone = """
coder:
  responses_api_agents:
    swe_agents:
      entrypoint: app.py
      host: 127.0.0.1
      port: 9400
      concurrency: 8
      agent_framework: OpenHands
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: bugs, type: validation, jsonl_fpath: data/bugs.jsonl}]
"""
    assert "it verifies, over /run; with policy model policy_model;" in agent_line(alone)
    assert Agent.objects.get(slug="coder").server_route == "run"
    assert any("no resource server" in line for line in register(alone) if line.startswith("skipped note"))


def test_an_inherited_harness_takes_environment_and_model_of_its_parents():
    harness = """
harness:
  responses_api_agents:
    langgraph_agent:
      entrypoint: reflection_agent.py
      resources_server: {name: lab}
      model_server: {type: responses_api_models, name: policy_model}
reflection:
  _inherit_from: harness
  responses_api_agents:
    langgraph_agent: {max_reflections: 2, port: 9500}
"""
    lines = agent_lines(LAB + harness)
    assert [line.split()[:3] for line in lines] == [
        ["created", "agent", "lab_simple_agent"],
        ["created", "agent", "reflection"],
    ]
    assert "with environment lab; with policy model policy_model;" in lines[1]


def test_a_harness_for_a_gymnasium_server_is_listed_with_its_reason():
    line = agent_line(LAB.replace("simple_agent:", "own_gymnasium_agent:"))
    assert line.startswith("skipped agent lab_own_gymnasium_agent own_gymnasium_agent drives a Gymnasium environment")


def test_an_address_that_is_not_allowed_is_refused():
    with pytest.raises(ConfigRefused, match="server_url"):
        register(CODER, addresses={"lab_codex_agent": "http://192.0.2.1:80"})


def test_a_dataset_of_another_environment_is_refused():
    register()
    Dataset.objects.filter(slug="lab-train").update(environment=Environment.objects.exclude(slug="lab").first())
    with pytest.raises(ConfigRefused, match="the dataset lab-train belongs to the environment"):
        register()
