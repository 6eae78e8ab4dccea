"""Queues and reviews through the API: made, worked through, led, and handed over."""

import json

import pytest

from apps.accounts.models import AuditEntry, Role
from apps.accounts.permissions import ROLE_PERMISSIONS, Permission
from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_leases import skip_item
from tests.api.conftest import client_of
from tests.factories import make_collection, make_rollout, make_user
from tests.reviews.queues import annotator, claim, judge, make_queue, make_rubric

pytestmark = pytest.mark.django_db


def send(client, path, body=None, method="post"):
    return getattr(client, method)(f"/api/v1/{path}", json.dumps(body or {}), content_type="application/json")


@pytest.fixture
def reviewer():
    return client_of(Role.ANNOTATOR)


def make_group(rollouts=4):
    collection = make_collection()
    return collection, [make_rollout(collection, reward=number / 10).pk for number in range(rollouts)]


def test_a_queue_is_made_of_a_collection_of_rollouts_or_of_items(engineer):
    collection, ids = make_group()
    make_rubric(slug="clarity")
    for body, count in (
        ({"kind": "pairwise", "collection": collection.pk, "per_task": 3}, 3),
        ({"kind": "ranking", "rollouts": ids, "size": 2}, 2),
        ({"kind": "pairwise", "items": [ids[:2], ids[2:]]}, 2),
        ({"kind": "ranking", "filter": f"reward:>0.05 collection:{collection.pk}"}, 1),
        ({"kind": "rubric", "rollouts": ids, "rubric": "clarity"}, 4),
    ):
        made = send(engineer, "queues/", {"name": "Sums", **body})
        assert (made.status_code, made.json()["item_count"]) == (201, count)
    assert [made.json()[f"shows_{name}"] for name in ("expected", "reward", "model")] == [False] * 3
    assert [each["key"] for each in made.json()["criteria"]] == ["right", "clear", "why"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"kind": "pairwise"}, "/items"),
        ({"kind": "pairwise", "items": [[999_998, 999_999]]}, "/items"),
        ({"kind": "rubric", "rollouts": ["all"]}, "/rubric"),
        ({"kind": "pairwise", "rollouts": ["all"], "overlap": 21}, "/overlap"),
        ({"kind": "pairwise", "rollouts": ["all"], "reviewers": ["viewer"]}, "/reviewers"),
        ({"kind": "pairwise", "rollouts": ["all"], "blind": True}, "/blind"),
        ({"kind": "pairwise", "filter": "rewrd:>1"}, "/filter"),
    ],
)
def test_an_invalid_queue_is_refused_by_field(engineer, body, pointer):
    _, ids = make_group()
    make_user(Role.VIEWER, username="viewer")
    given = {**body, **({"rollouts": ids} if body.get("rollouts") else {})}
    refused = send(engineer, "queues/", {"name": "Sums", **given})
    assert (refused.status_code, [each["pointer"] for each in refused.json()["errors"]]) == (400, [pointer])
    assert Queue.objects.count() == 0


def test_a_reviewer_claims_writes_submits_undoes_and_skips(reviewer):
    queue = make_queue(pairs=2)
    held = send(reviewer, f"queues/{queue.pk}/claim/").json()
    assert [side["label"] for side in held["shown"]["sides"]] == ["A", "B"]
    assert held["shown"]["prompt"][0]["content"].startswith("What is")
    path = f"reviews/{held['id']}/"
    assert send(reviewer, path + "renew/", {"draft": {"choice": "b"}}).json()["draft"] == {"choice": "b"}
    refused = send(reviewer, path + "submit/", {"token": "t1"})
    assert [each["pointer"] for each in refused.json()["errors"]] == ["/choice"]
    answer = {"token": "t1", "choice": "b_much", "reasons": ["correctness"], "confidence": 2}
    for _ in range(2):
        said = send(reviewer, path + "submit/", answer)
        assert (said.status_code, said.json()["status"], said.json()["choice"]) == (200, "submitted", "b_much")
    again = send(reviewer, path + "submit/", {**answer, "token": "t2"})
    assert (again.status_code, again.json()["type"]) == (409, "urn:gymweb:problem:already-submitted")
    other = send(reviewer, f"queues/{queue.pk}/undo/", {"review": held["id"] + 1})
    assert (other.status_code, other.json()["type"]) == (409, "urn:gymweb:problem:cannot-review")
    for body in ({}, {"review": held["id"]}):
        assert send(reviewer, f"queues/{queue.pk}/undo/", body).json()["draft"]["choice"] == "b_much"
    assert send(reviewer, path + "skip/", {"reason": "twice the same"}).json()["status"] == "skipped"
    assert send(reviewer, f"queues/{queue.pk}/claim/").json()["id"] != held["id"]


