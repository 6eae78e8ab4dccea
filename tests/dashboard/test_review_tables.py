"""Tables for who leads queues: all items of one, and all that people said."""

import csv
import re

import pytest
from django.test import Client

from apps.accounts.models import Role, User
from apps.dashboard.views.reviews import review_table_views
from apps.reviews.agreement.adjudication import adjudicate_item
from apps.reviews.models import Review
from apps.reviews.queues.item_leases import skip_item
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.submission import score_rollout
from apps.rollouts.models import Rollout
from apps.rollouts.search import keyset_pages
from tests.dashboard.markup import faults
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed, streamed
from tests.factories import make_user
from tests.reviews.queues import annotator, claim, judge, make_queue, make_rubric

pytestmark = pytest.mark.django_db
ROW = re.compile(r"<tr>\s*<th scope=\"row\".*?</tr>", re.S)


def rows_of(html: str) -> list[str]:
    """The words of each row, without tags."""
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in ROW.findall(html)]


@pytest.fixture
def queue():
    """Three pairs: one that two people differ on, one that ann skipped and ben has, one that waits."""
    made = make_queue(pairs=3, overlap=2, order="newest", name="Sums")
    ann, ben = annotator(username="ann"), annotator(username="ben")
    judge(made, ann, "a_much", confidence=1, note="Shorter, and <b>right</b>.", reasons=["correctness"])
    skip_item(review=claim(made, ann), user=ann, reason="I know it.")
    judge(made, ben, "both_bad")
    claim(made, ben)
    return made


def test_every_item_shows_progress_and_answers(pages, queue):
    html = pages.get(f"/queues/{queue.pk}/items/").text
    waits, taken, disputed = rows_of(html)
    assert (faults(html), re.findall(r"style=|\son\w+=", html)) == ([], [])
    assert ["waiting" in row for row in (waits, taken, disputed)] == [True, True, False]
    assert [state in taken for state in ("reserved", "ben: reserved until", "skipped, I know it.")] == [True] * 3
    assert [said in disputed for said in ("done", "disputed", "2 of 2", "much better", "both bad")] == [True] * 5
    shown = Review.objects.get(choice="a_much")
    first, second = shown.item.entries.values_list("rollout_id", flat=True)
    side = "A" if shown.arrangement[0] == first else "B"
    assert f"ann : {side} much better" in disputed
    assert [f'href="/rollouts/{one}/"' in html for one in (first, second)] == [True, True]
    assert f'href="/queue-items/{shown.item_id}/"' in html


def test_items_are_filtered_by_the_address(pages, queue):
    path = f"/queues/{queue.pk}/items/"
    numbers = [each.pk for each in queue.items.order_by("pk")]

    def shown(query: str) -> list[int]:
        return [int(re.match(r"#(\d+)", row)[1]) for row in rows_of(pages.get(path + query).text)]

    assert shown("") == numbers
    assert shown("?state=waiting") == numbers[:2]
    assert shown("?state=disputed&reviewer=&text=") == numbers[2:]
    assert shown("?reviewer=ann&skipped=true") == [numbers[1]]
    assert shown("?reviewer=ben&verdict=both_bad") == [numbers[2]]
    assert shown("?task_number=1") == [numbers[0]]
    assert shown("?text=nowhere") == []
    wrong = pages.get(f"{path}?state=asleep").text
    assert ("is not one of the available choices" in wrong, rows_of(wrong)) == (True, [])
    kept = pages.get(f"{path}?state=waiting").text
    assert '<option value="waiting" selected>' in kept


def test_reviews_tell_who_said_what_of_which_task(pages, queue):
    html = pages.get("/reviews/").text
    held, bad, skipped, better = rows_of(html)
    assert (faults(html), re.findall(r"style=|\son\w+=", html)) == ([], [])
    assert [name in row for name, row in (("ben", held), ("ben", bad), ("ann", skipped), ("ann", better))] == [True] * 4
    assert ("open until" in held, "both bad" in bad, "skipped I know it." in skipped) == (True, True, True)
    assert ["much better" in better, "unsure" in better, "correctness" in better] == [True] * 3
    assert "“Shorter, and &lt;b&gt;right&lt;/b&gt;.”" in html
    # The reward stands beside each rollout.
    assert (better.count("1.00"), better.count("0.00")) == (1, 1)


