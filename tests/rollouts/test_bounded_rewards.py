"""Rewards are at most ±1e100, since figures square them: the largest break no figure and no page."""

import dataclasses
import json

import pytest
from django.db import IntegrityError, transaction

from apps.gym.traces.events import Verification
from apps.pairs.models import PairSet, PreferencePair
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.running import RolloutStats, _end
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.models import Rollout
from tests.dashboard.pages import signed_in
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db


def test_the_largest_rewards_break_no_figure_and_no_page():
    collection = make_collection()
    rollouts = [
        make_rollout(collection, reward=reward, components={"part": part, "other": 0.5}, trace=[])
        for reward, part in ((1e100, 1.0), (-1e100, -1e100), (1.0, 1e100), (0.5, 0.5))
    ]
    pairs = PairSet.objects.create(collection=collection, pair_count=1)
    pair = PreferencePair.objects.create(
        pair_set=pairs, task=rollouts[0].task, chosen=rollouts[0], rejected=rollouts[1], margin=2e100
    )
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


def test_an_integer_reward_ends_a_rollout_as_a_float():
    rollout = make_rollout(make_collection(), trace=[])
    stats = RolloutStats()
    stats.add(Verification(reward=10**30, stop_reason="answered"))
    claim = Claim(None, rollout.pk, rollout.collection_id, rollout.task_id, 0, 0, 1, 0, 0)
    assert type(_end(claim, stats, None, 1.0).reward) is float
