"""Rewards beyond ±1e100 that earlier versions stored: the migration bounds them, and figures and pages have an end."""

import dataclasses
import importlib
import json
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction

from apps.exports.models import PairSet, PreferencePair
from apps.rollouts.measuring import measure_collection
from apps.rollouts.models import Rollout
from tests.dashboard.pages import signed_in
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db
REWARDS = importlib.import_module("apps.rollouts.migrations.0012_bounded_rewards")
MARGINS = importlib.import_module("apps.exports.migrations.0002_bounded_margins")
HUGE = 1.7e308


@pytest.fixture
def earlier():
    """Rows may be as earlier versions wrote them."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA ignore_check_constraints = ON")
        else:
            for name in ("rollout_reward_is_finite", "collection_sums_are_finite"):
                table = "rollouts_rollout" if name.startswith("rollout") else "rollouts_collection"
                cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        yield
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA ignore_check_constraints = OFF")


def test_what_earlier_versions_stored_breaks_no_figure_and_no_page(earlier):
    collection = make_collection()
    rollouts = [
        make_rollout(collection, reward=reward, components={"part": part, "other": 0.5}, trace=[])
        for reward, part in ((HUGE, 1.0), (-HUGE, -HUGE), (1.0, HUGE), (0.5, 0.5))
    ]
    task = rollouts[0].task
    pairs = PairSet.objects.create(collection=collection, pair_count=1)
    pair = PreferencePair.objects.create(
        pair_set=pairs, task=task, chosen=rollouts[0], rejected=rollouts[3], margin=HUGE
    )
    editor = SimpleNamespace(connection=connection)
    REWARDS.bound_rewards(apps, editor)
    MARGINS.bound_margins(apps, editor)
    stored = Rollout.objects.filter(collection=collection).order_by("pk")
    # PostgreSQL keeps numbers of JSON as decimals, and gives whole ones back as such.
    parts = [(one.reward, {name: float(part) for name, part in one.components.items()}) for one in stored]
    assert parts == [
        (1e100, {"part": 1.0, "other": 0.5}),
        (-1e100, {"part": -1e100, "other": 0.5}),
        (1.0, {"part": 1e100, "other": 0.5}),
        (0.5, {"part": 0.5, "other": 0.5}),
    ]
    pair.refresh_from_db()
    collection.refresh_from_db()
    assert (pair.margin, collection.reward_sum) == (2e100, 1.5)
    assert json.dumps(dataclasses.asdict(measure_collection(collection)), allow_nan=False)
    client = signed_in()
    addresses = [
        f"/collections/{collection.pk}/",
        f"/pair-sets/{pairs.pk}/",
        f"/pairs/{pair.pk}/",
        f"/rollouts/{rollouts[0].pk}/",
        "/",
    ]
    addresses += [f"/api/v1/collections/{collection.pk}/metrics/", f"/api/v1/pair-sets/{pairs.pk}/"]
    assert {path: client.get(path).status_code for path in addresses} == dict.fromkeys(addresses, 200)


def test_the_database_takes_no_reward_beyond_the_bound():
    rollout = make_rollout(make_collection(), reward=1.0, trace=[])
    with pytest.raises(IntegrityError), transaction.atomic():
        Rollout.objects.filter(pk=rollout.pk).update(reward=1.1e100)