@pytest.mark.parametrize(
    ("query", "who"),
    [
        ("queue={queue}&reviewer=ann", ["ann", "ann"]),
        ("status=skipped", ["ann"]),
        ("confidence=1", ["ann"]),
        ("task_number=3&reviewer=ben", ["ben"]),
        ("collection={collection}&status=submitted", ["ben", "ann"]),
        ("rollout={rollout}&status=submitted", ["ben", "ann"]),
        ("kind=ranking", []),
        ("choice=a_much", ["ann"]),
        ("is_repeat=true", []),
        ("queue=999999", []),
        ("collection=nine", []),
        ("reviewer=%00", []),
    ],
)
def test_reviews_are_filtered_by_the_address(pages, queue, query, who):
    rollout = Rollout.objects.filter(queue_entries__item=queue.items.order_by("-pk")[0])[0]
    given = query.format(queue=queue.pk, collection=rollout.collection_id, rollout=rollout.pk)
    assert [row.split()[0] for row in rows_of(pages.get(f"/reviews/?{given}").text)] == who


def test_scores_outside_queues_and_adjudications_are_included(pages, queue):
    item = queue.items.order_by("-pk")[0]
    adjudicate_item(item=item, user=make_user(username="zoe"), answer=Answer(choice="b"), token="t")
    rollout = item.entries.all()[0].rollout
    scores = {"right": True, "clear": 3, "why": "so"}
    score_rollout(rollout=rollout, reviewer=make_user(username="cleo"), rubric=make_rubric(), scores=scores, seq=4)
    scored, settled, *_ = rows_of(pages.get("/reviews/").text)
    assert [part in scored for part in ("cleo", "not in a queue", "right: yes, clear: 3, why: so", "step #4")] == [
        True
    ] * 4
    assert [part in settled for part in ("zoe", "B better", "adjudication")] == [True] * 3
    (row,) = rows_of(pages.get(f"/queues/{queue.pk}/items/?state=settled").text)
    assert "zoe : B better adjudication" in row


def test_the_file_has_what_the_page_shows(pages, queue):
    html = pages.get(f"/reviews/?queue={queue.pk}&status=skipped&reviewer=&text=&task_number=2").text
    (address,) = re.findall(r'href="(/api/v1/reviews/export/\?format=csv[^"]*)"', html)
    (told,) = csv.DictReader(streamed(pages.get(address.replace("&amp;", "&"))).splitlines())
    assert (told["reviewer"], told["status"], told["skip_reason"]) == ("ann", "skipped", "I know it.")


def test_pages_follow_one_another_with_their_filter(pages, monkeypatch):
    queue = make_queue(pairs=5, order="newest")
    for _ in range(5):
        judge(queue, annotator(), "equal")
    real = keyset_pages.page_by_id
    monkeypatch.setattr(review_table_views, "page_by_id", lambda *args, **options: real(*args, size=2, **options))
    for path, number in ((f"/queues/{queue.pk}/items/?verdict=equal", 5), (f"/reviews/?queue={queue.pk}", 5)):
        seen, address = [], path
        while address:
            html = pages.get(address).text
            seen += rows_of(html)
            more = re.search(r'rel="next" id="page-next" href="(\?[^"]+)"', html)
            address = path.split("?")[0] + more[1].replace("&amp;", "&") if more else ""
        assert (len(seen), len(set(seen))) == (number, number)


