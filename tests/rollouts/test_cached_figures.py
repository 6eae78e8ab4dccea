"""Cached statistics of large collections: marked as outdated, recomputed by a worker or, without one, on request."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.rollouts.metrics import cached_figures
from apps.rollouts.metrics.cached_figures import (
    CachedFigures,
    fresh_figures,
    measure_wanted,
    read_figures,
    read_versions,
)
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.metrics.model_versions import track_versions
from apps.rollouts.models import Collection, KeptFigures, Reverification
from tests.dashboard.pages import signed_in
from tests.factories import make_collection, make_rollout, make_worker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(cached_figures, "AT_ONCE", 0)
    monkeypatch.setattr(cached_figures, "VERSIONS_AT_ONCE", 0)


@pytest.fixture
def collection(db: None) -> Collection:
    made = make_collection(state="completed", total=1, completed=1, rewarded=1, reward_sum=1.0)
    make_rollout(made, components={"exact": 1.0}, tools={"run": [1, 0, 0.5]}, model_version="v1", output_tokens=9)
    return made


def add(collection: Collection, reward: float) -> None:
    make_rollout(collection, reward=reward, components={"exact": reward})
    Collection.objects.filter(pk=collection.pk).update(total=2, completed=2, rewarded=2, reward_sum=1.0 + reward)
    collection.refresh_from_db()


def test_cached_figures_equal_the_measured_ones(collection):
    make_worker()
    assert read_figures(collection, may_wait=True) == CachedFigures(None, is_fresh=False)
    assert measure_wanted() is True
    kept = read_figures(collection, may_wait=True)
    assert (kept.figures.metrics, kept.is_fresh) == (measure_collection(collection), True)
    assert measure_wanted() is False
    assert fresh_figures(collection).metrics == measure_collection(collection)


def test_old_figures_are_shown_as_old_until_a_worker_has_newer_ones(collection):
    make_worker()
    first = fresh_figures(collection).metrics
    add(collection, 0.0)
    old = read_figures(collection, may_wait=True)
    assert (old.figures.metrics, old.is_fresh) == (first, False)
    KeptFigures.objects.update(seconds=0.0)
    assert measure_wanted() is True
    newer = read_figures(collection, may_wait=True)
    assert newer.is_fresh
    assert newer.figures is not None
    assert newer.figures.metrics.mean_reward == 0.5


def test_what_goes_on_is_measured_a_fifth_of_the_time_at_most(collection):
    make_worker()
    fresh_figures(collection)
    add(collection, 0.0)
    read_figures(collection, may_wait=True)
    KeptFigures.objects.update(seconds=10.0)
    assert measure_wanted() is False
    KeptFigures.objects.update(measured_at=timezone.now() - timedelta(seconds=41))
    assert measure_wanted() is True


def test_of_two_workers_one_measures_and_a_lost_one_is_replaced(collection):
    make_worker()
    read_figures(collection, may_wait=True)
    KeptFigures.objects.update(claimed_at=timezone.now())
    assert measure_wanted() is False
    KeptFigures.objects.update(claimed_at=timezone.now() - timedelta(minutes=11))
    assert measure_wanted() is True


def test_without_a_worker_only_patient_readers_measure(collection):
    assert read_figures(collection, may_wait=False).figures is None
    assert KeptFigures.objects.get().wanted_at is None
    kept = read_figures(collection, may_wait=True)
    assert (kept.figures.metrics, kept.is_fresh) == (measure_collection(collection), True)
    assert read_figures(collection, may_wait=False).is_fresh


def test_without_background_jobs_patient_readers_measure_later(collection):
    make_worker()
    assert read_figures(collection, may_wait=True).figures is None
    KeptFigures.objects.update(wanted_at=timezone.now() - timedelta(seconds=31))
    assert read_figures(collection, may_wait=False).figures is None
    assert read_figures(collection, may_wait=True).is_fresh


def test_rewards_that_verifying_again_changed_make_figures_old(collection):
    fresh_figures(collection)
    Reverification.objects.create(collection=collection, state="applied", applied=1)
    assert read_figures(collection, may_wait=False).is_fresh is False


def test_figures_of_another_version_of_the_program_count_for_nothing(collection):
    fresh_figures(collection)
    KeptFigures.objects.update(content='{"rollouts": 1}')
    assert read_figures(collection, may_wait=False).figures is None
    assert fresh_figures(collection).metrics == measure_collection(collection)


def test_versions_of_a_model_are_kept_in_the_same_way(collection):
    make_worker()
    model = collection.policy_model
    assert read_versions(model).figures is None
    assert measure_wanted() is True
    assert read_versions(model).figures == track_versions(policy_model=model)
    assert KeptFigures.objects.get().collection is None


def test_kept_figures_go_with_what_they_are_of(collection):
    fresh_figures(collection)
    collection.delete()
    assert KeptFigures.objects.count() == 0


def test_a_breakdown_is_kept_with_the_figures_it_belongs_to(collection):
    make_worker()
    assert read_figures(collection, "split", may_wait=True).figures is None
    assert measure_wanted() is True
    add(collection, 0.0)
    old = read_figures(collection, "split", may_wait=True)
    assert [share.rewarded for share in old.figures.breakdowns["split"].shares] == [1]
    assert (old.figures.metrics.rewarded, old.is_fresh) == (1, False)


def test_a_breakdown_that_no_page_has_shown_yet_is_measured_by_a_worker(collection):
    make_worker()
    fresh_figures(collection)
    asked = read_figures(collection, "tag", may_wait=True)
    assert (asked.is_fresh, dict(asked.figures.breakdowns)) == (False, {})
    KeptFigures.objects.update(seconds=0.0)
    assert measure_wanted() is True
    shown = read_figures(collection, "tag", may_wait=True)
    assert (shown.is_fresh, list(shown.figures.breakdowns)) == (True, ["tag"])


def test_a_collection_gets_the_counters_that_belong_to_its_kept_figures(collection):
    make_worker()
    fresh_figures(collection)
    add(collection, 0.0)
    Collection.objects.update(state="paused", pause_reason="asked")
    figures = read_figures(collection, may_wait=True).figures
    assert (collection.total, collection.rewarded, figures.metrics.rewarded) == (1, 1, 1)
    assert collection.state == "paused"


def test_fresh_figures_are_dated_now_and_old_ones_when_they_were_measured(collection):
    make_worker()
    measured = fresh_figures(collection).as_of
    now = read_figures(collection, may_wait=True).figures.as_of
    assert now > measured
    add(collection, 0.0)
    old = read_figures(collection, may_wait=True).figures.as_of
    assert old < now


def test_pages_show_earlier_figures_while_measuring(collection):
    client: Client = signed_in()
    make_worker()
    page, results = f"/collections/{collection.pk}/", f"/collections/{collection.pk}/results/"
    assert "metrics of 1 rollouts…" in client.get(page).text
    assert 'hx-trigger="every 2s"' in client.get(results, headers={"HX-Request": "true"}).text
    assert '<meta http-equiv="refresh" content="5">' in client.get(results).text
    assert "worker is computing" in client.get(f"/models/{collection.policy_model.slug}/").text
    while measure_wanted():
        pass
    assert "1 of 1 rollouts" in client.get(page).text
    add(collection, 0.0)
    old = client.get(page).text
    assert old.count("being updated") == 2
    assert 'data-settled="false" data-fresh="false"' in old
    assert 'data-live="/ws/' in old
    figures = {"HX-Request": "true", "HX-Target": "collection-figures"}
    assert "1 of 1 rollouts" in client.get(page, headers=figures).text