def test_a_submission_brings_the_next_item_with_it_and_the_same_one_when_it_is_sent_again(reviewer):
    queue = make_queue(pairs=2)
    first = send(reviewer, f"queues/{queue.pk}/claim/").json()["id"]
    answer = {"token": "t1", "choice": "a"}
    assert send(reviewer, f"reviews/{first}/submit/", answer).json()["next"] is None
    assert Review.objects.count() == 1
    following = [send(reviewer, f"reviews/{first}/submit/", {**answer, "claim": True}).json()["next"] for _ in range(2)]
    assert following == [send(reviewer, f"queues/{queue.pk}/claim/").json()["id"]] * 2
    last = send(reviewer, f"reviews/{following[0]}/submit/", {**answer, "token": "t2", "claim": True})
    assert (last.status_code, last.json()["status"], last.json()["next"]) == (200, "submitted", None)


def test_a_submission_that_is_refused_takes_no_item(reviewer):
    queue = make_queue(pairs=2)
    held = send(reviewer, f"queues/{queue.pk}/claim/").json()["id"]
    refused = send(reviewer, f"reviews/{held}/submit/", {"token": "t1", "claim": True})
    assert (refused.status_code, Review.objects.count()) == (400, 1)


def test_what_waits_is_told_queue_by_queue(reviewer):
    first, second = make_queue(pairs=2), make_queue(pairs=3, name="Sums")
    send(reviewer, f"queues/{second.pk}/claim/")
    assert reviewer.get("/api/v1/queues/waiting/").json() == [
        {"queue": second.pk, "name": "Sums", "left": 3, "is_begun": True},
        {"queue": first.pk, "name": "Queue", "left": 2, "is_begun": False},
    ]


def test_when_nothing_is_left_claiming_says_so(reviewer):
    queue = make_queue(pairs=1)
    judge(queue, annotator())
    assert send(reviewer, f"queues/{queue.pk}/claim/").status_code == 204


def test_reviewers_see_their_own_reviews_and_who_leads_all(reviewer, engineer):
    queue = make_queue(pairs=2)
    judge(queue, annotator())
    mine = send(reviewer, f"queues/{queue.pk}/claim/").json()["id"]
    assert [row["id"] for row in reviewer.get("/api/v1/reviews/").json()["results"]] == [mine]
    seen = engineer.get(f"/api/v1/reviews/?queue={queue.pk}").json()["results"]
    assert len(seen) == 2
    assert {len(row["rollouts"]) for row in seen} == {2}
    assert reviewer.get(f"/api/v1/reviews/{Review.objects.order_by('pk')[0].pk}/").status_code == 404


def test_who_leads_reads_figures_adjudicates_and_takes_the_reviews_along(engineer):
    queue = make_queue(pairs=1, overlap=2)
    judge(queue, annotator(), "a", note="=1+1")
    judge(queue, annotator(), "both_bad")
    figures = engineer.get(f"/api/v1/queues/{queue.pk}/figures/").json()
    assert (figures["progress"]["disputed"], figures["agreement"][0]["percent"]) == (1, 0.0)
    (item,) = engineer.get(f"/api/v1/queue-items/?queue={queue.pk}&disputed=true").json()["results"]
    settled = send(engineer, f"queue-items/{item['id']}/adjudicate/", {"token": "t", "choice": "a", "saw_votes": False})
    told = settled.json()
    assert (settled.status_code, told["is_adjudication"], told["saw_votes"]) == (201, True, False)
    collection = make_rollout(make_collection()).collection_id
    assert engineer.get(f"/api/v1/verdicts/?collection={collection}").json() == []
    rows = [json.loads(line) for line in read(engineer.get(f"/api/v1/queues/{queue.pk}/export/")).splitlines()]
    assert [(row["choice"], row["is_adjudication"]) for row in rows] == [("a", False), ("both_bad", False), ("a", True)]
    assert rows[2]["winner"] == item["rollouts"][0]
    lines = read(engineer.get(f"/api/v1/queues/{queue.pk}/export/?format=csv")).splitlines()
    assert len(lines) == 4
    assert "'=1+1" in lines[1]


