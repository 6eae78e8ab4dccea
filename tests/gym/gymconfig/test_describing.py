"""Configurations in NeMo Gym's shapes: what they describe, and what is wrong with them, by file and key."""

import pytest

from apps.gym.gymconfig.descriptions import DatasetFile, Model, describe_texts
from apps.gym.gymconfig.merging import ConfigRefused

LAB = """
lab:
  resources_servers:
    lab: {entrypoint: app.py, domain: agent, description: Tools of the lab, host: 0.0.0.0, port: 8123}
lab_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      max_steps: 6
      resources_server: {type: resources_servers, name: lab}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - name: train
          type: train
          jsonl_fpath: resources_servers/lab/data/train.jsonl
          huggingface_identifier: {repo_id: lab/tasks, artifact_fpath: train.jsonl}
          license: Apache 2.0
        - {name: example, type: example, jsonl_fpath: resources_servers/lab/data/example.jsonl}
"""
MODEL = """
policy_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: ${policy_base_url}
      openai_api_key: ${policy_api_key}
      openai_model: ${policy_model_name}
      openai_default_headers: {X-Team: rl}
      drop_input_reasoning_items: ${oc.env:POLICY_DROP_REASONING_ITEMS,false}
"""
ENV = "policy_base_url: https://api.openai.com/v1\npolicy_api_key: sk-1\npolicy_model_name: gpt-5\n"


def describe(*texts, **options):
    return describe_texts(dict(texts), **options)[0]


def refused(*texts):
    with pytest.raises(ConfigRefused) as caught:
        describe(*texts)
    return [str(problem) for problem in caught.value.problems]


def test_servers_agents_models_and_datasets_are_read_and_references_resolved():
    found = describe(("lab.yaml", LAB), ("model.yaml", MODEL), ("env.yaml", ENV))
    (server,) = found.servers
    assert (server.name, server.url, server.description) == ("lab", "http://127.0.0.1:8123", "Tools of the lab")
    (agent,) = found.agents
    assert (agent.name, agent.kind, agent.server, agent.max_steps) == ("lab_simple_agent", "simple_agent", "lab", 6)
    assert found.models == [
        Model(
            name="policy_model",
            key="policy_model.responses_api_models.openai_model",
            provider="openai",
            wire="responses",
            base_urls=["https://api.openai.com/v1"],
            model="gpt-5",
            api_key="sk-1",
            headers={"X-Team": "rl"},
        )
    ]
    key = "lab_simple_agent.responses_api_agents.simple_agent.datasets"
    assert found.datasets == [
        DatasetFile(
            name="train",
            key=f"{key}[0]",
            server="lab",
            split="train",
            wanted="resources_servers/lab/data/train.jsonl",
            license="Apache 2.0",
            source="Hugging Face lab/tasks train.jsonl",
        ),
        DatasetFile(
            name="example",
            key=f"{key}[1]",
            server="lab",
            split="example",
            wanted="resources_servers/lab/data/example.jsonl",
        ),
    ]
    assert found.notes == []


def test_a_vllm_server_may_have_several_addresses():
    text = """
policy_model:
  responses_api_models:
    vllm_model:
      base_url: [http://a:8000/v1, http://b:8000/v1]
      api_key: EMPTY
      model: ${name}
      return_token_id_information: true
      chat_template_kwargs: {enable_thinking: false}
name: tiny
"""
    (model,) = describe(("model.yaml", text)).models
    assert (model.provider, model.wire, model.model, model.captures_tokens) == ("vllm", "chat", "tiny", True)
    assert model.base_urls == ["http://a:8000/v1", "http://b:8000/v1"]
    assert model.extra_body == {"chat_template_kwargs": {"enable_thinking": False}}


def test_azure_has_a_version():
    text = MODEL.replace("openai_model:\n      entry", "azure_openai_model:\n      entry").replace(
        "openai_default_headers: {X-Team: rl}", "default_query: {api-version: 2025-04-01-preview}"
    )
    (model,) = describe(("model.yaml", text), ("env.yaml", ENV)).models
    assert (model.provider, model.api_version) == ("azure", "2025-04-01-preview")


def test_what_an_agent_for_gymnasium_uses_is_a_gymnasium_server():
    (server,) = describe(("lab.yaml", LAB.replace("simple_agent:", "gymnasium_agent:"))).servers
    assert server.is_gymnasium is True


