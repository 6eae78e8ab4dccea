"""Pages of queues: made, worked through without scripts, led and settled; what people say on the page of a rollout."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import resolve
from django.utils import timezone

from apps.accounts.permissions import user_may
from apps.reviews.agreement.queue_agreement import read_disputed
from apps.reviews.models import Comment, Flag, Queue, Review, RewardOverride, Rubric
from apps.reviews.queues.item_leases import renew_lease
from apps.reviews.queues.queue_changes import close_queue, create_queue
from apps.reviews.queues.queue_items import fill_from_sets
from tests.dashboard.markup import faults
from tests.dashboard.pages import queries_with_one_and_three
from tests.factories import make_collection, make_rollout, make_trace, make_user
from tests.reviews.queues import annotator, claim, judge, make_queue, make_rubric

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann():
    return annotator(username="ann")


@pytest.fixture
def desk(ann):
    """A browser in which an annotator is signed in."""
    client = Client()
    client.force_login(ann)
    return client


def test_a_queue_is_made_of_a_collection_or_of_numbers(pages):
    collection = make_collection()
    ids = [make_rollout(collection).pk for _ in range(4)]
    given = {"overlap": 2, "order": "random", "lease_minutes": 15, "repeat_share": 0, "per_task": 2, "size": 2}
    made = pages.post("/queues/new/", {**given, "name": "All", "kind": "pairwise", "collection": collection.pk})
    queue = Queue.objects.get(name="All")
    assert (made["Location"], queue.item_count, queue.is_blind) == (f"/queues/{queue.pk}/", 2, True)
    lines = f"{ids[0]} {ids[1]}\n{ids[2]}, {ids[3]}"
    pages.post("/queues/new/", {**given, "name": "Two", "kind": "pairwise", "rollouts": lines})
    assert [
        sorted(each.entries.values_list("rollout_id", flat=True)) for each in Queue.objects.get(name="Two").items.all()
    ] == [
        ids[:2],
        ids[2:],
    ]
    refused = pages.post("/queues/new/", {**given, "name": "No", "kind": "pairwise", "rollouts": "all"})
    assert (refused.status_code, "is not a rollout number" in refused.content.decode()) == (422, True)


def test_a_choice_that_may_be_empty_says_so_in_words(pages):
    page = pages.get("/queues/new/").text
    told = [page.count(f">{label}</option>") for label in ("---------", "None", "Choose one")]
    assert told == [0, 2, 1]


def test_an_annotator_works_through_a_queue_with_forms_alone(desk, ann):
    queue = make_queue(pairs=2)
    work = f"/queues/{queue.pk}/review/"
    assert "Ready to review" in desk.get(work).content.decode()
    assert desk.post(work)["Location"] == work
    html = desk.get(work).content.decode()
    review = Review.objects.get(reviewer=ann)
    token = re.search(r'name="token" value="(\w+)"', html)[1]
    refused = desk.post(f"/reviews/{review.pk}/submit/", {"token": token, "note": "so"})
    assert (refused.status_code, "Give a verdict" in refused.content.decode()) == (422, True)
    desk.post(
        f"/reviews/{review.pk}/submit/", {"token": token, "choice": "a", "reasons": ["safety"], "confidence": "2"}
    )
    review.refresh_from_db()
    assert (review.status, review.choice, review.reasons, review.confidence) == ("submitted", "a", ["safety"], 2)
    assert "1 done" in desk.get(work).content.decode()
    second = Review.objects.get(reviewer=ann, status="open")
    desk.post(f"/reviews/{second.pk}/skip/", {"reason": "too long"})
    html = desk.get(work).content.decode()
    assert ("No items left for you" in html, "Undo the skip" in html) == (True, True)
    # Sent twice, it takes one back; then the page offers the one before.
    for _ in range(2):
        undone = desk.post(f"/queues/{queue.pk}/undo/", {"review": second.pk}, follow=True).content.decode()
        assert ("The item is open again" in undone, f'action="/reviews/{second.pk}/submit/"' in undone) == (True, True)
    desk.post(f"/queues/{queue.pk}/undo/", {"review": review.pk})
    assert 'value="a" checked' in desk.get(work).content.decode()


def test_a_queue_that_closes_returns_the_draft(desk, ann):
    queue = make_queue(pairs=1)
    review = claim(queue, ann)
    renew_lease(review=review, user=ann, draft={"note": "Half of it."})
    close_queue(queue=queue, user=make_user())
    closed = desk.get(f"/queues/{queue.pk}/review/")
    said = {"token": "t", "choice": "a_much", "note": "All of it.", "reasons": ["safety", "style"], "confidence": "2"}
    refused = desk.post(f"/reviews/{review.pk}/submit/", said)
    assert (closed.status_code, refused.status_code) == (200, 409)
    assert ["This queue is closed" in one.content.decode() for one in (closed, refused)] == [True, True]
    assert "note: Half of it." in closed.content.decode()
    assert faults(closed.content.decode()) == []
    (address,) = re.findall(r'action="(/reviews/\d+/skip/)"', closed.content.decode())
    assert "You have an open item" not in desk.post(address, {"reason": "Given up."}, follow=True).content.decode()
    whole = "verdict: a_much\nreasons: safety, style\nconfidence: 2\nnote: All of it."
    assert whole in refused.content.decode()
    assert faults(refused.content.decode()) == []
    assert desk.get(f"/queues/{make_queue(reviewers=[annotator()]).pk}/review/").status_code == 404


def test_a_reviewer_who_lost_an_item_finds_the_draft(desk, ann):
    queue = make_queue(pairs=1)
    review, work = claim(queue, ann), f"/queues/{queue.pk}/review/"
    renew_lease(review=review, user=ann, draft={"note": "Twenty minutes long."})
    Review.objects.update(leased_until=timezone.now() - timedelta(minutes=1))
    judge(queue, annotator())
    html = desk.get(work).content.decode()
    assert ("note: Twenty minutes long." in html, f'href="?review={review.pk}"' in html, faults(html)) == (
        True,
        True,
        [],
    )
    assert f'{work}">1 unfinished, reservation expired' in desk.get("/queues/").text
    # It is of its reviewer alone, and nothing else is opened by its number.
    opened = f'action="/reviews/{review.pk}/submit/"'
    assert (opened in desk.get(f"{work}?review={review.pk}").text, opened in desk.get(f"{work}?review=x").text) == (
        True,
        False,
    )
    other = Client()
    other.force_login(annotator())
    assert opened not in other.get(f"{work}?review={review.pk}").text
    desk.post(f"/reviews/{review.pk}/submit/", {"token": "t", "choice": "a"})
    assert Review.objects.submitted().count() == 2
    assert ("You started" in desk.get(work).text, "unfinished, reservation expired" in desk.get("/queues/").text) == (
        False,
        False,
    )


def test_an_expired_draft_is_listed_beside_the_next_item(desk, ann):
    queue = make_queue(pairs=3)
    review, work = claim(queue, ann), f"/queues/{queue.pk}/review/"
    Review.objects.update(leased_until=timezone.now() - timedelta(minutes=1))
    judge(queue, annotator())
    desk.post(work)
    html = desk.get(work).text
    assert (
        "You have 1 started item with an expired reservation" in html,
        f'href="?review={review.pk}"' in html,
        faults(html),
    ) == (True, True, [])
    desk.post(f"/reviews/{review.pk}/skip/", {"reason": "Given up."})
    assert "started item" not in desk.get(work).text
    # Taken back: somebody else has judged it meanwhile.
    undone = desk.post(f"/queues/{queue.pk}/undo/", {"review": review.pk})
    assert undone["Location"] == f"{work}?review={review.pk}"


def test_an_empty_queue_names_items_of_other_reviewers(desk):
    queue, work = make_queue(pairs=2), "/queues/{}/review/"
    assert "Ready to review" in desk.get(work.format(queue.pk)).text
    others = [annotator(), annotator()]
    claim(queue, others[0])
    judge(queue, others[1])
    html = desk.post(work.format(queue.pk), follow=True).text
    assert ("No items left for you" in html, "1 item is reserved by other reviewers" in html) == (True, True)
    judge(queue, others[0])
    assert "or you have reviewed or skipped it" in desk.get(work.format(queue.pk)).text


def test_work_pages_are_compressed(desk):
    queue = make_queue(pairs=1)
    desk.post(f"/queues/{queue.pk}/review/")
    assert desk.get(f"/queues/{queue.pk}/review/", headers={"Accept-Encoding": "gzip"})["Content-Encoding"] == "gzip"


def test_a_draft_that_makes_no_sense_does_not_break_the_page(desk, ann):
    queue = make_queue(pairs=1)
    review = claim(queue, ann)
    Review.objects.filter(pk=review.pk).update(draft={"reasons": 5, "ranks": "x", "scores": [1], "note": "Kept."})
    html = desk.get(f"/queues/{queue.pk}/review/").content.decode()
    assert "Kept." in html


@pytest.mark.parametrize(("took", "usual", "word"), [(2.0, 40.0, True), (12.0, 40.0, False), (0.5, 4.0, False)])
def test_who_answers_far_faster_than_is_usual_is_told_so(desk, ann, took, usual, word):
    queue = make_queue(pairs=6)
    others = annotator()
    for _ in range(5):
        judge(queue, others, "a")
    Review.objects.update(seconds=usual)
    judge(queue, ann, "a")
    Review.objects.filter(reviewer=ann).update(seconds=took)
    assert ("You submitted your last review after" in desk.get(f"/queues/{queue.pk}/review/").content.decode()) is word


def test_the_work_page_tells_nothing_of_who_is_behind_the_sides(desk):
    queue = make_queue(pairs=1, size=2)
    desk.post(f"/queues/{queue.pk}/review/")
    html = desk.get(f"/queues/{queue.pk}/review/").content.decode()
    ids = queue.items.get().entries.values_list("rollout_id", flat=True)
    assert [one for one in ids if f"#{one}" in html or f"/rollouts/{one}" in html] == []
    assert re.findall("reward-chip|scripted", html.split("<main")[1]) == []


def test_a_queue_that_trains_tells_afterwards(desk):
    queue = make_queue(pairs=1, reveals=True)
    desk.post(f"/queues/{queue.pk}/review/")
    assert "Your last review" not in desk.get(f"/queues/{queue.pk}/review/").content.decode()
    desk.post(f"/reviews/{Review.objects.get().pk}/submit/", {"token": "t", "choice": "a"})
    assert "Your last review" in desk.get(f"/queues/{queue.pk}/review/").content.decode()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_kind_of_work_page_is_right_as_markup(desk, size):
    queue = make_queue(pairs=1, size=size, shows_expected=True)
    desk.post(f"/queues/{queue.pk}/review/")
    html = desk.get(f"/queues/{queue.pk}/review/").content.decode()
    assert faults(html) == []
    assert re.findall(r"style=|\son\w+=", html) == []


def test_the_whole_text_is_shown_only_to_its_reviewer_and_adjudicator(desk, ann, pages):
    collection = make_collection()
    pair = [make_rollout(collection, trace=make_trace("word " * 2_000 + end)).pk for end in ("yes", "no")]
    items = fill_from_sets([pair], kind="pairwise")
    queue = create_queue(queue=Queue(name="Long", kind="pairwise"), items=items, reviewers=[], user=None)
    review = claim(queue, ann)
    html = desk.get(f"/queues/{queue.pk}/review/").text
    assert html.count("characters are the same in all rollouts") == 2
    assert faults(html) == []
    ends = []
    for side in "AB":
        (address,) = set(re.findall(rf'href="(/reviews/{review.pk}/text/{side}/\d+/)"', html))
        whole = desk.get(address)
        ends.append(whole.text.removeprefix("word " * 2_000))
        assert (whole["Content-Type"], whole["Content-Security-Policy"][:18]) == (
            "text/plain; charset=utf-8",
            "default-src 'none'",
        )
        part = desk.get(address, headers={"HX-Request": "true"}).text
        assert (part.startswith('<div class="compared-text">'), ends[-1] in part, "<html" in part) == (
            True,
            True,
            False,
        )
    assert sorted(ends) == ["no", "yes"]
    missing = [desk.get(f"/reviews/{review.pk}/text/{rest}/").status_code for rest in ("C/1", "A/99")]
    other = Client()
    other.force_login(annotator())
    assert [*missing, other.get(address).status_code] == [404, 404, 404]
    desk.post(f"/reviews/{review.pk}/submit/", {"token": "t", "choice": "a"})
    assert desk.get(address).status_code == 404
    for shown in ("", "?show=1"):
        page = pages.get(f"/queue-items/{review.item_id}/{shown}").text
        (address,) = set(re.findall(r'href="(/queue-items/\d+/text/B/\d+/[^"]*)"', page))
        assert (faults(page), pages.get(address).text.startswith("word word")) == ([], True)


def test_a_lead_sees_figures_and_adjudicates_disputes(pages):
    queue = make_queue(pairs=1, overlap=2)
    first = judge(queue, annotator(), "a", note="Shorter.")
    judge(queue, annotator(), "both_bad")
    html = pages.get(f"/queues/{queue.pk}/").content.decode()
    item = queue.items.get()
    assert f"/queue-items/{item.pk}/" in html
    assert faults(html) == []
    # First as the queue showed it; who has looked behind that is remembered, and the verdict says so.
    path = f"/queue-items/{item.pk}/"
    blind = pages.get(path).content.decode()
    for hidden in ("Shorter.", "both bad</td>", f"/rollouts/{first.arrangement[0]}/", "reward-chip"):
        assert hidden not in blind
    assert 'data-saw=""' in blind
    # An address alone shows no more: opening one writes nothing, so it could not be remembered.
    assert "Shorter." not in pages.get(path, {"show": "1"}).content.decode()
    shown = pages.post(path, {"show": "1"}, follow=True).content.decode()
    for told in ("Shorter.", "both bad", f"/rollouts/{first.arrangement[0]}/", "reward-chip"):
        assert told in shown
    assert faults(shown) == faults(blind) == []
    assert 'data-saw="1"' in pages.get(path).content.decode()
    assert pages.post(path, {"choice": "", "note": "Kept."}).status_code == 422
    pages.post(path, {"choice": "b_much", "token": "t", "confidence": "3"})
    item.refresh_from_db()
    stands = item.reviews.submitted().get(is_adjudication=True)
    assert (item.is_adjudicated, stands.choice, stands.saw_votes) == (True, "b_much", True)
    assert "No disputed items" in pages.get(f"/queues/{queue.pk}/").content.decode()
    # What stands is in the form of who reopens it.
    again = pages.get(path).content.decode()
    assert 'value="b_much" checked' in again
    assert '<option value="3" selected>' in again
    assert "saw reviews and rewards" in pages.get(path, {"show": "1"}).content.decode()
    pages.post(f"/queues/{queue.pk}/close/")
    assert Queue.objects.get().is_open is False
    pages.post(f"/queues/{queue.pk}/open/")
    assert Queue.objects.get().is_open is True


def test_settling_goes_on_to_the_next_disagreement_and_says_that_nothing_was_seen(pages):
    queue = make_queue(pairs=3, overlap=2)
    ann, ben = annotator(), annotator()
    for choice, other in (("a", "both_bad"), ("a", "both_bad"), ("equal", "equal")):
        judge(queue, ann, choice)
        judge(queue, ben, other)
    one, two = [each.pk for each in read_disputed(queue)]
    done = pages.post(f"/queue-items/{one}/", {"choice": "a", "token": "t"})
    assert done["Location"] == f"/queue-items/{two}/?settled={one}"
    assert f'<a href="/queue-items/{one}/">#{one}</a> is adjudicated' in pages.get(done["Location"]).text
    done = pages.post(f"/queue-items/{two}/", {"choice": "a", "token": "u"})
    assert done["Location"] == f"/queues/{queue.pk}/"
    assert set(queue.reviews.filter(is_adjudication=True).values_list("saw_votes", flat=True)) == {False}


def test_a_lead_changes_queues_and_deletes_unanswered_ones(pages):
    ann, ben = annotator(username="ann"), annotator(username="ben")
    queue = make_queue(pairs=1, reviewers=[ann], instructions="Old.")
    path = f"/queues/{queue.pk}/edit/"
    html = pages.get(path).content.decode()
    assert (faults(html), "Old." in html, f'value="{ann.pk}" selected' in html) == ([], True, True)
    given = {"name": "Sums", "instructions": "New.", "overlap": 3, "order": "newest", "lease_minutes": 5}
    refused = pages.post(path, {**given, "overlap": 21})
    assert (refused.status_code, Queue.objects.get().overlap) == (422, 1)
    assert pages.post(path, {**given, "reviewers": [ben.pk]})["Location"] == f"/queues/{queue.pk}/"
    queue.refresh_from_db()
    assert {name: getattr(queue, name) for name in given} == given
    assert [each.user for each in queue.reviewers.all()] == [ben]
    judge(queue, ben)
    assert "Close it instead" in pages.get(path).content.decode()
    pages.post(f"/queues/{queue.pk}/delete/")
    assert Queue.objects.filter(pk=queue.pk).exists() is True
    empty = make_queue(pairs=1)
    assert pages.post(f"/queues/{empty.pk}/delete/")["Location"] == "/queues/"
    assert Queue.objects.filter(pk=empty.pk).exists() is False


@pytest.mark.parametrize("shows_model", [False, True])
def test_seed_and_usage_are_shown_only_with_the_model(ann, desk, shows_model):
    queue = make_queue(size=1, pairs=1, shows_model=shows_model)
    claim(queue, ann)
    runs = desk.get(f"/queues/{queue.pk}/review/").context["judged"]["runs"]
    labels = {label for run in runs for card in run.cards for label, _ in card.facts}
    assert "environment" in labels
    assert ("seed" in labels, "model" in labels) == (shows_model, shows_model)
    assert "usage" not in labels or shows_model


def test_a_rubric_is_changed_and_deleted_until_it_is_used(pages):
    rubric = make_rubric(slug="clarity")
    path = "/rubrics/clarity/edit/"
    criteria = '[{"key": "ok", "label": "Ok?", "kind": "boolean"}]'
    assert faults(pages.get(path).content.decode()) == []
    pages.post(path, {"name": "Clear", "description": "How clear.", "criteria": criteria})
    rubric.refresh_from_db()
    assert (rubric.name, rubric.slug, rubric.keys) == ("Clear", "clarity", ["ok"])
    queue = make_queue(size=1, pairs=1, rubric=rubric)
    pages.post(path, {"name": "Clearer", "description": "", "criteria": "[]"})
    pages.post("/rubrics/clarity/delete/")
    rubric.refresh_from_db()
    assert (rubric.name, rubric.keys) == ("Clearer", ["ok"])
    queue.delete()
    pages.post("/rubrics/clarity/delete/")
    assert Rubric.objects.exists() is False


def test_the_list_shows_the_number_of_repeats_to_leads_only(pages: Client, desk: Client):
    make_queue(pairs=4, repeat_share=0.5)
    assert ['<span class="sub">2 repeats</span>' in client.get("/queues/").text for client in (pages, desk)] == [
        True,
        False,
    ]


def test_the_list_takes_as_many_queries_for_three_queues_as_for_one():
    one, three = queries_with_one_and_three(lambda: "/queues/", make_queue)
    assert one == three


def test_every_link_and_form_of_an_annotators_pages_leads_where_they_may_go(desk, ann):
    queue = make_queue(pairs=2)
    judge(queue, ann)
    seen, wanted = set(), {"/", "/find/", "/account/", f"/queues/{queue.pk}/review/"}
    while wanted - seen:
        path = min(wanted - seen)
        seen.add(path)
        reply = desk.get(path, follow=True)
        assert (path, reply.status_code) == (path, 200)
        wanted |= set(re.findall(r'href="(/(?!static/)[^"#?]*)', reply.text))
        for address in re.findall(r'method="post" action="(/[^"?]*)"', reply.text):
            rule = resolve(address).func.permissions["POST"]
            assert user_may(ann, rule), f"{path} offers {address}"
    assert {"/queues/", "/reviews/", "/account/"} <= seen


def test_an_annotator_sees_open_queues_for_them_and_no_page_of_who_leads(desk, ann):
    mine, _others = make_queue(name="Mine", reviewers=[ann]), make_queue(name="Of others", reviewers=[annotator()])
    html = desk.get("/queues/").content.decode()
    assert ("Mine" in html, "Of others" in html) == (True, False)
    assert desk.get(f"/queues/{mine.pk}/").status_code == 403
    assert desk.get("/")["Location"] == "/queues/"


def test_a_rubric_is_written_on_its_page(pages):
    criteria = '[{"key": "ok", "label": "Ok?", "kind": "boolean"}]'
    pages.post("/rubrics/new/", {"name": "Fine", "slug": "fine", "criteria": criteria})
    assert Rubric.objects.get().keys == ["ok"]
    refused = pages.post("/rubrics/new/", {"name": "Fine", "slug": "finer", "criteria": "[{}]"})
    assert (refused.status_code, "has none of the kinds" in refused.content.decode()) == (422, True)
    assert "Fine" in pages.get("/rubrics/").content.decode()


def test_flags_scores_and_overrides_are_beside_the_trace(pages):
    rollout, rubric = make_rollout(make_collection()), make_rubric()
    path = f"/rollouts/{rollout.pk}/"
    pages.post(f"{path}flags/", {"kind": "hallucinated", "seq": 2, "note": "No such tool."})
    pages.post(f"{path}override/", {"reward": "0.25", "reason": "It guessed."})
    pages.post(f"{path}scores/", {"rubric": rubric.slug, "score-right": "true", "score-clear": "3"})
    step = {"rubric": rubric.slug, "score-right": "false", "score-clear": "1", "seq": "2", "note": "Here."}
    assert (
        "Enter the number of an existing step, or leave it empty"
        in pages.post(f"{path}scores/", step | {"seq": "x"}, follow=True).text
    )
    assert "has no event 99" in pages.post(f"{path}scores/", step | {"seq": "99"}, follow=True).text
    pages.post(f"{path}scores/", step)
    assert list(rollout.reviews.filter(seq=2).values_list("scores", "note")) == [
        ({"right": False, "clear": 1}, "Here.")
    ]
    html = pages.get(path).content.decode()
    for text in ("hallucinated", "No such tool.", "It guessed.", "0.25", "right True"):
        assert text in html
    assert faults(html) == []
    assert "earlier reward" not in html
    pages.post(f"{path}override/", {"reward": "0.5", "reason": "Half right."})
    pages.post(f"/flags/{Flag.objects.get().pk}/withdraw/")
    pages.post(f"/reward-overrides/{RewardOverride.objects.first().pk}/withdraw/")
    assert (Flag.objects.get().withdrawn_at is None, RewardOverride.objects.first().ended_how) == (False, "withdrawn")
    html = pages.get(path).content.decode()
    told = re.findall(r"<li>(.*?)</li>", html.split('id="replaced-rewards"')[1].split("</details>")[0])
    assert [("Half right." in one, "It guessed." in one) for one in told] == [(True, False), (False, True)]
    assert [re.findall("withdrawn|replaced", one) for one in told] == [["withdrawn"], ["replaced"]]
    assert faults(html) == []


def test_a_thread_is_settled_and_opened_again(pages):
    rollout = make_rollout(make_collection())
    pages.post(f"/rollouts/{rollout.pk}/comments/", {"text": "Why?"})
    comment = Comment.objects.get()
    pages.post(f"/comments/{comment.pk}/resolve/")
    assert Comment.objects.get().resolved_at is not None
    pages.post(f"/comments/{comment.pk}/resolve/", {"resolved": "0"})
    assert Comment.objects.get().resolved_at is None


def test_the_list_of_queues_shows_open_or_closed_ones_and_to_who_leads_them_how_far_people_agree(pages: Client, desk):
    judged, closed = make_queue(pairs=1, overlap=2, name="Judged"), make_queue(pairs=1, name="Closed")
    for number, choice in enumerate(("a", "both_bad")):
        judge(judged, annotator(username=f"judge-{number}"), choice)
    close_queue(queue=closed, user=None)
    page = pages.get("/queues/")
    assert [(queue.name, agreed) for queue, _, agreed, *_ in page.context["rows"]] == [
        ("Closed", None),
        ("Judged", 0.0),
    ]
    assert (faults(page.text), ">Agreement<" in page.text) == ([], True)
    assert f'href="/queues/{judged.pk}/items/?state=disputed">1 disputed</a>' in page.text
    assert [(row[0].done, row[0].wanted) for row in page.context["rows"]] == [(0, 1), (2, 2)]
    for state, name in (("open", "Judged"), ("closed", "Closed")):
        assert [row[0].name for row in pages.get(f"/queues/?state={state}").context["rows"]] == [name]
    assert ">Agreement<" not in desk.get("/queues/").text
    # What was chosen between side by side is no work that waits.
    Queue.objects.filter(pk=closed.pk).update(source={"compared": [1, 2]})
    assert [row[0].name for row in pages.get("/queues/").context["rows"]] == ["Judged"]
    assert [row[0].name for row in pages.get("/queues/?state=compared").context["rows"]] == ["Closed"]


def test_the_page_of_a_queue_shows_the_verdicts_and_for_leads_the_repeats(pages: Client, ann):
    queue = make_queue(pairs=4, repeat_share=0.5)
    assert 'id="answers-title"' not in pages.get(f"/queues/{queue.pk}/").text
    judge(queue, ann, "b")
    page = pages.get(f"/queues/{queue.pk}/").text
    assert ("B better: <strong>1</strong>" in page, "4 items, 2 repeats" in page) == (True, True)
    assert ("Between reviewers" in page, "at least 2 reviews per item" in page, faults(page)) == (False, True, [])
    (row,) = pages.get("/queues/").context["rows"]
    assert (row[0].done, row[0].wanted) == (1, 6)


def test_the_page_of_a_queue_follows_its_progress_by_one_query_and_says_when_its_figures_are_older(
    pages: Client, ann, django_assert_max_num_queries
):
    queue = make_queue(pairs=3)
    Review.objects.filter(pk=judge(queue, ann, "a").pk).update(seconds=60.0)
    page = pages.get(f"/queues/{queue.pk}/")
    assert "About 2 min of reviewing left" in page.text
    live = re.search(r'id="queue-progress"[^>]*hx-get="([^"]+)"', page.text)
    assert live
    asked = f"{live[1]}"
    assert "There are new reviews" not in pages.get(asked, headers={"HX-Request": "true"}).text
    judge(queue, ann, "b")
    with django_assert_max_num_queries(4):
        part = pages.get(asked, headers={"HX-Request": "true"}).text
    assert ("There are new reviews" in part, "<small>of 3</small>" in part, asked in part) == (True, True, True)
    assert faults(page.text) == []
