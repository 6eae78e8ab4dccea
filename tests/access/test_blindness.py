"""Whoever has still to judge rollouts of which something is hidden learns it nowhere: on every route, in the API with a
session and with a key, and by the sockets."""

import re
from collections.abc import Sequence
from datetime import timedelta
from itertools import product

import pytest
from asgiref.sync import async_to_sync
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.test import Client
from django.urls import get_resolver
from django.utils import timezone
from django.utils.regex_helper import normalize

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import Role, Scope
from apps.accounts.permissions import ROLE_PERMISSIONS
from apps.pairs.models import PairSet, PreferencePair
from apps.reviews.comments.commenting import add_comment
from apps.reviews.models import Queue, Review
from apps.reviews.queues.blind_access import hides_anything, hides_collection
from apps.reviews.queues.item_leases import claim_item, skip_item
from apps.reviews.queues.queue_changes import change_queue, close_queue, create_queue, open_queue
from apps.reviews.queues.queue_items import fill_from_sets
from apps.reviews.reviews.flags import raise_flag
from apps.reviews.reviews.reward_overrides import override_reward
from apps.rollouts.models import Collection
from apps.tasks.models import Task
from gymweb.asgi import application
from tests.access.routes import Route, _resolve, _walk, every_socket
from tests.deadlines import DEADLINE
from tests.factories import (
    make_collection,
    make_dataset,
    make_policy_model,
    make_rollout,
    make_row,
    make_trace,
    make_user,
)
from tests.reviews.queues import annotator, make_rubric, say

ONE = 4242
REWARD, OTHER_REWARD, EXPECTED, MODEL = "0.731937", "0.264917", "quagga-answer", "zebra-model"
IDS = "zebra_ids_of_its_provider"
SECRETS = re.compile("|".join(map(re.escape, [REWARD, OTHER_REWARD, "0.73", "0.26", EXPECTED, MODEL, IDS])))


class House:
    """One of everything that tells of two rollouts, all under the same number and slug, where there is one."""

    def __init__(self, **fields):
        self.lead = make_user(Role.ENGINEER)
        model = make_policy_model(slug="zebra", name=MODEL)
        dataset = make_dataset([make_row("What is it?", EXPECTED)], slug="zebra", name="Zebra")
        self.collection = make_collection(
            pk=ONE, dataset=dataset, policy_model=model, state=Collection.State.COMPLETED, name="Zebra"
        )
        trace = make_trace(reward=float(REWARD))
        for event in trace:
            if hasattr(event, "model"):
                event.model = MODEL
            if hasattr(event, "explanation"):
                event.explanation = f"It is not {EXPECTED}."
            if hasattr(event, "original"):  # what the file of an imported rollout says
                event.original = {
                    "response": {"id": IDS, "model": MODEL, "usage": {"output_tokens": 5}},
                    "details": {"judge_evaluations": [{"expected": EXPECTED, "score": REWARD}]},
                }
            for item in getattr(event, "items", ()):
                item.update(id=IDS, encrypted_content=IDS, provider_data={"model": MODEL})
                if isinstance(item.get("content"), list):
                    item["content"][0].update(logprobs=[IDS])
                if "call_id" in item:
                    item["call_id"] = IDS
            if hasattr(event, "call_id"):
                event.call_id = IDS
        task = self.collection.version.tasks.get()
        given = {"trace": trace, "model_version": MODEL, "task": task}
        self.first = make_rollout(self.collection, pk=ONE, reward=float(REWARD), **given)
        self.second = make_rollout(self.collection, reward=float(OTHER_REWARD), **given)
        add_comment(rollout=self.first, text=f"Should be {REWARD}", author=self.lead)
        raise_flag(rollout=self.first, kind="verifier_wrong", author=self.lead, note=f"Should be {REWARD}")
        override_reward(rollout=self.first, reward=float(REWARD), reason=EXPECTED, author=self.lead)
        pair_set = PairSet.objects.create(pk=ONE, collection=self.collection, pair_count=1)
        PreferencePair.objects.create(
            pk=ONE, pair_set=pair_set, task=task, chosen=self.first, rejected=self.second, margin=0.46702
        )
        queue = Queue(pk=ONE, **{"name": "Zebra", "kind": "pairwise", "seed": 7, **fields})
        size = 1 if queue.kind == "rubric" else 2
        sets = [[self.first.pk, self.second.pk][:size]]
        self.queue = create_queue(
            queue=queue, items=fill_from_sets(sets, kind=queue.kind), reviewers=[], user=self.lead
        )


