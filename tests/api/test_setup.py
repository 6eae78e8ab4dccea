"""Policy models, environments, agents and comments: written through their rooms, and secrets never come out."""

import json

import pytest
from django.db.models import ProtectedError

from apps.accounts.models import AuditEntry, Role
from apps.dashboard import urls_setup
from apps.environments.models import Environment
from apps.gym.slugs import RESERVED_SLUGS
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import stored_key
from tests.api.conftest import client_of
from tests.factories import make_agent, make_collection, make_environment, make_policy_model, make_rollout

pytestmark = pytest.mark.django_db

SECRET = "sk-live-0123456789abcdef"
MODEL = {
    "slug": "qwen",
    "name": "Qwen",
    "base_url": "https://models.example.org/v1",
    "model_name": "qwen3",
    "api_key": SECRET,
}


def send(client, method, url, body):
    return client.generic(method, f"/api/v1/{url}", json.dumps(body), content_type="application/json")


def pointers(answer):
    assert answer.headers["Content-Type"] == "application/problem+json"
    return sorted(error["pointer"] for error in answer.json()["errors"])


def test_a_key_goes_in_and_never_comes_out(engineer):
    answers = [
        send(engineer, "POST", "policy-models/", MODEL),
        send(engineer, "PATCH", "policy-models/qwen/", {"name": "Qwen 3"}),
        engineer.get("/api/v1/policy-models/"),
        engineer.get("/api/v1/policy-models/qwen/"),
        send(engineer, "PATCH", "policy-models/qwen/", {"base_url": "https://elsewhere.example.org/v1"}),
        send(engineer, "PATCH", "policy-models/qwen/", {"api_key": SECRET, "max_tries": 0}),
        send(engineer, "POST", "policy-models/", MODEL),
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 400, 400, 400]
    assert [answer for answer in answers if SECRET.encode() in answer.content] == []
    assert "api_key" not in answers[0].json() and "api_key_encrypted" not in answers[0].json()
    stored = PolicyModel.objects.get()
    assert (stored.name, stored_key(stored)) == ("Qwen 3", SECRET)
    assert answers[3].json()["api_key_hint"] == stored.api_key_hint
    assert SECRET not in str(list(PolicyModel.objects.values())) + str(list(AuditEntry.objects.values()))


def test_a_new_address_asks_for_the_key_again(engineer):
    send(engineer, "POST", "policy-models/", MODEL)
    moved = {"base_url": "https://elsewhere.example.org/v1"}
    assert pointers(send(engineer, "PATCH", "policy-models/qwen/", moved)) == ["/api_key"]
    assert send(engineer, "PATCH", "policy-models/qwen/", {**moved, "api_key": "sk-new-1"}).status_code == 200
    assert stored_key(PolicyModel.objects.get()) == "sk-new-1"


def test_missing_fields_of_a_model_are_named(engineer):
    assert pointers(send(engineer, "POST", "policy-models/", {})) == ["/name", "/slug"]
    private = {**MODEL, "base_url": "http://127.0.0.1:1/v1"}
    assert pointers(send(engineer, "POST", "policy-models/", private)) == ["/base_url"]
    assert pointers(send(engineer, "POST", "policy-models/", {**MODEL, "sampling": []})) == ["/sampling"]
    assert pointers(send(engineer, "POST", "policy-models/", {"slug": "a", "name": "A"})) == [
        "/base_url",
        "/model_name",
    ]
    assert not PolicyModel.objects.exists()


def test_a_scripted_model_is_healthy_without_an_endpoint(engineer):
    model = make_policy_model()
    answer = engineer.post(f"/api/v1/policy-models/{model.slug}/check/")
    assert (answer.status_code, answer.json()["health"]) == (200, "healthy")


def test_an_environment_is_created_and_changed(engineer):
    given = {"slug": "sums", "name": "Sums", "adapter": "builtin", "builtin": "calculator"}
    assert send(engineer, "POST", "environments/", given).status_code == 201
    assert send(engineer, "PATCH", "environments/sums/", {"concurrency": 5}).json()["concurrency"] == 5
    assert pointers(send(engineer, "PATCH", "environments/sums/", {"builtin": "unknown"})) == ["/builtin"]
    private = {"slug": "w", "name": "W", "adapter": "http", "base_url": "http://169.254.169.254/"}
    assert pointers(send(engineer, "POST", "environments/", private)) == ["/base_url"]
    stored = Environment.objects.get(slug="sums")
    assert (stored.builtin, stored.concurrency) == ("calculator", 5)