def test_a_file_overrides_what_it_includes_and_a_later_one_the_earlier():
    top = ("top.yaml", "config_paths: [configs/base.yaml]\nlab: {resources_servers: {lab: {port: 9}}}\n")
    later = ("later.yaml", "lab: {resources_servers: {lab: {description: newer}}}\n")
    (server,) = describe(top, ("base.yaml", LAB), later).servers
    assert (server.url, server.description) == ("http://127.0.0.1:9", "newer")


def test_parts_inherit_and_their_source_can_be_removed():
    base = ("base.yaml", LAB.replace("lab:\n  resources", "lab:\n  responses_api_models: {}\n  resources", 1))
    text = """
exam:
  _inherit_from: lab
  _delete_key: responses_api_models
  resources_servers: {lab: {description: An exam}}
exam_agent:
  _copy: lab_simple_agent
  responses_api_agents:
    simple_agent:
      resources_server: {name: exam}
      max_steps: 2
lab_simple_agent:
  responses_api_agents:
    simple_agent:
      resources_server: {name: exam}
"""
    found = describe(base, ("exam.yaml", text))
    assert [(server.name, server.url, server.description) for server in found.servers] == [
        ("exam", "http://127.0.0.1:8123", "An exam")
    ]
    assert sorted((agent.name, agent.server, agent.max_steps) for agent in found.agents) == [
        ("exam_agent", "exam", 2),
        ("lab_simple_agent", "exam", 6),
    ]


def test_inheritance_goes_on_through_what_inherits_itself():
    text = LAB + "second: {_copy: lab}\nthird:\n  _copy: second\n  resources_servers: {lab: {port: 1}}\n"
    found = describe(("lab.yaml", text))
    assert {server.name: server.url for server in found.servers} == {
        "lab": "http://127.0.0.1:8123",
        "second": "http://127.0.0.1:8123",
        "third": "http://127.0.0.1:1",
    }


def test_one_line_forms_expand_to_values():
    text = LAB.replace("max_steps: 6", "max_steps: ${copy:limits.steps}") + "limits: {steps: 4}\n"
    (agent,) = describe(("lab.yaml", text)).agents
    assert agent.max_steps == 4


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("${words}", "hello"),
        ("${.domain} of ${words}", "agent of hello"),
        ("${..lab.domain}", "agent"),
        ("${oc.env:WHO,nobody}", "nobody"),
        ("${oc.env:WHO,${words}}", "hello"),
        ("${oc.select:nothing.here,fine}", "fine"),
        ("${oc.select:words,fine}", "hello"),
        ("${${which}}", "hello"),
        ("null", ""),
    ],
)
def test_references_are_resolved_across_files(written, told):
    text = LAB.replace("Tools of the lab", f'"{written}"' if written != "null" else written)
    assert describe(("lab.yaml", text + "words: hello\nwhich: words\n")).servers[0].description == told


def test_what_only_its_own_server_reads_may_stay_unresolved():
    text = LAB.replace("entrypoint: app.py, domain", "secret: '${nowhere}', other: '???', entrypoint: app.py, domain")
    assert len(describe(("lab.yaml", text)).servers) == 1


def test_models_that_are_started_over_there_are_noted_and_can_be_left_out():
    text = "policy_model: {responses_api_models: {local_vllm_model: {model: x}}}\n"
    (note,) = describe(("model.yaml", text)).notes
    assert "local_vllm_model is started by NeMo Gym itself" in note.message
    assert describe(("model.yaml", text), without_models=True).notes == []


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        (("port: 8123", "port: high"), "lab.resources_servers.lab.port", "must be a whole number, not a text"),
        (("port: 8123", "port: '???'"), "lab.resources_servers.lab.port", "is required and not set (???)"),
        (("port: 8123", "port: '${a_port}'"), "lab.resources_servers.lab.port", "refers to a_port, which is not set"),
        (
            ("port: 8123", "port: '${oc.env:LAB_PORT}'"),
            "lab.resources_servers.lab.port",
            "reads LAB_PORT from the environment, which is not set there",
        ),
        (
            ("port: 8123", "port: '${now:%H}'"),
            "lab.resources_servers.lab.port",
            "${now:…} is not supported",
        ),
        (
            ("name: lab}", "name: lap}"),
            "lab_simple_agent.responses_api_agents.simple_agent.resources_server",
            "refers to 'lap'",
        ),
        (
            ("{type: resources_servers, name: lab}", "lab"),
            "lab_simple_agent.responses_api_agents.simple_agent.resources_server",
            "must be {type: resources_servers, name: …}",
        ),
        (
            ("type: train", "type: training"),
            "lab_simple_agent.responses_api_agents.simple_agent.datasets[0].type",
            "must be one of train, validation, benchmark, example, not 'training'",
        ),
        (
            ("- name: train", "- label: train"),
            "lab_simple_agent.responses_api_agents.simple_agent.datasets[0].name",
            "is needed, as a text",
        ),
        (("    lab: {entry", "    lab: 1\n    lap: {entry"), "lab.resources_servers", "must hold one implementation"),
    ],
)
def test_errors_name_file_and_key(change, key, message):
    path = ("lab.yaml", LAB.replace(*change))
    first = refused(path)[0]
    assert first.startswith(f"lab.yaml: {key}: {message}")


