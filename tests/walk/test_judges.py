"""A judge over real wires: set by REST, a mock model in a process of its own, verdicts on the page and in the API."""

import json
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync
from django.test import Client

from apps.accounts.api_keys import create_api_key
from apps.environments.models import Environment
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from tests.factories import make_agent, make_dataset, make_policy_model, make_row, make_user
from tests.walk.processes import process

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.usefixtures("migrated"), pytest.mark.slow]


def walk(settings, *, wire, judge_settings, mock, repeats=3, **fields):
    """Set model and environment by REST, collect, and give the collection and a client of the API."""
    settings.OUTBOUND_ALLOW, settings.WORKER_BACKGROUND_JOBS = ["127.0.0.1"], []
    _, token = create_api_key(user=make_user("engineer"), name="walk", scopes=["admin"])
    api = Client(headers={"authorization": f"Bearer {token}"})

    def send(url, body):
        made = api.post(f"/api/v1/{url}", json.dumps(body), content_type="application/json")
        assert made.status_code == 201, made.text
        return made.json()

    with process(ROOT / "scripts" / "mock_model.py", "--port", "PORT", *mock) as port:
        model = {
            "slug": "judge",
            "name": "Judge",
            "provider": "compatible",
            "wire": wire,
            "base_url": f"http://127.0.0.1:{port}/v1",
            "model_name": "mock",
            "max_tries": 1,
        }
        send("policy-models/", model)
        environment = {
            "slug": "essays",
            "name": "Essays",
            "adapter": "builtin",
            "builtin": "judged",
            "judge_model": "judge",
            "judge_rubric": "Is {answer} what {task} asks for?",
            "judge_settings": judge_settings,
            **fields,
        }
        assert send("environments/", environment)["judge_model"] == "judge"
        dataset = make_dataset([make_row("6 * 7?", "42")], environment=Environment.objects.get(slug="essays"))
        planned = plan_collection(
            Plan(
                dataset=dataset,
                agent=make_agent(),
                policy_model=make_policy_model(mistake_rate=0.0),
                repeats=repeats,
                max_attempts=1,
            )
        )
        collection = async_to_sync(finish_collection)(planned, progress=lambda _: None)
    return collection, api


def trace_of(api, rollout):
    return [each["event"] for each in api.get(f"/api/v1/rollouts/{rollout.pk}/trace/").json()["events"]]


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_a_judge_scores_over_both_wires_and_its_call_is_on_the_page_and_in_the_api(settings, wire):
    collection, api = walk(settings, wire=wire, judge_settings={}, mock=("--verdict", '{"score": 7}'))
    assert (collection.completed, collection.mean_reward) == (3, pytest.approx(0.7))
    rollout = Rollout.objects.earliest("id")
    *_, call, verification = trace_of(api, rollout)
    assert (call["type"], call["judge"], call["model"]) == ("judge_call", "judge", "mock")
    assert call["verdict"] == {"said": 7.0, "value": 0.7, "explanation": "By rule."}
    assert (verification["reward"], verification["explanation"]) == (0.7, "7: By rule.")
    shown = api.get(f"/api/v1/rollouts/{rollout.pk}/").json()
    assert (shown["judge_calls"], shown["judge_tokens"]) == (1, 160)
    metrics = api.get(f"/api/v1/collections/{collection.pk}/metrics/").json()
    assert metrics["judge"] == {"calls": 3, "tokens": 480, "failed": 0, "contradicted": 0, "agreement": None}
    page = Client()
    page.force_login(make_user("viewer"))
    text = page.get(f"/rollouts/{rollout.pk}/").text
    for part in ("Judge call", "By rule.", "question", "160 in 1 call"):
        assert part in text
    assert "480 tokens" in page.get(f"/collections/{collection.pk}/").text


@pytest.mark.parametrize(
    ("mock", "judge_settings", "fields", "said"),
    [
        (("--verdict", "It is fine, I think."), {"tries": 2}, {}, "gave no verdict in 2 tries"),
        (("--verdict", '{"winner": "first"}'), {"question": "compare"}, {}, "contradicts itself"),
        (
            ("--verdict", '{"equal": true}', "--hang", "1"),
            {"question": "equal"},
            {"verify_timeout": 0.5},
            "within 0.5 s",
        ),
        (("--verdict", '{"score": 7}', "--fail-500", "1"), {}, {}, "internal error"),
    ],
)
def test_a_judge_that_fails_leaves_no_reward_and_the_collection_says_so(settings, mock, judge_settings, fields, said):
    collection, api = walk(settings, wire="chat", judge_settings=judge_settings, mock=mock, repeats=1, **fields)
    assert (collection.state, collection.failed, collection.rewarded) == (Collection.State.COMPLETED, 1, 0)
    shown = api.get(f"/api/v1/rollouts/?collection={collection.pk}&error_kind=judge_error").json()["results"][0]
    assert (shown["reward"], said in shown["error_message"]) == (None, True)
    kinds = [event["type"] for event in trace_of(api, Rollout.objects.get())]
    assert (kinds[-2:], "verification" in kinds) == (["judge_call", "error"], False)
