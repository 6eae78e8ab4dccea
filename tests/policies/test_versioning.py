"""Calls under way hear of new weights behind their endpoint, and keep their version when the model moves away."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.policies.models import PolicyModel
from apps.policies.policy_clients import open_outbound
from apps.policies.weight_versions import WeightsInUse
from apps.rollouts.engine.connections import Settings
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.models import Collection
from tests.factories import make_collection, make_dataset, make_environment, make_policy_model

pytestmark = pytest.mark.django_db


def make_model(**fields):
    given = {"provider": "vllm", "base_url": "https://a.example/v1", "model_name": "qwen", "version": "step-1"}
    return make_policy_model(**{**given, **fields})


def test_a_new_version_reaches_running_collections():
    model, in_use = make_model(), WeightsInUse()
    weights = in_use.of(model)
    PolicyModel.objects.filter(pk=model.pk).update(version="step-2")
    in_use.follow_versions()
    assert weights.version == "step-2"


@pytest.mark.parametrize(
    "move",
    [
        {"base_url": "https://b.example/v1"},
        {"model_name": "qwen-lora-2"},
        {"more_base_urls": ["https://b.example/v1"]},
        {"extra_body": {"lora": "2"}},
    ],
)
def test_what_goes_on_calling_the_old_endpoint_keeps_the_old_version(move):
    model, in_use = make_model(), WeightsInUse()
    under_way = in_use.of(model)
    PolicyModel.objects.filter(pk=model.pk).update(version="step-2", **move)
    in_use.follow_versions()
    fresh = in_use.of(PolicyModel.objects.get(pk=model.pk))
    assert (under_way.version, fresh.version) == ("step-1", "step-2")
    PolicyModel.objects.filter(pk=model.pk).update(version="step-3")
    in_use.follow_versions()
    assert (under_way.version, fresh.version) == ("step-1", "step-3")


def test_all_that_call_one_endpoint_share_its_version_and_what_ended_is_forgotten():
    model, in_use = make_model(), WeightsInUse()
    first, second = in_use.of(model), in_use.of(PolicyModel.objects.get(pk=model.pk))
    assert first is second
    del first, second
    with CaptureQueriesContext(connection) as queries:
        in_use.follow_versions()
    assert len(queries) == 0


def test_a_judges_new_version_reaches_the_rollouts_under_way_as_the_policys_does():
    judge = make_model(slug="critic", version="judge-1")
    environment = make_environment(builtin="judged", judge_model=judge)
    collection = make_collection(dataset=make_dataset(environment=environment))
    Collection.objects.filter(pk=collection.pk).update(snapshot={"agent": {}, "sampling": {}, "environment": {}})
    settings = Settings(open_outbound(), lambda *_: None, JudgeSeats(), Throttles())
    setting = settings.get(collection.pk)
    PolicyModel.objects.filter(pk=judge.pk).update(version="judge-2")
    PolicyModel.objects.filter(pk=collection.policy_model_id).update(version="rules-2")
    settings.follow_versions()
    assert setting.policy.weights.version == "rules-2"
    assert setting.server.judge.policy.weights.version == "judge-2"