def read(reply) -> str:
    from asgiref.sync import async_to_sync

    async def gather() -> bytes:
        return b"".join([piece async for piece in reply.streaming_content])

    return async_to_sync(gather)().decode()


def test_reviews_and_items_are_filtered_by_answers(engineer):
    queue = make_queue(pairs=2, order="newest", overlap=2)
    ann = annotator(username="ann")
    said = judge(queue, ann, "a_much", confidence=1)
    skip_item(review=claim(queue, ann), user=ann, reason="no")
    collection = queue.items.all()[0].entries.all()[0].rollout.collection_id

    def found(query: str) -> list[int]:
        return [each["id"] for each in engineer.get(f"/api/v1/{query}").json()["results"]]

    assert found(f"reviews/?collection={collection}&confidence=1&kind=pairwise&text=what") == [said.pk]
    assert found(f"reviews/?rollout={said.arrangement[1]}&choice=a_much&task_number=2") == [said.pk]
    assert found("reviews/?confidence=3") == []
    assert found("queue-items/?state=waiting&reviewer=ann&skipped=false") == [said.item_id]
    assert found("queue-items/?state=settled") == []
    for wrong in ("queue-items/?state=asleep", "reviews/?confidence=4", "reviews/?task_number=0", "reviews/?verdict=c"):
        assert engineer.get(f"/api/v1/{wrong}").status_code == 400


def test_reviews_that_pass_are_written_as_a_file(engineer, reviewer):
    queue = make_queue(pairs=2, order="newest")
    ann = annotator(username="ann")
    judge(queue, ann, "a_much")
    skip_item(review=claim(queue, ann), user=ann, reason="no")
    path = "/api/v1/reviews/export/"
    whole = engineer.get(f"{path}?queue={queue.pk}")
    rows = [json.loads(line) for line in read(whole).splitlines()]
    assert [(row["status"], row["skip_reason"], row["kind"]) for row in rows] == [
        ("submitted", "", "pairwise"),
        ("skipped", "no", "pairwise"),
    ]
    assert whole["Content-Disposition"] == 'attachment; filename="reviews.ndjson"'
    assert len(read(engineer.get(f"{path}?format=csv&status=skipped")).splitlines()) == 2
    same = engineer.get(f"{path}?queue={queue.pk}", headers={"If-None-Match": whole["ETag"]})
    other = engineer.get(f"{path}?queue={queue.pk}&status=open", headers={"If-None-Match": whole["ETag"]})
    assert (same.status_code, other.status_code) == (304, 200)
    assert [engineer.get(path + query).status_code for query in ("?format=xml", "?cursor=1", "?state=done")] == [
        400
    ] * 3
    assert reviewer.get(path).status_code == 403
    # Each file that went out is in the log, with the address's filters; what was not sent again is not.
    read(engineer.get(f"/api/v1/queues/{queue.pk}/export/?format=csv"))
    entries = AuditEntry.objects.filter(action="review.export").order_by("id")
    assert [(each.target, each.origin, each.detail["format"], each.detail["reviews"]) for each in entries] == [
        ("", "api", "ndjson", 2),
        ("", "api", "csv", 1),
        ("", "api", "ndjson", 0),
        (f"queue {queue.pk}", "api", "csv", 1),
    ]
    assert entries[1].detail["filters"] == {"format": "csv", "status": "skipped"}


def test_a_collection_has_its_current_verdicts(engineer):
    queue = make_queue(pairs=1)
    review = judge(queue, annotator(), "a_much")
    collection = queue.items.get().entries.first().rollout.collection_id
    (standing,) = engineer.get(f"/api/v1/verdicts/?collection={collection}").json()
    assert (standing["winner"], standing["strength"], standing["how"]) == (review.arrangement[0], 2, "single")
    assert engineer.get("/api/v1/verdicts/?collection=x").status_code == 400


def test_flags_and_rewards_of_people_are_given_and_taken_back(engineer, reviewer):
    rollout = make_rollout(make_collection())
    body = {"rollout": rollout.pk, "seq": 2, "kind": "wrong_tool"}
    assert send(reviewer, "flags/", body).status_code == 403
    flag = send(engineer, "flags/", body)
    assert (flag.status_code, flag.json()["kind"]) == (201, "wrong_tool")
    assert send(engineer, f"flags/{flag.json()['id']}/withdraw/").json()["withdrawn_at"] is not None
    given = {"rollout": rollout.pk, "reward": 0.25, "reason": "It guessed."}
    assert send(reviewer, "reward-overrides/", given).status_code == 403
    override = send(engineer, "reward-overrides/", given).json()
    assert (override["original_reward"], override["reward"]) == (1.0, 0.25)
    assert send(engineer, f"reward-overrides/{override['id']}/withdraw/").json()["ended_how"] == "withdrawn"
    assert engineer.get(f"/api/v1/rollouts/{rollout.pk}/").json()["reward"] == 1.0