def test_a_built_in_environment_is_healthy(engineer):
    environment = make_environment(builtin="calculator")
    answer = engineer.post(f"/api/v1/environments/{environment.slug}/check/")
    assert (answer.status_code, answer.json()["health"]) == (200, "healthy")


def test_an_environment_cannot_be_told_that_it_is_healthy(engineer):
    environment = make_environment()
    answer = send(engineer, "PATCH", f"environments/{environment.slug}/", {"health": "healthy", "name": "New"})
    assert (answer.json()["health"], answer.json()["name"]) == ("unknown", "New")


def test_an_agent_is_created_and_changed(engineer):
    given = {"slug": "careful", "name": "Careful", "system_prompt": "Think.", "max_steps": 3}
    created = send(engineer, "POST", "agents/", given)
    assert (created.status_code, created.json()["max_steps"], created.json()["examples"]) == (201, 3, [])
    changed = send(engineer, "PUT", "agents/careful/", {**given, "max_steps": 5})
    assert (changed.status_code, changed.json()["max_steps"]) == (200, 5)
    assert pointers(send(engineer, "PATCH", "agents/careful/", {"time_limit": 0, "examples": ["x"]})) == [
        "/examples/0",
        "/time_limit",
    ]


def test_a_comment_is_signed_by_who_wrote_it():
    engineer = client_of(Role.ENGINEER)
    rollout = make_rollout(make_collection())
    answer = send(engineer, "POST", "comments/", {"rollout": rollout.pk, "text": "Wrong tool.", "seq": 2})
    assert (answer.status_code, answer.json()["author"]) == (201, engineer.get("/api/v1/me/").json()["username"])
    refused = send(engineer, "POST", "comments/", {"rollout": rollout.pk, "text": "?", "seq": 99})
    assert (refused.status_code, refused.json()["type"]) == (400, "urn:gymweb:problem:comment-refused")
    assert pointers(send(engineer, "POST", "comments/", {"rollout": 999999, "text": ""})) == ["/rollout", "/text"]


def test_an_annotator_changes_nothing():
    annotator = client_of(Role.ANNOTATOR)
    agent, model, environment = make_agent(), make_policy_model(), make_environment()
    refused = [
        send(annotator, "POST", "policy-models/", MODEL),
        send(annotator, "PATCH", f"policy-models/{model.slug}/", {"name": "x"}),
        send(annotator, "POST", f"policy-models/{model.slug}/check/", {}),
        send(annotator, "PATCH", f"agents/{agent.slug}/", {"name": "x"}),
        send(annotator, "PATCH", f"environments/{environment.slug}/", {"name": "x"}),
        send(annotator, "POST", f"environments/{environment.slug}/check/", {}),
        send(annotator, "POST", "collections/", {}),
        send(annotator, "POST", "pair-sets/", {}),
        send(annotator, "POST", "exports/", {}),
    ]
    assert {answer.status_code for answer in refused} == {403}


def test_an_unknown_field_is_refused_with_a_suggestion(engineer):
    answer = send(engineer, "POST", "agents/", {"slug": "a", "name": "A", "max_step": 3})
    [error] = answer.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/max_step", "unknown")
    assert "Did you mean “max_steps”" in error["message"]


@pytest.mark.parametrize("noun", ["agents", "environments", "policy-models"])
def test_a_read_object_can_be_sent_back_with_a_change(engineer, noun):
    row = {"agents": make_agent, "environments": make_environment, "policy-models": make_policy_model}[noun]()
    shown = engineer.get(f"/api/v1/{noun}/{row.slug}/").json()
    answer = send(engineer, "PUT", f"{noun}/{row.slug}/", {**shown, "name": "Changed"})
    assert answer.status_code == 200
    assert {**answer.json(), "updated_at": ""} == {**shown, "name": "Changed", "updated_at": ""}


def test_all_that_is_wrong_with_a_body_is_said_at_once(engineer):
    body = {"slug": "a b", "max_step": 3, "max_steps": 0}
    answer = send(engineer, "POST", "agents/", body)
    found = sorted((error["pointer"], error["code"]) for error in answer.json()["errors"])
    assert found == [
        ("/max_step", "unknown"),
        ("/max_steps", "min_value"),
        ("/name", "required"),
        ("/slug", "invalid"),
    ]
    # What no column can hold is refused before anything else is looked at.
    answer = send(engineer, "POST", "agents/", {**body, "examples": [{"content": "\x00"}]})
    assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [
        ("/examples/0/content", "unstorable")
    ]


