import pytest
from django.test import Client

from apps.accounts.models import Role
from apps.reviews.models import Queue
from apps.rollouts.models import Rollout, Scan, ScanAnswer
from apps.rollouts.scans.scan_controls import create_scan, start_scan
from apps.rollouts.scans.scan_jobs import continue_scans
from apps.rollouts.scans.scan_spec import ScanSpec
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_collection, make_policy_model, make_rollout
from tests.reviews.queues import annotator, claim, make_queue
from tests.reviews.test_scan_accuracy import review_all, right, rollouts_of, scan_of

pytestmark = pytest.mark.django_db
CREATE = "/scans/new/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def collection():
    made = make_collection()
    for _ in range(3):
        make_rollout(made)
    return made


@pytest.fixture
def judge():
    return make_policy_model(name="Judge J", input_price=100.0, output_price=100.0)


def given(collection, judge, **fields):
    base = {"name": "Tools", "question": 'Does it contain "calculator"?', "judge_model": judge.slug, "kind": "yes_no"}
    return {
        **base,
        "filter": f"collection:{collection.pk}",
        "budget": "5",
        "max_characters": "50000",
        "structured_output": "on",
        **fields,
    }


def scanned(collection, judge, question='Does it contain "calculator"?'):
    spec = ScanSpec(name="Tools", question=question, judge_model=judge, filter=f"collection:{collection.pk}")
    scan = start_scan(scan=create_scan(spec))
    continue_scans()
    scan.refresh_from_db()
    assert scan.state == Scan.State.COMPLETED
    return scan


def test_the_form_shows_count_and_cost_before_anything_is_created(collection, judge):
    client = signed_in()
    part = squeezed(client.get(CREATE, given(collection, judge), headers=HTMX).text)
    assert "3 rollouts</strong>, about <strong>$" in part
    assert "<form" not in part
    assert "Choose a judge model" in client.get(CREATE, {"filter": "reward:>5"}).text
    wrong = client.get(CREATE, given(collection, judge, filter="reward:many"), headers=HTMX).text
    assert "reward: needs a number" in wrong
    assert not Scan.objects.exists()


def test_a_scan_is_created_confirmed_and_answered(collection, judge):
    client = signed_in()
    url = client.post(CREATE, given(collection, judge))["Location"]
    page = squeezed(client.get(url).text)
    assert "Ask Judge J about 3 rollouts for about $" in page
    assert not continue_scans()
    assert client.post(f"{url}start/")["Location"] == url
    assert 'hx-trigger="every 2s"' in client.get(url).text
    assert client.get(url, headers=HTMX).status_code == 200
    continue_scans()
    assert client.get(url, headers=HTMX).status_code == 286
    scan = Scan.objects.get()
    page = squeezed(client.get(url).text)
    assert f'<a href="/rollouts/?q=scan%3A{scan.pk}%3Dyes">3</a>' in page
    rollout = Rollout.objects.first()
    assert f'<a href="/rollouts/{rollout.pk}/?step=2#e2">step #2</a> <q>calculator</q>' in page
    assert "No rollout has this answer" in client.get(url, {"answer": "no"}).text


def test_a_refusal_is_shown_at_its_field(collection, judge):
    reply = signed_in().post(CREATE, given(collection, judge, kind="label", labels="one"))
    assert (reply.status_code, "two or more different labels" in reply.text) == (422, True)
    assert not Scan.objects.exists()


def test_a_paused_scan_offers_a_higher_budget(collection, judge):
    client = signed_in()
    url = client.post(CREATE, given(collection, judge))["Location"]
    client.post(f"{url}start/")
    Scan.objects.update(state=Scan.State.PAUSED, cost=5.5, message="The budget of $5.00 is used up.")
    page = client.get(url).text
    assert 'value="10.0"' in page
    assert "The budget of $5.00 is used up." in page
    assert "Give a higher budget" in client.post(f"{url}resume/", {"budget": "5"}, follow=True).text
    assert client.post(f"{url}resume/", {"budget": "lots"}).status_code == 422
    client.post(f"{url}resume/", {"budget": "20"})
    assert (Scan.objects.get().state, Scan.objects.get().budget) == (Scan.State.RUNNING, 20.0)
    client.post(f"{url}cancel/")
    assert Scan.objects.get().state == Scan.State.CANCELLED