def test_a_rubric_is_written_used_and_kept(engineer):
    body = {"slug": "clarity", "name": "Clarity", "criteria": [{"key": "ok", "label": "Ok?", "kind": "boolean"}]}
    assert send(engineer, "rubrics/", body).status_code == 201
    rollout = make_rollout(make_collection())
    score = {"rollout": rollout.pk, "rubric": "clarity", "scores": {"ok": True}, "token": "t"}
    assert send(engineer, "reviews/", score).json()["scores"] == {"ok": True}
    assert (
        send(engineer, "reviews/", {**score, "token": "u", "scores": {}}).json()["errors"][0]["pointer"] == "/scores/ok"
    )
    changed = {"criteria": [{"key": "fine", "label": "Fine?", "kind": "boolean"}]}
    assert send(engineer, "rubrics/clarity/", changed, "patch").status_code == 409
    assert engineer.delete("/api/v1/rubrics/clarity/").status_code == 409


def test_comments_quote_answer_and_are_settled(engineer):
    rollout = make_rollout(make_collection())
    first = send(
        engineer, "comments/", {"rollout": rollout.pk, "seq": 2, "quote": "2+2", "start": 15, "text": "Why twice?"}
    ).json()
    answer = send(engineer, "comments/", {"rollout": rollout.pk, "text": "It is not.", "parent": first["id"]}).json()
    assert (first["quote"], answer["seq"], answer["parent"]) == ("2+2", 2, first["id"])
    assert send(engineer, f"comments/{answer['id']}/resolve/").json()["id"] == first["id"]
    settled = engineer.get(f"/api/v1/comments/?rollout={rollout.pk}&resolved=true").json()["results"]
    for collection, found in ((rollout.collection_id, settled), (rollout.collection_id + 1, [])):
        assert engineer.get(f"/api/v1/comments/?collection={collection}&resolved=true").json()["results"] == found
    assert [row["id"] for row in settled] == [first["id"]]
    assert send(engineer, f"comments/{first['id']}/reopen/").json()["resolved_at"] is None
    elsewhere = {"rollout": make_rollout(make_collection()).pk, "text": "x", "parent": first["id"]}
    assert send(engineer, "comments/", elsewhere).status_code == 400


def test_annotators_review_and_do_not_lead():
    held = ROLE_PERMISSIONS[Role.ANNOTATOR]
    assert (Permission.REVIEW in held, Permission.LEAD in held) == (True, False)


def test_how_items_were_drawn_and_which_rollout_is_behind_one_is_told_to_no_annotator(engineer, reviewer):
    queue = make_queue(size=1, repeat_share=0.5)
    drawn = [queue.seed, 0.5]
    for client, told in ((engineer, drawn), (reviewer, [None] * 2)):
        for body in (
            client.get(f"/api/v1/queues/{queue.pk}/").json(),
            client.get("/api/v1/queues/").json()["results"][0],
        ):
            assert [body[name] for name in ("seed", "repeat_share")] == told
    held = Review.objects.get(pk=send(reviewer, f"queues/{queue.pk}/claim/").json()["id"])
    path = f"/api/v1/reviews/?rollout={held.rollout_id}"
    assert [len(client.get(path).json()["results"]) for client in (engineer, reviewer)] == [1, 0]
    assert send(reviewer, f"reviews/{held.pk}/renew/").json()["rollouts"] is None
    assert engineer.get(f"/api/v1/reviews/{held.pk}/").json()["rollouts"] == held.arrangement


@pytest.mark.parametrize(
    "draft", [{"reasons": 5}, {"reasons": [1]}, {"ranks": "12"}, {"scores": []}, {"confidence": True}, {"other": "x"}]
)
def test_a_draft_that_no_page_could_show_is_refused(reviewer, draft):
    held = send(reviewer, f"queues/{make_queue(pairs=1).pk}/claim/").json()
    answer = send(reviewer, f"reviews/{held['id']}/renew/", {"draft": draft})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/draft")
