"""Flags are words that can be counted; each person says each once."""

import pytest

from apps.accounts.models import Role
from apps.reviews.models import Flag
from apps.reviews.reviews.flags import FlagRefused, raise_flag, withdraw_flag
from tests.factories import make_collection, make_rollout, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann():
    return make_user(Role.ANNOTATOR)


@pytest.fixture
def rollout():
    return make_rollout(make_collection())


def test_a_repeated_flag_is_stored_once_with_the_last_note(ann, rollout):
    first = raise_flag(rollout=rollout, kind="verifier_wrong", author=ann)
    again = raise_flag(rollout=rollout, kind="verifier_wrong", author=ann, note="It compares units as text.")
    assert (again.pk, again.note, Flag.objects.count()) == (first.pk, "It compares units as text.", 1)


def test_a_step_and_its_rollout_are_flagged_apart(ann, rollout):
    raise_flag(rollout=rollout, kind="wrong_tool", author=ann)
    raise_flag(rollout=rollout, kind="wrong_tool", author=ann, seq=2)
    raise_flag(rollout=rollout, kind="wrong_tool", author=make_user(Role.ANNOTATOR), seq=2)
    assert Flag.objects.count() == 3


def test_a_withdrawn_flag_is_history_and_can_be_raised_again(ann, rollout):
    flag = withdraw_flag(flag=raise_flag(rollout=rollout, kind="unsafe", author=ann), user=ann)
    assert flag.withdrawn_by == ann
    assert raise_flag(rollout=rollout, kind="unsafe", author=ann).pk != flag.pk


def test_only_its_author_or_who_leads_withdraws_a_flag(ann, rollout):
    flag = raise_flag(rollout=rollout, kind="unsafe", author=ann)
    with pytest.raises(FlagRefused, match="Only the author, an engineer or an admin can withdraw this flag"):
        withdraw_flag(flag=flag, user=make_user(Role.ANNOTATOR))
    assert withdraw_flag(flag=flag, user=make_user(Role.ENGINEER)).withdrawn_at is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "ugly"}, "Unknown flag “ugly”"),
        ({"kind": "unsafe", "seq": 99}, "no event 99"),
        ({"kind": "unsafe", "note": "x" * 1_001}, "at most 1,000"),
    ],
)
def test_invalid_input_is_refused(ann, rollout, given, said):
    with pytest.raises(FlagRefused, match=said):
        raise_flag(rollout=rollout, author=ann, **given)