@pytest.fixture
def house(db):
    return House()


# What the parts of an address are called, and what is in the house under that name.
NAMED = {
    "slug": ["zebra"],
    "seq": ["4", "5"],
    "side": ["A", "B"],
    "step": ["0", "1", "2", "3", "4", "5", "6"],
    "part": ["0"],
    "number": ["1"],
    "name": ["rewards"],
    "path": ["x"],
}


def addresses() -> list[tuple[Route, str]]:
    """Every route, with the numbers and slugs that are in the house."""
    found = []
    for prefix, pattern in _walk(get_resolver(), ("^/",)):
        regex = "".join(part.removeprefix("^") for part in (*prefix, pattern.pattern.regex.pattern))
        for form, names in normalize(regex):
            for chosen in product(*(NAMED.get(name, [str(ONE)]) for name in names)):
                path = form % dict(zip(names, chosen, strict=True))
                match = _resolve(path)
                if match is not None and match.func is pattern.callback:
                    found.append((Route(path, pattern.callback), path))
    return found


ASKED = [
    "",
    "?r=4242,4243",
    "?a=4242&b=4242",
    "?collection=4242",
    "?q=zebra",
    "?attempt=1",
    "?reward_min=0.5",
    "?list=a",
]


def text_of(reply) -> str:
    if not reply.streaming:
        return reply.content.decode(errors="replace")

    async def read() -> bytes:
        return b"".join([piece async for piece in reply.streaming_content])

    pieces = async_to_sync(read)() if reply.is_async else b"".join(reply.streaming_content)
    return pieces.decode(errors="replace")


CHANGES = ("POST", "PUT", "PATCH", "DELETE")


def leaks(client: Client, *, below: str = "/", changes: Sequence[str] = CHANGES) -> list[str]:
    """Addresses that tell something of what is hidden."""
    role = ROLE_PERMISSIONS[Role.ANNOTATOR]
    wrong = []
    for route, path in addresses():
        if not path.startswith(below):
            continue
        # Lists are asked for by what could pick out a rollout, too.
        for query in [""] if str(ONE) in path else ASKED:
            if route.rules.get("GET") in role:
                reply = client.get(path + query)
                if SECRETS.search(text_of(reply)):
                    wrong.append(f"GET {path}{query}")
        for method in changes:
            permission = route.rules.get(method)
            if permission in role and not path.startswith(("/sign-", "/account", "/api/v1/me/", "/api/v1/queues/")):
                reply = client.generic(method, path, data="{}", content_type="application/json")
                if SECRETS.search(text_of(reply)):
                    wrong.append(f"{method} {path}")
    return wrong


@pytest.mark.slow
def test_an_annotator_with_something_to_judge_learns_nothing_anywhere(house):
    ann = annotator()
    client = Client()
    client.force_login(ann)
    assert client.get(f"/api/v1/rollouts/{ONE}/").status_code == 403
    # Nor while the item is open, whose pages and actions are walked as well.
    assert client.post(f"/api/v1/queues/{ONE}/claim/").status_code == 200
    Review.objects.update(id=ONE)
    assert leaks(client) == []


@pytest.mark.slow
def test_nor_with_a_key(house):
    ann = annotator()
    _, token = create_api_key(user=ann, name="walk", scopes=[Scope.ADMIN])
    client = Client(headers={"Authorization": f"Bearer {token}"})
    claimed = client.post(f"/api/v1/queues/{ONE}/claim/")
    assert claimed.status_code == 200
    assert SECRETS.search(claimed.content.decode()) is None
    assert claimed.json()["rollouts"] is None
    assert [side["label"] for side in claimed.json()["shown"]["sides"]] == ["A", "B"]
    # A key opens no page: tests/access/test_every_key.py.
    assert leaks(client, below="/api/") == []


