import pytest

from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.models import Reverification
from apps.rollouts.reverification.reverification_jobs import continue_reverification, queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_agent, make_dataset, make_environment
from tests.rollouts.stored import as_file, stored_row

pytestmark = pytest.mark.django_db
CREATE = "/reverifications/new/"


def imported(*rows, **environment):
    dataset = make_dataset(rows=[], environment=make_environment(**environment))
    return import_rollouts(ImportOrder(dataset=dataset, agent=make_agent()), files=[as_file(*rows)]).collection


@pytest.fixture
def collection():
    return imported(stored_row("a"), stored_row("b", reward=0.0), stored_row("c", "5"))


def test_the_collection_leads_to_the_form_and_says_where_it_is_from(collection):
    page = signed_in().get(f"/collections/{collection.pk}/").text
    assert f'href="{CREATE}?collection={collection.pk}"' in page
    assert "Imported from rollouts.jsonl" in page
    form = signed_in().get(CREATE, {"collection": collection.pk}).text
    assert f'<option value="{collection.pk}" selected>' in form


def test_what_would_change_is_seen_before_it_is_applied(collection):
    client = signed_in()
    url = client.post(CREATE, {"collection": collection.pk})["Location"]
    assert 'hx-trigger="every 2s"' in client.get(url).text
    continue_reverification()
    page = squeezed(client.get(url).text)
    assert "Apply 2 changes" in page
    assert "not applied yet" in page
    changed = list(Reverification.objects.get().rewards.filter(changed=True).values_list("rollout_id", flat=True))
    assert [f'href="/rollouts/{pk}/"' in page for pk in changed] == [True, True]
    assert len(changed) == 2
    assert client.post(f"{url}apply/")["Location"] == url
    continue_reverification()
    assert "2 rollouts" in squeezed(client.get(url).text)
    assert f'<a href="{url}">#' in client.get(f"/collections/{collection.pk}/").text
    trace = client.get(f"/rollouts/{changed[0]}/").text
    assert f"Re-verified (#{Reverification.objects.get().pk})" in trace


def test_the_table_shows_what_failed_and_everything(collection):
    client = signed_in()
    url = client.post(CREATE, {"collection": collection.pk})["Location"]
    continue_reverification()
    assert client.get(url, {"show": "all"}).text.count('<th scope="row">') == 3
    assert "None." in client.get(url, {"show": "failed"}).text
    assert client.get(url, {"show": "nonsense"}).text.count('<th scope="row">') == 2


def test_unverified_rollouts_have_a_reason():
    row = stored_row()
    del row["expected_answer"]
    client = signed_in()
    url = client.post(CREATE, {"collection": imported(row).pk})["Location"]
    continue_reverification()
    page = squeezed(client.get(url).text)
    assert "<dt>Verified</dt><dd>0 <small>of 1</small>" in page
    assert "verifier_error<span" in page
    assert "for example:" in page


def test_a_poll_ends_when_the_worker_is_done(collection):
    client = signed_in()
    url = client.post(CREATE, {"collection": collection.pk})["Location"]
    assert client.get(url, headers={"HX-Request": "true"}).status_code == 200
    continue_reverification()
    assert client.get(url, headers={"HX-Request": "true"}).status_code == 286


def test_a_refusal_is_shown_in_the_form(collection):
    client = signed_in()
    none = client.post(CREATE, {"collection": collection.pk, "min_reward": "7"})
    assert (none.status_code, "No rollout of this" in none.text) == (422, True)
    for_people = imported(stored_row(), verifies=False)
    refused = client.post(CREATE, {"collection": for_people.pk})
    assert (refused.status_code, "has no verifier" in refused.text) == (422, True)


def test_one_that_is_dropped_cannot_be_applied(collection):
    client = signed_in()
    url = client.post(CREATE, {"collection": collection.pk})["Location"]
    client.post(f"{url}cancel/")
    assert "is cancelled: only one that is ready can be applied" in client.post(f"{url}apply/", follow=True).text


def test_the_list_takes_as_many_queries_with_three_rows_as_with_one(collection):
    one, three = queries_with_one_and_three(
        lambda: "/reverifications/", lambda: queue_reverification(ReverificationOrder(collection=collection))
    )
    assert one == three
