import csv
import io

import pytest
from django.urls import reverse

from apps.accounts.models import Role
from tests.dashboard.pages import signed_in
from tests.factories import make_collection, make_dataset, make_policy_model, make_rollout, make_row

pytestmark = pytest.mark.django_db

MATRIX, FILE = "dashboard:collection_matrix", "dashboard:collection_matrix_file"


@pytest.fixture
def filled():
    dataset = make_dataset([make_row(str(number)) for number in range(5)], slug="sums")
    for slug, reward in (("old", 0.0), ("new", 1.0)):
        collection = make_collection(
            dataset=dataset,
            policy_model=make_policy_model(slug=slug),
            state="completed",
            total=5,
            rewarded=5,
            reward_sum=5 * reward,
        )
        for task in dataset.tasks.all():
            make_rollout(collection, task=task, reward=reward, trace=[])


def test_the_matrix_offers_and_uses_a_baseline(filled):
    client = signed_in(Role.VIEWER)
    page = client.get(reverse(MATRIX)).text
    assert ("baseline=old" in page, "▲ +1.000" in page) == (True, False)
    assert ("0.566 to 1.000" in page, "0.000 to 0.434" in page) == (True, True)
    page = client.get(reverse(MATRIX), {"baseline": "old"}).text
    assert "▲ +1.000" in page
    assert f'href="{reverse(MATRIX)}?"' in page


def test_a_baseline_of_other_rows_is_ignored(filled):
    reply = signed_in().get(reverse(MATRIX), {"baseline": "old@step-9"})
    assert (reply.status_code, reply.context["matrix"].baseline) == (200, "")


def test_an_invalid_choice_is_explained_at_its_field(filled):
    reply = signed_in().get(reverse(MATRIX), {"columns": "tag"})
    assert (reply.status_code, list(reply.context["form"].errors)) == (400, ["dataset"])


def test_the_matrix_is_a_csv_file(filled):
    reply = signed_in().get(reverse(FILE), {"baseline": "old"})
    header, *lines = csv.reader(io.StringIO(reply.text))
    assert header[:6] == ["row", "column", "collection", "value", "tasks", "difference"]
    assert sorted((line[0], line[1], line[3], line[5]) for line in lines) == [
        ("new", "sums", "1.0", "1.0"),
        ("old", "sums", "0.0", ""),
    ]
    assert header[-2:] == ["value_low", "value_high"]
    ends = sorted(tuple(map(float, line[-2:])) for line in lines)
    assert ends == [pytest.approx((0.0, 0.434482), abs=1e-6), pytest.approx((0.565518, 1.0), abs=1e-6)]


def test_an_empty_installation_has_an_empty_matrix(db):
    reply = signed_in().get(reverse(MATRIX))
    assert (reply.status_code, reply.context["matrix"].rows) == (200, [])