def test_what_only_the_address_asks_for_is_told_and_left_out_by_a_link(pages, queue):
    review = Review.objects.get(choice="a_much")
    html = pages.get(f"/reviews/?item={review.item_id}&choice=a_much&reviewer=ann&after=999").text
    assert (len(rows_of(html)), faults(html)) == (1, [])
    links = re.findall(r'<span class="chip">([^<]+)</span> <a href="([^"]+)">remove</a>', html)
    assert links == [
        ("verdict as the reviewer saw it: A much better", f"?item={review.item_id}&amp;reviewer=ann"),
        (f"item {review.item_id}", "?choice=a_much&amp;reviewer=ann"),
    ]
    # They stay when another filter is chosen.
    assert f'<input type="hidden" name="item" value="{review.item_id}"' in html


def test_what_leads_to_them(pages, queue):
    html = pages.get(f"/queues/{queue.pk}/").text
    links = {
        f"/queues/{queue.pk}/items/",
        f"/reviews/?queue={queue.pk}",
        f"/reviews/?queue={queue.pk}&amp;reviewer=ann",
        f"/reviews/?queue={queue.pk}&amp;reviewer=ann&amp;status=skipped",
        f"/queues/{queue.pk}/items/?state=disputed",
    }
    assert links - set(re.findall(r'href="([^"]+)"', html)) == set()
    rollout = queue.items.all()[0].entries.all()[0].rollout
    assert f"/reviews/?rollout={rollout.pk}" in pages.get(f"/rollouts/{rollout.pk}/").text
    collection = f"/collections/{rollout.collection_id}/"
    assert f"/reviews/?collection={rollout.collection_id}" in pages.get(collection).text


def test_viewers_read_them_and_change_nothing(queue):
    viewer = signed_in(Role.VIEWER)
    item = queue.items.filter(done__gt=0).first()
    paths = ["/queues/", f"/queues/{queue.pk}/", f"/queues/{queue.pk}/items/", f"/queue-items/{item.pk}/", "/reviews/"]
    pages = {path: viewer.get(path) for path in paths}
    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(paths, 200)
    assert ['<form method="post" action="/que' in page.text for page in pages.values()] == [False] * 5
    assert "Reviews" in pages[f"/queue-items/{item.pk}/"].text
    assert "/reviews/export/" not in pages["/reviews/"].text
    assert viewer.get("/api/v1/reviews/export/").status_code == 403
    assert viewer.get(f"/queues/{queue.pk}/review/").status_code == 403


def test_an_annotator_sees_only_what_they_said_themselves(queue):
    ann, ben = Client(), Client()
    ann.force_login(User.objects.get(username="ann"))
    ben.force_login(Review.objects.get(status="open").reviewer)
    assert ann.get(f"/queues/{queue.pk}/items/").status_code == 403
    for client in (ann, ben):
        page = client.get("/reviews/")
        mine = Review.objects.filter(reviewer=page.wsgi_request.user).order_by("-pk")
        assert [review.pk for review in page.context["page"].rows] == [review.pk for review in mine]
        assert faults(page.text) == []
        others = User.objects.exclude(pk=page.wsgi_request.user.pk).values_list("username", flat=True)
        assert [name for name in others if f">{name}<" in page.text] == []
        assert re.findall(r"/(?:rollouts|tasks|queue-items|collections)/", page.text) == []


def test_three_rows_take_as_many_queries_as_one():
    made = make_queue(pairs=6, overlap=3, order="newest")

    def add() -> None:
        judge(made, annotator(), "a")
        other = annotator()
        skip_item(review=claim(made, other), user=other, reason="no")
        claim(made, other)

    for url in (f"/queues/{made.pk}/items/?skipped=true", "/reviews/"):
        one, three = queries_with_one_and_three(lambda url=url: url, add)
        assert (url, three) == (url, one)


def test_only_the_table_comes_to_who_asks_for_a_part(pages, queue):
    part = squeezed(pages.get("/reviews/?status=open", headers={"HX-Request": "true"}).text)
    assert (part.startswith('<div id="review-table"'), "<html" in part) == (True, False)
    part = squeezed(pages.get(f"/queues/{queue.pk}/items/", headers={"HX-Request": "true"}).text)
    assert (part.startswith('<div id="item-table"'), "<html" in part) == (True, False)