def test_answers_are_a_column_while_the_filter_names_the_scan(collection, judge):
    client = signed_in()
    first = scanned(collection, judge)
    second = scanned(collection, judge, 'Does it contain "nothing like this"?')
    plain = client.get("/rollouts/").text
    assert f"/scans/{first.pk}/" not in plain
    one = client.get("/rollouts/", {"scan": first.pk}).text
    assert one.count(f'href="/scans/{first.pk}/"') == 3
    assert f"/scans/{second.pk}/" not in one
    both = client.get("/rollouts/", {"q": f"scan:{first.pk}=yes scan:{second.pk}=no", "columns": "reward"}).text
    assert (both.count(f'href="/scans/{first.pk}/"'), both.count(f'href="/scans/{second.pk}/"')) == (3, 3)
    table = both.split('id="rollouts"')[1].split("</table>")[0]
    assert table.count("<th") - 4 == table.split("<tbody>")[1].split("</tr>")[0].count("<t") - 1 == 4
    again = client.get(f"/collections/{collection.pk}/", {"q": f"scan:{first.pk}=yes"}).text
    assert f'href="{CREATE}?filter=collection%3A{collection.pk}+scan%3A{first.pk}%3Dyes"' in again
    there = client.get(f"/collections/{collection.pk}/", {"q": f"scan:{first.pk}=no"}).text
    assert there.count("data-row=") == 0


def test_the_table_takes_one_query_more_for_the_answers(collection, judge):
    scan = scanned(collection, judge)
    client = signed_in()
    one, three = queries_with_one_and_three(
        lambda: f"/rollouts/?scan={scan.pk}",
        lambda: ScanAnswer.objects.create(scan=scan, rollout=make_rollout(collection), state="answered", answer="no"),
    )
    assert one == three
    assert client.get(f"/rollouts/?scan={scan.pk}").text.count(f'href="/scans/{scan.pk}/"') == 6


def test_the_page_compares_with_blind_reviews():
    queue = make_queue(pairs=3, size=1)
    review_all(queue, annotator(), **right(True, True, False))
    scan = scan_of(dict.fromkeys(rollouts_of(queue), "yes"), state="completed", total=3, answered=3)
    page = squeezed(signed_in().get(f"/scans/{scan.pk}/").text)
    assert "<h3>Is it right?</h3>" in page
    assert '0.67<span class="sub" title="95 % Wilson interval">0.21 to 0.94</span>' in page
    assert "3 reviews of 3 rollouts" in page


def test_a_reviewer_of_a_blind_queue_sees_no_answer_of_a_scan():
    queue = make_queue(pairs=1, size=1)
    (rollout,) = rollouts_of(queue)
    scan = scan_of({rollout: "yes"}, name="The scan", question="Did it guess?")
    Queue.objects.update(source={"q": f"scan:{scan.pk}=yes"})
    user = annotator()
    client = Client()
    client.force_login(user)
    review = claim(queue, user)
    shown = {"review": f"/reviews/{review.pk}/submit/", "quick-pass": f'id="item-{review.pk}"'}
    for name, item in shown.items():
        page = client.get(f"/queues/{queue.pk}/{name}/")
        assert item in page.text
        assert "The scan" not in page.text
        assert "scan:" not in page.text
    assert client.get(f"/queues/{queue.pk}/").status_code == 403
    assert review.rollout_id == rollout
    for path in ("/scans/", f"/scans/{scan.pk}/", f"/rollouts/?scan={scan.pk}", f"/api/v1/scans/{scan.pk}/answers/"):
        assert client.get(path).status_code == 403
    said = client.get(f"/api/v1/queues/{queue.pk}/").text
    assert f"scan:{scan.pk}" not in said


def test_the_list_takes_as_many_queries_with_three_rows_as_with_one(collection, judge):
    spec = ScanSpec(name="Tools", question="Why?", judge_model=judge)
    one, three = queries_with_one_and_three(lambda: "/scans/", lambda: create_scan(spec))
    assert one == three


def test_the_list_counts_answers_and_is_linked_from_the_rollouts(collection, judge):
    scan = create_scan(ScanSpec(name="Tools", question="Why?", judge_model=judge, filter=f"collection:{collection.pk}"))
    rows = [ScanAnswer(scan=scan, rollout=each, state="pending") for each in collection.rollouts.order_by("pk")]
    ScanAnswer.objects.filter(scan=scan).delete()
    for row, said in zip(rows, ("no", "no", "yes"), strict=True):
        row.state, row.answer = "answered", said
    ScanAnswer.objects.bulk_create(rows)
    client = signed_in(Role.VIEWER)
    assert client.get("/scans/").context["scans"] == [(scan, [["no", 2], ["yes", 1]])]
    assert 'href="/scans/"' in client.get("/rollouts/").text


def test_a_viewer_reads_scans_and_cannot_start_them(collection, judge):
    scan = create_scan(ScanSpec(name="Tools", question="Why?", judge_model=judge))
    client = signed_in(Role.VIEWER)
    page = client.get(f"/scans/{scan.pk}/")
    assert (page.status_code, "Start scan" in page.text) == (200, False)
    assert client.post(f"/scans/{scan.pk}/start/").status_code == 403