def test_all_that_is_wrong_is_said_at_once_each_with_the_file_that_says_it():
    lab = ("lab.yaml", LAB.replace("name: lab}", "name: lap}"))
    over = ("over.yaml", "lab: {resources_servers: {lab: {port: high}}}\n")
    problems = refused(lab, over)
    assert [problem.split(": ")[0] for problem in problems] == ["over.yaml", "lab.yaml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lab: [", "is not YAML"),
        ("- lab", "has no top-level keys"),
        ("config_paths: [nowhere.yaml]", "config_paths: nowhere.yaml was not given"),
        ("config_paths: nowhere.yaml", "config_paths: must be a list of paths"),
        ("a: {_inherit_from: b.c}\nb: {}", "a._inherit_from: there is no 'b.c' to inherit from"),
        ("a: {_copy: b}\nb: {_copy: a}", "inherits from itself"),
        ("a: {_copy: b, _delete_key: c}\nb: {d: 1}", "there is no key 'c' to remove"),
        ("a: {_copy: b, c: 1}\nb: [1]", "the inherited value has no keys to merge with"),
    ],
)
def test_a_file_that_cannot_be_merged_is_refused(text, message):
    path = ("lab.yaml", text)
    (problem,) = refused(path)
    assert problem.startswith("lab.yaml")
    assert message in problem


def test_a_circle_of_references_ends():
    path = ("lab.yaml", LAB.replace("Tools of the lab", "'${a}'") + "a: ${b}\nb: ${a}\n")
    assert "its references are circular" in refused(path)[0]


def test_files_that_include_each_other_are_read_once():
    first = ("a.yaml", "config_paths: [b.yaml]\n" + LAB)
    second = ("b.yaml", "config_paths: [a.yaml]\nlab: {resources_servers: {lab: {port: 1}}}\n")
    assert describe(first, second).servers[0].url == "http://127.0.0.1:8123"


# -- what NeMo Gym 0.7.0's own configurations hold


@pytest.mark.parametrize("unset", ["''", "MISSING", "http://<host_url>:<port>/v1", "null", "'  '"])
@pytest.mark.parametrize("kind", ["openai_model", "vllm_model"])
def test_a_model_whose_address_is_a_placeholder_is_left_out_and_listed(unset, kind):
    address = "openai_base_url" if kind == "openai_model" else "base_url"
    model = "openai_model" if kind == "openai_model" else "model"
    judge = f"judge:\n  responses_api_models:\n    {kind}: {{{address}: {unset}, {model}: judge-1}}\n"
    found = describe(("lab.yaml", LAB), ("model.yaml", MODEL), ("env.yaml", ENV), ("judge.yaml", judge))
    assert ([one.name for one in found.models], [one.name for one in found.servers]) == (["policy_model"], ["lab"])
    [told] = [str(note) for note in found.notes]
    assert told.startswith(f"judge.yaml: judge.responses_api_models.{kind}: the model judge was left out")
    assert told.endswith("Set it, and register the files again")


def test_a_model_whose_name_is_a_placeholder_is_left_out_and_listed():
    judge = "judge:\n  responses_api_models:\n    vllm_model: {base_url: 'http://127.0.0.1:9/v1', model: MISSING}\n"
    found = describe(("judge.yaml", judge))
    assert found.models == []
    assert "its base URL or model name is not set ('MISSING')" in str(found.notes[0])


