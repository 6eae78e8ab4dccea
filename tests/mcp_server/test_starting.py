"""Collections start within a budget of rollouts and cost, and once for each idempotency key."""

from typing import Any

import pytest

from apps.accounts.models import AuditEntry, Scope
from apps.rollouts.models import Collection
from tests.factories import make_agent, make_dataset, make_policy_model, make_row, make_user
from tests.mcp_server.calls import call, client_of, refused

pytestmark = pytest.mark.django_db
BUDGET = {"max_rollouts": 10, "max_cost": 1.0}


@pytest.fixture
def client():
    return client_of(make_user(), Scope.ROLLOUTS_RUN)


def plan(**prices: Any) -> dict[str, Any]:
    dataset = make_dataset([make_row(f"No {number}") for number in range(8)])
    model = make_policy_model(**prices)
    return {"dataset": dataset.slug, "agent": make_agent().slug, "policy_model": model.slug}


def test_a_plan_within_the_budget_starts_with_its_cost_limit(client):
    reply = call(client, "start_collection", **plan(), **BUDGET, limit=5, repeats=2)
    started = Collection.objects.get()
    assert (reply["collection"]["id"], reply["collection"]["total"]) == (started.pk, 10)
    assert (started.total, started.max_cost) == (10, 1.0)
    entry = AuditEntry.objects.get(noun="collection")
    assert (entry.api_key.name, entry.origin) == ("agent", "api")


def test_the_lists_give_the_slugs_of_a_plan(client):
    given = plan(name="Priced", input_price=2.0)
    chosen = {
        noun: next(row["slug"] for row in call(client, tool, **asked)["results"] if row["slug"] == given[noun])
        for noun, tool, asked in (
            ("dataset", "list_datasets", {"limit": 5}),
            ("agent", "list_agents", {}),
            ("policy_model", "list_policy_models", {"q": "Priced"}),
        )
    }
    [model] = call(client, "list_policy_models", q="Priced")["results"]
    assert (model["input_price"], "base_url" in model) == (2.0, False)
    assert call(client, "start_collection", **chosen, **BUDGET)["collection"]["total"] == 8


@pytest.mark.parametrize("missing", ["max_rollouts", "max_cost"])
def test_a_budget_is_required(client, missing):
    budget = {name: value for name, value in BUDGET.items() if name != missing}
    assert missing in refused(client, "start_collection", **plan(), **budget)
    assert not Collection.objects.exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"repeats": 2}, "16 rollouts"),
        ({"max_rollouts": 7}, "8 rollouts"),
        ({"max_cost": 0}, "max_cost"),
        ({"max_cost": -1}, "max_cost"),
        ({"max_cost": None}, "max_cost"),
        ({"max_rollouts": 0}, "max_rollouts"),
        ({"dataset": "none"}, "dataset"),
        ({"concurrency": 10_000}, "concurrency"),
    ],
    ids=str,
)
def test_a_plan_beyond_its_budget_starts_nothing(client, given, says):
    assert says in refused(client, "start_collection", **{**plan(), **BUDGET, **given})
    assert not Collection.objects.exists()


def test_a_plan_that_costs_more_than_its_budget_starts_nothing(client):
    priced = plan(input_price=1_000_000.0, output_price=1_000_000.0)
    assert "estimated cost" in refused(client, "start_collection", **priced, **BUDGET)
    assert not Collection.objects.exists()
    estimate = call(client, "estimate_collection", **priced)["estimate"]
    assert (estimate["rollouts"], estimate["cost"] > 1.0) == (8, True)


def test_a_plan_without_prices_says_that_its_cost_is_not_limited(client):
    assert "no prices" in call(client, "start_collection", **plan(), **BUDGET)["budget"]


def test_a_repeated_call_with_the_same_key_starts_one_collection(client):
    given = {**plan(), **BUDGET, "idempotency_key": "again"}
    first, second = (call(client, "start_collection", **given)["collection"]["id"] for _ in range(2))
    assert first == second
    assert Collection.objects.count() == 1
