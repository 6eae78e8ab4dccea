"""`manage.py import_gym_config`: what is registered, what a second import changes, and how it refuses."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import stored_key
from apps.rollouts.imports.gym_config_import import ask_head
from apps.tasks.models import Dataset, Task
from tests.factories import make_row
from tests.gym.gymconfig.test_describing import ENV, LAB, MODEL

pytestmark = pytest.mark.django_db


@pytest.fixture
def serve_json():
    """Starts a server that answers these paths with these values, and the rest with 404; gives its URL."""
    running = []

    def start(answers):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(answers.get(self.path, {"detail": "Not Found"})).encode()
                self.send_response(200 if self.path in answers else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                return None

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def repository(tmp_path, monkeypatch, settings):
    """A folder laid out as NeMo Gym's, where the command is run."""
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    folder = tmp_path / "resources_servers" / "lab"
    (folder / "configs").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "configs" / "lab.yaml").write_text(LAB)
    (folder / "data" / "example.jsonl").write_text(
        "".join(json.dumps(make_row(f"{n}?", str(n))) + "\n" for n in range(3))
    )
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "env.yaml").write_text(ENV)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    out = StringIO()
    call_command("import_gym_config", "resources_servers/lab/configs/lab.yaml", "model.yaml", *arguments, stdout=out)
    return [line.split() for line in out.getvalue().splitlines()]


def test_everything_is_registered_and_told(repository):
    lines = [" ".join(line) for line in run()]
    assert lines == [
        "created environment lab http://127.0.0.1:8123",
        "created agent lab_simple_agent",
        "created policy model policy_model https://api.openai.com/v1",
        "created dataset lab-train",
        "created dataset lab-example",
        "skipped tasks lab-train resources_servers/lab/data/train.jsonl is not on this machine; "
        "it is to be had from Hugging Face lab/tasks train.jsonl",
        "created tasks lab-example lab-example@v1: 3 tasks",
        "6 created, 1 skipped",
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
    dataset = Dataset.objects.get(slug="lab-example")
    assert (dataset.environment, dataset.latest_version().task_count) == (lab, 3)
    assert set(Task.objects.filter(dataset=dataset).values_list("split", flat=True)) == {"example"}


def test_a_second_import_changes_nothing(repository):
    run()
    stamps = list(Environment.objects.values_list("updated_at")) + list(PolicyModel.objects.values_list("updated_at"))
    lines = [" ".join(line[:3]) for line in run()]
    assert lines == [
        "unchanged environment lab",
        "unchanged agent lab_simple_agent",
        "unchanged policy model",
        "skipped tasks lab-train",
        "unchanged tasks lab-example",
        "4 unchanged, 1",
    ]
    assert stamps == list(Environment.objects.values_list("updated_at")) + list(
        PolicyModel.objects.values_list("updated_at")
    )


def test_what_changed_is_changed_and_what_people_set_stays(repository):
    run()
    Agent.objects.update(system_prompt="Be brief.")
    (repository / "env.yaml").write_text(ENV.replace("sk-1", "sk-2"))
    with (repository / "resources_servers/lab/data/example.jsonl").open("a") as file:
        file.write(json.dumps(make_row("one more", "1")) + "\n")
    lines = run(
        "--server",
        "lab=http://127.0.0.1:9001/",
        "--set",
        "lab_simple_agent.responses_api_agents.simple_agent.max_steps=3",
    )
    assert [" ".join(line[:3]) for line in lines[:3]] == [
        "changed environment lab",
        "changed agent lab_simple_agent",
        "changed policy model",
    ]
    assert " ".join(lines[4]) == "changed tasks lab-example lab-example@v2: 4 tasks"
    assert Environment.objects.get(slug="lab").base_url == "http://127.0.0.1:9001"
    assert Agent.objects.values_list("max_steps", "system_prompt").get(slug="lab_simple_agent") == (3, "Be brief.")
    assert stored_key(PolicyModel.objects.get(slug="policy_model")) == "sk-2"


def test_a_key_that_can_no_longer_be_read_is_stored_anew(repository):
    run()
    PolicyModel.objects.filter(slug="policy_model").update(api_key_encrypted="damaged")
    assert [" ".join(line[:3]) for line in run()][2] == "changed policy model"
    assert stored_key(PolicyModel.objects.get(slug="policy_model")) == "sk-1"


def test_a_server_without_an_address_is_refused_with_what_to_do_and_nothing_is_written(repository):
    config = repository / "resources_servers/lab/configs/lab.yaml"
    config.write_text(LAB.replace(", host: 0.0.0.0, port: 8123", ""))
    with pytest.raises(CommandError) as refused:
        run()
    assert str(refused.value) == (
        "resources_servers/lab/configs/lab.yaml: lab.resources_servers.lab: has neither host nor port: start it, and "
        "say where: lab=URL (of the command --server or --head)"
    )
    assert not Environment.objects.filter(slug="lab").exists()
    assert not PolicyModel.objects.filter(slug="policy_model").exists()
    assert not Agent.objects.filter(slug="lab_simple_agent").exists()


def test_an_address_that_is_closed_is_refused_by_file_and_key(repository, settings):
    settings.OUTBOUND_ALLOW = []
    with pytest.raises(CommandError, match=r"lab.yaml: lab.resources_servers.lab: base_url: .*GYMWEB_OUTBOUND_ALLOW"):
        run()


def test_a_file_with_bad_rows_is_refused_by_its_first_bad_line(repository):
    (repository / "resources_servers/lab/data/example.jsonl").write_text('{"no": "prompt"}\n')
    with pytest.raises(CommandError, match=r"example.jsonl: .*datasets\[1\]: .*line 1: "):
        run()


def test_a_gymnasium_agent_makes_a_gymnasium_server(repository):
    config = repository / "resources_servers/lab/configs/lab.yaml"
    config.write_text(LAB.replace("simple_agent:", "gymnasium_agent:"))
    run("--no-data")
    assert Environment.objects.get(slug="lab").adapter == "gymnasium"
    assert not Dataset.objects.filter(slug="lab-example").exists()


def test_a_harness_of_its_own_is_left_out_and_said(repository):
    config = repository / "resources_servers/lab/configs/lab.yaml"
    config.write_text(LAB.replace("simple_agent:", "codex_agent:"))
    lines = [" ".join(line) for line in run("--no-upload")]
    assert lines[1].startswith("skipped agent lab_codex_agent codex_agent is a harness of its own")
    assert Dataset.objects.get(slug="lab-example").latest_version() is None


@pytest.mark.parametrize("given", ["lab", "=http://127.0.0.1"])
def test_a_pair_without_a_value_is_refused(repository, given):
    with pytest.raises(CommandError, match="write it with a name, = and a value"):
        run("--server", given)


def test_the_head_server_knows_where_all_run(repository, serve_json):
    config = repository / "resources_servers/lab/configs/lab.yaml"
    config.write_text(LAB.replace(", host: 0.0.0.0, port: 8123", ""))
    head = serve_json({"/server_instances": [{"config_path": "lab", "name": "lab", "url": "http://127.0.0.1:8777"}]})
    run("--head", head)
    assert Environment.objects.get(slug="lab").base_url == "http://127.0.0.1:8777"


def test_a_head_server_that_is_not_one_is_named(repository, serve_json):
    with pytest.raises(CommandError, match="GET /server_instances answered 404"):
        run("--head", serve_json({}))
    assert ask_head(serve_json({"/server_instances": {"detail": "no list"}})) == {}