@pytest.mark.slow
def test_who_leads_sees_it_and_the_walk_would_notice(house):
    client = Client()
    client.force_login(house.lead)
    found = leaks(client, changes=())
    assert f"GET /api/v1/rollouts/{ONE}/" in found
    assert f"GET /rollouts/{ONE}/" in found
    assert f"GET /rollouts/{ONE}/raw/" in found
    assert f"GET /collections/{ONE}/" in found
    assert "GET /rollouts/compare/?r=4242,4243" in found
    assert len(found) > 60


@pytest.mark.django_db(transaction=True)
def test_nor_by_a_socket(migrated):
    house = House()
    ann = annotator()

    def opens(user, path):
        client = Client()
        client.force_login(user)
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        headers = [
            (b"host", b"localhost"),
            (b"origin", b"http://localhost"),
            (b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie}".encode()),
        ]

        async def go() -> bool:
            socket = WebsocketCommunicator(application, path, headers)
            is_open, _ = await socket.connect(timeout=DEADLINE)
            await socket.disconnect(timeout=DEADLINE)
            return is_open

        return async_to_sync(go)()

    paths = [path.replace("999999", str(ONE)) for path in every_socket()]
    assert [opens(ann, path) for path in paths] == [False] * len(paths)
    assert [opens(house.lead, path) for path in paths] == [True] * len(paths)


def test_it_is_hidden_until_it_is_submitted_and_can_be_undone_no_more(house, client):
    ann = annotator()
    client.force_login(ann)
    path = f"/api/v1/rollouts/{ONE}/"
    refused = client.get(path)
    assert (refused.status_code, refused.json()["detail"][:31]) == (403, "You have something to review of")
    review = say(claim_item(queue=house.queue, user=ann))
    assert client.get(path).status_code == 403
    Review.objects.filter(pk=review.pk).update(submitted_at=timezone.now() - timedelta(minutes=11))
    assert client.get(path).json()["reward"] == float(REWARD)


def test_what_was_skipped_or_closed_or_is_for_others_is_hidden_no_more(house, client):
    ann = annotator()
    assert hides_anything(ann)
    skip_item(review=claim_item(queue=house.queue, user=ann), user=ann, reason="no")
    # It could be taken back meanwhile.
    assert hides_anything(ann)
    Review.objects.update(skipped_at=timezone.now() - timedelta(minutes=11))
    assert not hides_anything(ann)
    ben = annotator()
    assert hides_anything(ben)
    close_queue(queue=house.queue, user=house.lead)
    assert not hides_anything(ben)


@pytest.mark.parametrize("way", ["closed", "taken off"])
def test_what_was_begun_stays_hidden_while_it_may_be_submitted_again_and_is_not_taken_meanwhile(house, client, way):
    """Else whoever is taken off a queue, or knows that it is closed, could look and then submit."""
    ann = annotator()
    client.force_login(ann)
    path, queue = f"/api/v1/rollouts/{ONE}/", house.queue

    def turn(begin: bool) -> None:
        if way == "taken off":
            change_queue(queue=queue, changes={}, reviewers=[annotator()] if begin else [ann], user=house.lead)
        else:
            (close_queue if begin else open_queue)(queue=queue, user=house.lead)

    review = claim_item(queue=queue, user=ann)
    turn(begin=True)
    assert client.get(path).status_code == 403
    refused = client.post(
        f"/api/v1/reviews/{review.pk}/submit/", {"token": "t", "choice": "a", "note": "long"}, "application/json"
    )
    assert (refused.status_code, refused.json()["type"][-13:]) == (409, "cannot-review")
    assert refused.json()["detail"].endswith("What you wrote is kept as a draft.")
    renewed = client.post(
        f"/api/v1/reviews/{review.pk}/renew/", {"draft": {"note": "longer"}}, content_type="application/json"
    )
    assert (renewed.status_code, renewed.json()["type"][-13:]) == (409, "cannot-review")
    review.refresh_from_db()
    assert (review.status, review.draft) == ("open", {"note": "longer"})
    turn(begin=False)
    assert client.get(path).status_code == 403
    # Again, and now for longer than anybody's answer is waited for.
    turn(begin=True)
    Review.objects.update(leased_until=timezone.now() - timedelta(hours=25))
    assert client.get(path).status_code == 200
    turn(begin=False)
    refused = client.post(f"/api/v1/reviews/{review.pk}/submit/", {"token": "t", "choice": "a"}, "application/json")
    assert (refused.status_code, "hidden no more" in refused.json()["detail"]) == (409, True)
    assert claim_item(queue=queue, user=ann) is None