def test_invalid_sampling_is_refused_everywhere(engineer):
    hot = {"sampling": {"temperature": "hot"}}
    make_agent(slug="careful")
    dataset, policy_model = make_collection().dataset, make_policy_model()
    plan = {"dataset": dataset.slug, "agent": "careful", "policy_model": policy_model.slug, **hot}
    answers = [
        send(engineer, "POST", "policy-models/", {**MODEL, **hot}),
        send(engineer, "PATCH", "agents/careful/", hot),
        send(engineer, "POST", "collections/", plan),
    ]
    for answer in answers:
        assert (answer.status_code, pointers(answer)) == (400, ["/sampling"])
        message = answer.json()["errors"][0]["message"]
        assert ("temperature" in message, "from 0 to 2" in message, "'hot'" in message) == (True, True, True)


def test_every_field_of_a_policy_model_goes_in_and_comes_out(engineer):
    given = {
        **MODEL,
        "provider": "vllm",
        "wire": "chat",
        "more_base_urls": ["https://b.example.org/v1"],
        "version": "step-200",
        "reasoning": "text",
        "extra_headers": {"X-Team": "rl"},
        "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
        "renamed_fields": {"max_completion_tokens": "max_tokens"},
    }
    answer = send(engineer, "POST", "policy-models/", given)
    assert answer.status_code == 201
    shown = engineer.get("/api/v1/policy-models/qwen/").json()
    assert {name: shown[name] for name in given if name != "api_key"} == {
        name: value for name, value in given.items() if name != "api_key"
    }
    azure = {"provider": "azure", "api_version": "", "more_base_urls": []}
    assert pointers(send(engineer, "PATCH", "policy-models/qwen/", azure)) == ["/api_version"]


def test_openai_needs_no_base_url(engineer):
    given = {"slug": "gpt", "name": "GPT", "provider": "openai", "wire": "responses", "model_name": "gpt-5"}
    answer = send(engineer, "POST", "policy-models/", given)
    assert (answer.status_code, answer.json()["base_url"]) == (201, "https://api.openai.com/v1")


def test_anthropic_needs_no_base_url_and_no_wire(engineer):
    given = {"slug": "claude", "name": "Claude", "provider": "anthropic", "model_name": "claude-x"}
    answer = send(engineer, "POST", "policy-models/", given)
    assert (answer.status_code, answer.json()["base_url"]) == (201, "https://api.anthropic.com/v1")
    assert answer.json()["wire"] == "messages"
    elsewhere = {"provider": "vllm", "base_url": "https://a.example/v1"}
    assert pointers(send(engineer, "PATCH", "policy-models/claude/", elsewhere)) == ["/wire"]


JUDGED = {"slug": "essays", "name": "Essays", "adapter": "builtin", "builtin": "judged"}


def test_a_judge_is_one_of_the_policy_models_with_a_rubric_and_settings(engineer):
    judge = make_policy_model(slug="critic")
    settings = {"question": "compare", "worth": {"tie": 0.25}, "tries": 5}
    given = {**JUDGED, "judge_model": "critic", "judge_rubric": "Is {answer} kind?", "judge_settings": settings}
    made = send(engineer, "POST", "environments/", given)
    assert made.status_code == 201
    shown = engineer.get("/api/v1/environments/essays/").json()
    assert [shown[name] for name in ("judge_model", "judge_rubric", "judge_settings")] == [
        "critic",
        "Is {answer} kind?",
        settings,
    ]
    assert Environment.objects.get(slug="essays").judge_model == judge
    # Another built-in asks no judge: a row never says two things.
    moved = send(engineer, "PATCH", "environments/essays/", {"builtin": "exact_match"}).json()
    assert [moved[name] for name in ("judge_model", "judge_rubric", "judge_settings")] == [None, "", {}]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"judge_model": None}, "/judge_model"),
        ({"judge_model": "nobody"}, "/judge_model"),
        ({"judge_settings": {"question": "rank"}}, "/judge_settings"),
        ({"judge_settings": {"tries": 0}}, "/judge_settings"),
        ({"judge_settings": {"scale": {"low": 5, "high": 1}}}, "/judge_settings"),
        ({"judge_settings": {"sampling": {"text": {}}}}, "/judge_settings"),
        ({"judge_settings": []}, "/judge_settings"),
    ],
)
def test_a_judge_that_cannot_be_asked_is_refused_where_it_is_wrong(engineer, change, pointer):
    make_policy_model(slug="critic")
    refused = send(engineer, "POST", "environments/", {**JUDGED, "judge_model": "critic", **change})
    assert (refused.status_code, pointers(refused)) == (400, [pointer])
    assert not Environment.objects.filter(slug="essays").exists()