def test_an_agent_that_names_no_resource_server_yet_is_left_out_and_listed():
    agent = "simple_agent:\n  responses_api_agents:\n    simple_agent:\n      resources_server:\n        name: ???\n"
    found = describe(("lab.yaml", LAB), ("agent.yaml", agent))
    assert [one.name for one in found.agents] == ["lab_simple_agent"]
    assert [note.key for note in found.notes if "simple_agent was left out" in note.message] == [
        "simple_agent.responses_api_agents.simple_agent.resources_server.name"
    ]


ENVIRONMENT_SERVER = """
turns:
  environment_servers:
    {kind}:
      host: 127.0.0.1
      port: 8777
      resources_server: {{type: resources_servers, name: lab}}
      agent_server: {{type: responses_api_agents, name: {agent}}}
"""


def test_an_environment_server_is_an_agent_that_runs_episodes():
    turns = ENVIRONMENT_SERVER.format(kind="single_agent_turn", agent="lab_simple_agent")
    found = describe(("lab.yaml", LAB), ("turns.yaml", turns))
    [server] = [one for one in found.agents if one.runs_episodes]
    assert (server.name, server.url, server.server) == ("turns", "http://127.0.0.1:8777", "lab")


@pytest.mark.parametrize(
    ("kind", "agent", "told"),
    [
        ("single_agent_turn_legacy", "lab_simple_agent", "GymWeb calls lab_simple_agent itself"),
        ("legacy_agent", "lab_simple_agent", "GymWeb calls lab_simple_agent itself"),
        ("single_agent_turn", "'???'", "since it names no server (???)"),
    ],
)
def test_an_environment_server_of_flat_rows_or_without_servers_is_left_out_and_listed(kind, agent, told):
    found = describe(("lab.yaml", LAB), ("turns.yaml", ENVIRONMENT_SERVER.format(kind=kind, agent=agent)))
    assert not any(one.runs_episodes for one in found.agents)
    [note] = [str(note) for note in found.notes if "environment server turns" in note.message]
    assert note.startswith("turns.yaml: turns.environment_servers")
    assert note.endswith(told)


def test_keys_of_a_dataset_that_have_no_meaning_here_are_listed_with_what_to_do():
    given = "example.jsonl, taskset: sums, prepare_script: benchmarks/sums/prepare.py}"
    found = describe(("lab.yaml", LAB.replace("example.jsonl}", given)))
    assert [(note.key.rpartition(".")[2], note.message.partition(": ")[0]) for note in found.notes[:2]] == [
        ("prepare_script", "'benchmarks/sums/prepare.py' was not run"),
        ("taskset", "'sums' routes no tasks here"),
    ]
    assert [each.name for each in found.datasets] == ["train", "example"]


@pytest.mark.parametrize("given", ["lab.yaml", "configs/lab.yaml", "gym/resources/configs/lab.yaml"])
def test_an_included_file_is_found_by_the_end_of_its_path(given):
    found = describe(("run.yaml", "config_paths: [resources/configs/lab.yaml]"), (given, LAB))
    assert [one.name for one in found.servers] == ["lab"]


def test_environment_variables_are_read_only_if_they_are_given(monkeypatch):
    monkeypatch.setenv("LAB_HOST", "of-this-machine")
    text = "lab: {resources_servers: {lab: {host: '${oc.env:LAB_HOST,10.0.0.1}', port: '${oc.env:LAB_PORT,8001}'}}}"
    assert [server.url for server in describe(("lab.yaml", text)).servers] == ["http://10.0.0.1:8001"]
    given = {"LAB_HOST": "10.0.0.2", "LAB_PORT": "8002"}
    assert [server.url for server in describe(("lab.yaml", text), environment=given).servers] == [
        "http://10.0.0.2:8002"
    ]


@pytest.mark.parametrize("names", [("lab.yaml", "resources/lab.yaml"), ("resources/lab.yaml", "lab.yaml")])
def test_a_file_includes_another_of_the_same_name(names):
    texts = {
        "lab.yaml": "config_paths: [resources/lab.yaml]\nlab: {resources_servers: {lab: {port: 9}}}\n",
        "resources/lab.yaml": LAB,
    }
    found = describe(*((name, texts[name]) for name in names))
    assert [(one.name, one.url) for one in found.servers] == [("lab", "http://127.0.0.1:9")]