def test_what_can_be_taken_back_stays_hidden_when_the_queue_is_closed(house):
    ann = annotator()
    say(claim_item(queue=house.queue, user=ann))
    close_queue(queue=house.queue, user=house.lead)
    assert hides_anything(ann)
    Review.objects.update(submitted_at=timezone.now() - timedelta(minutes=11))
    assert not hides_anything(ann)


def test_what_somebody_left_lying_and_others_finished_comes_back_with_nothing(house):
    """Their dataset was open to them since."""
    ann = annotator()
    left = claim_item(queue=house.queue, user=ann)
    Review.objects.update(leased_until=timezone.now() - timedelta(hours=25))
    say(claim_item(queue=house.queue, user=annotator()))
    assert not hides_anything(ann)
    change_queue(queue=house.queue, changes={"overlap": 3}, user=house.lead)
    left.refresh_from_db()
    assert (left.status, claim_item(queue=house.queue, user=ann)) == ("skipped", None)


def test_a_queue_that_shows_more_tells_nothing_of_what_another_hides(house, client):
    shows = dict.fromkeys(["shows_expected", "shows_reward", "shows_model", "reveals"], True)
    other = Queue(name="Open", kind="rubric", rubric=make_rubric(), **shows)
    other = create_queue(
        queue=other, items=fill_from_sets([[house.first.pk]], kind="rubric"), reviewers=[], user=house.lead
    )
    ann = annotator()
    client.force_login(ann)
    scores = {"token": "t", "scores": {"right": True, "clear": 3, "why": "so"}}

    def secrets() -> bool:
        body = client.post(f"/api/v1/queues/{other.pk}/claim/").content.decode()
        page = client.get(f"/queues/{other.pk}/review/").content.decode()
        assert "What is it?" in body
        return SECRETS.search(body + page) is not None

    # Before the other one has been claimed, while it is open, and while it can be taken back.
    assert not secrets()
    blind = claim_item(queue=house.queue, user=ann)
    assert not secrets()
    say(blind)
    assert not secrets()
    told = client.get("/api/v1/reviews/?status=open").json()["results"]
    number = next(each["id"] for each in told if each["queue"] == other.pk)
    Review.objects.filter(pk=blind.pk).update(submitted_at=timezone.now() - timedelta(minutes=11))
    assert secrets()
    Review.objects.filter(pk=blind.pk).update(submitted_at=timezone.now())
    submitted = client.post(f"/api/v1/reviews/{number}/submit/", scores, content_type="application/json")
    assert (submitted.status_code, submitted.json()["revealed"]) == (200, [])
    Review.objects.filter(pk=blind.pk).update(submitted_at=timezone.now() - timedelta(minutes=11))
    assert client.get(f"/api/v1/reviews/{number}/").json()["revealed"][0]["reward"] == float(REWARD)


def test_what_lost_a_rollout_hides_nothing(house):
    ann, ben = annotator(), annotator()
    claim_item(queue=house.queue, user=ann)
    assert hides_anything(ben)
    house.second.delete()
    assert (hides_anything(ann), hides_anything(ben)) == (False, False)


