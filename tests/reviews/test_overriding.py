"""A person's reward stands beside the verifier's, and what stood before is kept."""

import pytest

from apps.accounts.models import AuditEntry, Role
from apps.reviews.models import RewardOverride
from apps.reviews.reviews.reward_overrides import (
    OverrideEnded,
    OverrideRefused,
    override_reward,
    read_overrides,
    withdraw_override,
)
from apps.rollouts.models import Rollout
from tests.factories import make_collection, make_rollout, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada():
    return make_user(Role.ENGINEER, username="ada")


@pytest.fixture
def rollout():
    return make_rollout(make_collection(), reward=1.0)


def test_an_override_keeps_the_verifiers_reward(ada, rollout):
    override_reward(rollout=rollout, reward=0.25, reason="It guessed.", author=ada)
    rollout.refresh_from_db()
    (standing,) = read_overrides([rollout.pk]).values()
    assert (rollout.reward, standing.reward, standing.original_reward) == (1.0, 0.25, 1.0)
    assert (standing.rollout, standing.author, standing.reason) == (rollout.pk, "ada", "It guessed.")


def test_a_second_one_replaces_the_first_which_is_kept_as_history(ada, rollout):
    first = override_reward(rollout=rollout, reward=0.0, reason="Wrong.", author=ada)
    bob = make_user(Role.ENGINEER, username="bob")
    override_reward(rollout=rollout, reward=0.5, reason="Half right.", author=bob)
    first.refresh_from_db()
    assert (first.ended_how, first.ended_by) == ("replaced", bob)
    assert read_overrides([rollout.pk])[rollout.pk].reward == 0.5
    assert rollout.reward_overrides.count() == 2


def test_a_withdrawn_override_names_who_withdrew_it(ada, rollout):
    given = override_reward(rollout=rollout, reward=0.0, reason="Wrong.", author=ada)
    ended = withdraw_override(override=given, user=ada)
    assert (ended.ended_how, ended.ended_by, read_overrides([rollout.pk])) == ("withdrawn", ada, {})
    with pytest.raises(OverrideEnded, match="was already withdrawn"):
        withdraw_override(override=given, user=ada)
    actions = AuditEntry.objects.filter(noun="reward_override").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["reward_override.create", "reward_override.withdraw"]


def test_withdrawing_a_replaced_override_changes_nothing(ada, rollout, client):
    first = override_reward(rollout=rollout, reward=0.0, reason="Wrong.", author=ada)
    bob = make_user(Role.ENGINEER, username="bob")
    second = override_reward(rollout=rollout, reward=0.5, reason="Half right.", author=bob)
    client.force_login(ada)
    refused = client.post(f"/api/v1/reward-overrides/{first.pk}/withdraw/")
    assert (refused.status_code, refused.json()["type"][-14:]) == (409, "override-ended")
    assert f"{second.pk} is now active with reward 0.5" in refused.json()["detail"]
    page = client.post(f"/reward-overrides/{first.pk}/withdraw/", follow=True).content.decode()
    assert f"{second.pk} is now active with reward 0.5" in page
    assert read_overrides([rollout.pk])[rollout.pk].id == second.pk


@pytest.mark.parametrize(
    ("reward", "reason", "said"),
    [
        (float("nan"), "so", "finite number"),
        (float("inf"), "so", "finite number"),
        (-1e40, "so", "within ±9,007,199,254,740,992"),
        (1.0, "  ", "Give a reason"),
        (1.0, "x" * 2_001, "at most 2,000 characters"),
    ],
)
def test_invalid_input_is_refused(ada, rollout, reward, reason, said):
    with pytest.raises(OverrideRefused, match=said):
        override_reward(rollout=rollout, reward=reward, reason=reason, author=ada)
    assert RewardOverride.objects.count() == 0


def test_what_did_not_complete_has_no_reward_to_override(ada):
    failed = make_rollout(
        make_collection(), status=Rollout.Status.FAILED, reward=None, stop_reason="", error_kind="timed_out"
    )
    with pytest.raises(OverrideRefused, match="is failed"):
        override_reward(rollout=failed, reward=1.0, reason="so", author=ada)


def test_overrides_of_a_collection_take_one_query(ada, django_assert_num_queries):
    collection = make_collection()
    for _ in range(3):
        override_reward(rollout=make_rollout(collection), reward=0.0, reason="Wrong.", author=ada)
    with django_assert_num_queries(1):
        assert len(read_overrides(Rollout.objects.filter(collection=collection).values("pk"))) == 3


def test_a_credential_in_a_reason_is_taken_out(ada, rollout):
    given = override_reward(
        rollout=rollout, reward=0.0, reason="It printed sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD", author=ada
    )
    assert "abcdefghijklmnop" not in given.reason