def test_a_model_that_judges_can_not_be_deleted_from_under_its_environment():
    judge = make_policy_model(slug="critic")
    make_environment(builtin="judged", judge_model=judge)
    with pytest.raises(ProtectedError):
        judge.delete()


def test_reward_by_version_of_all_collections_or_of_one(viewer):
    model = make_policy_model(slug="qwen")
    one, other = make_collection(policy_model=model), make_collection(policy_model=model)
    rollouts = [
        make_rollout(one, model_version="step-1", reward=0.5),
        make_rollout(other, model_version="step-2", reward=1.0),
    ]
    common = {"rollouts": 1, "tasks": 1, "confidence": None}
    moments = [rollout.finished_at.isoformat().replace("+00:00", "Z") for rollout in rollouts]
    expected = [
        {"version": version, **common, "solved": solved, "mean_reward": mean, "first_at": at, "last_at": at}
        for version, solved, mean, at in [("step-1", 0, 0.5, moments[0]), ("step-2", 1, 1.0, moments[1])]
    ]
    url = "/api/v1/policy-models/qwen/versions/"
    assert viewer.get(url).json() == expected
    assert viewer.get(f"{url}?collection={other.pk}").json() == expected[1:]


@pytest.mark.parametrize("given", ["x", "999999", "-1", "9" * 30, "foreign"])
def test_a_collection_of_another_model_says_nothing_of_this_ones_versions(viewer, given):
    make_policy_model(slug="qwen")
    asked = make_collection().pk if given == "foreign" else given
    answer = viewer.get(f"/api/v1/policy-models/qwen/versions/?collection={asked}")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "?collection")


def test_the_key_of_an_environment_goes_in_and_never_comes_out(engineer):
    given = {"slug": "lab", "name": "Lab", "adapter": "mcp", "base_url": "https://lab.example.org/mcp"}
    made = send(engineer, "POST", "environments/", {**given, "api_key": "sesame-open-1234"})
    assert made.status_code == 201
    assert ("sesame" in made.text, made.json()["api_key_hint"]) == (False, "…1234")
    refused = send(engineer, "PATCH", "environments/lab/", {"base_url": "https://other.example.org/mcp"})
    assert pointers(refused) == ["/api_key"]
    assert "sesame" not in engineer.get("/api/v1/environments/lab/").text


RESERVED = {
    "datasets": {"name": "New", "environment": "sums"},
    "environments": {"name": "New", "adapter": "builtin", "builtin": "calculator"},
    "policy-models": {"name": "New", "provider": "scripted"},
    "agents": {"name": "New"},
}


@pytest.mark.parametrize("noun", RESERVED)
@pytest.mark.parametrize("slug", ["new", "New", "import"])
def test_a_word_that_addresses_of_pages_use_is_no_slug(engineer, noun, slug):
    make_environment(slug="sums")
    refused = engineer.post(f"/api/v1/{noun}/", {**RESERVED[noun], "slug": slug}, "application/json")
    assert (refused.status_code, [error["pointer"] for error in refused.json()["errors"]]) == (400, ["/slug"])
    assert engineer.get(f"/api/v1/{noun}/{slug}/").status_code == 404
    taken = engineer.post(f"/api/v1/{noun}/", {**RESERVED[noun], "slug": f"{slug}-one"}, "application/json")
    assert taken.status_code == 201


def test_every_word_in_the_place_of_a_slug_is_reserved():
    routes = [str(one.pattern) for one in urls_setup.urlpatterns]
    nouns = {route.partition("<slug:slug>")[0] for route in routes if "<slug:slug>" in route}
    words = {route.removeprefix(noun).split("/")[0] for noun in nouns for route in routes if route.startswith(noun)}
    assert {word for word in words if word and not word.startswith("<")} == RESERVED_SLUGS


def test_a_description_of_a_dataset_is_as_long_as_it_may_be_changed_to(engineer):
    make_environment(slug="sums")
    body = {"slug": "long", "name": "Long", "environment": "sums", "description": "x" * 10_001}
    refused = engineer.post("/api/v1/datasets/", body, "application/json")
    assert refused.status_code == 400
    assert [(one["pointer"], one["code"]) for one in refused.json()["errors"]] == [("/description", "max_length")]
    made = engineer.post("/api/v1/datasets/", {**body, "description": "x" * 10_000}, "application/json")
    assert (made.status_code, len(made.json()["description"])) == (201, 10_000)