def test_other_datasets_stay_open_and_tell_nothing_of_the_hidden_one(house, client):
    ann = annotator()
    client.force_login(ann)
    other = make_rollout(make_collection(state=Collection.State.COMPLETED), reward=0.5)
    for path in (
        f"/rollouts/{other.pk}/",
        f"/collections/{other.collection_id}/",
        f"/tasks/{other.task_id}/",
        f"/datasets/{other.task.dataset.slug}/",
        f"/api/v1/rollouts/{other.pk}/",
    ):
        reply = client.get(path)
        assert (reply.status_code, SECRETS.search(reply.content.decode())) == (200, None), path
    assert client.get(f"/rollouts/compare/?r={other.pk},{ONE}").status_code == 403
    assert client.get("/rollouts/").status_code == 403
    # It shows mean rewards of what used it.
    agent = f"/agents/{house.collection.agent.slug}/"
    assert (client.get("/agents/").status_code, client.get(agent).status_code) == (200, 403)


def test_the_same_row_in_another_dataset_is_closed_too_and_no_other_queue_tells_its_answer(house, client):
    row = make_row("What is it?", EXPECTED)
    collections = [make_collection(dataset=make_dataset([one]), state=Collection.State.COMPLETED) for one in (row, row)]
    same, other = [make_rollout(each) for each in collections]
    Task.objects.filter(pk__in=[house.first.task_id, same.task_id]).update(row_hash="the same row")
    Task.objects.filter(pk=other.task_id).update(row_hash="another row")
    ann = annotator()
    client.force_login(ann)

    def opens(rollout) -> set[int]:
        paths = [f"rollouts/{rollout.pk}", f"collections/{rollout.collection_id}", f"tasks/{rollout.task_id}"]
        paths.append(f"datasets/{rollout.task.dataset.slug}")
        return {client.get(f"{root}{path}/").status_code for path in paths for root in ("/", "/api/v1/")}

    assert (opens(same), opens(other)) == ({403}, {200})
    assert (hides_collection(ann, same.collection_id), hides_collection(ann, other.collection_id)) == (True, False)
    showing = Queue(name="Open", kind="rubric", rubric=make_rubric(), shows_expected=True)
    items = fill_from_sets([[same.pk], [other.pk]], kind="rubric")
    showing = create_queue(queue=showing, items=items, user=house.lead)
    told = {}
    for _ in items:
        body = client.post(f"/api/v1/queues/{showing.pk}/claim/").content.decode()
        review = Review.objects.get(queue=showing, reviewer=ann, status="open")
        told[review.rollout_id] = EXPECTED in body
        skip_item(review=review, user=ann, reason="no")
    assert told == {same.pk: False, other.pk: True}


def test_who_stands_beside_an_open_rollout_in_a_list_tells_nothing_of_a_hidden_one(house, client):
    ann = annotator()
    other = make_rollout(make_collection(state=Collection.State.COMPLETED), reward=0.5)
    listed = {"list": f"q=id:{ONE} reward:>0.7&sort=-id"}

    def told(user) -> bool:
        client.force_login(user)
        return f"/rollouts/{ONE}/" in client.get(f"/rollouts/{other.pk}/", listed).content.decode()

    assert (told(ann), told(house.lead)) == (False, True)


def test_a_queue_that_shows_everything_hides_nothing(db):
    House(shows_expected=True, shows_reward=True, shows_model=True)
    assert not hides_anything(annotator())


def test_a_rubric_queue_shows_what_it_says_and_no_more(db):
    house = House(kind="rubric", rubric=make_rubric(), shows_expected=True)
    client = Client()
    client.force_login(annotator())
    body = client.post(f"/api/v1/queues/{ONE}/claim/").content.decode()
    assert EXPECTED in body
    assert re.findall(f"{REWARD}|{MODEL}", body) == []
    assert house.queue.is_blind


def test_viewers_and_who_leads_are_asked_nothing(house, django_assert_num_queries):
    for role in (Role.VIEWER, Role.ENGINEER, Role.ADMIN):
        user = make_user(role)
        with django_assert_num_queries(0):
            assert not hides_anything(user)
    ann = annotator()
    with django_assert_num_queries(1):
        assert hides_anything(ann)
