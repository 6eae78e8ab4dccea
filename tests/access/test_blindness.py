"""An annotator learns nothing that a blind queue hides: on no route by any method, with a session or a key, by no
search, filter, order, count, file or socket."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cache
from itertools import product
from typing import Any

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
from apps.accounts.permissions import ROLE_PERMISSIONS, Permission
from apps.pairs.models import PairSet, PreferencePair
from apps.policies.models import PolicyModel
from apps.reviews.comments.commenting import add_comment
from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_leases import claim_item, skip_item
from apps.reviews.queues.queue_changes import close_queue, create_queue
from apps.reviews.queues.queue_filters import HIDDEN
from apps.reviews.queues.queue_items import fill_from_sets
from apps.reviews.reviews.flags import raise_flag
from apps.reviews.reviews.reward_overrides import override_reward
from apps.rollouts.models import Collection, Rollout
from apps.tasks.models import Task
from gymweb.asgi import application
from tests.access.routes import METHODS, Route, _resolve, _walk, every_socket
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
from tests.reviews.queues import annotator, judge, make_queue, make_rubric, say

ONE = 4242
REWARD, OTHER_REWARD, EXPECTED, MODEL = "0.731937", "0.264917", "quagga-answer", "zebra-model"
IDS = "zebra_ids_of_its_provider"
OTHER_REVIEWER, OTHER_NOTE, OTHER_QUEUE = "quentin", "quagga-note", "Queue of others"
SECRETS = re.compile(
    "|".join(
        [
            # Rounded rewards, but not the seconds of a time.
            r"(?<!\d)0\.(?:73|26)",
            *map(re.escape, [REWARD, OTHER_REWARD, EXPECTED, MODEL, IDS, OTHER_REVIEWER, OTHER_NOTE, OTHER_QUEUE]),
        ]
    )
)


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
        queue = Queue(pk=ONE, **{"name": "Blind", "kind": "pairwise", "seed": 7, "overlap": 3, **fields})
        size = 1 if queue.kind == "rubric" else 2
        sets = [[self.first.pk, self.second.pk][:size]]
        self.queue = create_queue(
            queue=queue, items=fill_from_sets(sets, kind=queue.kind), reviewers=[], user=self.lead
        )
        self.other = annotator(username=OTHER_REVIEWER)
        self.others = make_queue(name=OTHER_QUEUE, reviewers=[self.other], pairs=1)


@pytest.fixture
def house(db):
    return House()


# What the parts of an address are called, and what is in the house under that name.
NAMED = {
    "slug": ["zebra"],
    "seq": ["4"],
    "side": ["A", "B"],
    "step": ["0", "1", "2", "3", "4", "5", "6"],
    "part": ["0"],
    "number": ["1"],
    "name": ["rewards"],
    "path": ["x"],
}


@cache
def addresses() -> list[Route]:
    """Every route, with the numbers and slugs that are in the house. One that is closed to annotators is asked for
    once, since it is refused before it is known what is asked for."""
    found, may = [], ROLE_PERMISSIONS[Role.ANNOTATOR]
    for prefix, pattern in _walk(get_resolver(), ("^/",)):
        regex = "".join(part.removeprefix("^") for part in (*prefix, pattern.pattern.regex.pattern))
        for form, names in normalize(regex):
            for chosen in product(*(NAMED.get(name, [str(ONE)]) for name in names)):
                path = form % dict(zip(names, chosen, strict=True))
                match = _resolve(path)
                if match is not None and match.func is pattern.callback:
                    found.append(Route(path, pattern.callback))
                    if not may.intersection(found[-1].rules.values()):
                        break
    return found


# What could pick out a rollout in a list, put it before another one, or count it.
ASKED = [
    *(f"?{name}={ONE}" for name in ("collection", "rollout", "task", "queue", "item", "after", "cursor")),
    *("?q=zebra", "?q=4242", "?q=quagga", f"?q={OTHER_REVIEWER[:4]}", "?text=What", "?task_number=1", "?verdict=a"),
    *(
        f"?reviewer={OTHER_REVIEWER[:4]}",
        "?is_repeat=true",
        "?could_see_results=true",
        "?state=compared",
        "?status=open",
    ),
    *("?ordering=reward", "?sort=-reward", "?reward_min=0.5", "?list=a", f"?r={ONE},4243", "?attempt=1", "?show=1"),
    *("?fields=rollouts,shown", "?format=csv", "?limit=1"),
]
ENDS_THE_SESSION = ("/sign-", "/account/", "/api/v1/me/")


def text_of(reply) -> str:
    if not reply.streaming:
        return reply.content.decode(errors="replace")

    async def read() -> bytes:
        return b"".join([piece async for piece in reply.streaming_content])

    pieces = async_to_sync(read)() if reply.is_async else b"".join(reply.streaming_content)
    return pieces.decode(errors="replace")


def takes_queries(route: Route) -> bool:
    """Whether an annotator reads rows there, or finds something."""
    return route.rules.get("GET") is Permission.READ_QUEUES or route.path == "/find/"


def requests(*, below: str = "/", queries: Sequence[str] = ASKED) -> Iterator[tuple[Route, str, str]]:
    """Every route × method; where an annotator reads something, also with all that could be asked there."""
    for route in addresses():
        if route.path.startswith(below) and not route.path.startswith(ENDS_THE_SESSION):
            for method in METHODS:
                # HEAD answers as GET does: tests/access/test_every_route.py.
                if method in route.rules and method != "HEAD":
                    yield route, method, route.path
            if takes_queries(route):
                yield from ((route, "GET", route.path + query) for query in queries)


def ask(client: Client, method: str, path: str) -> tuple[int, str]:
    reply = client.generic(method, path, data="{}", content_type="application/json")
    return reply.status_code, text_of(reply)


def leaks(client: Client, **chosen: Any) -> list[str]:
    """Requests that tell something of what is hidden, and those that are answered though the role may not."""
    may = ROLE_PERMISSIONS[Role.ANNOTATOR]
    wrong = []
    for route, method, path in requests(**chosen):
        status, text = ask(client, method, path)
        if SECRETS.search(text) or (route.rules[method] not in may and status not in {403, 404}):
            wrong.append(f"{method} {path}: {status}")
    return wrong


@pytest.fixture
def ann(house):
    """An annotator who has the blind item open, which another one has judged before."""
    judge(house.queue, house.other, "a_much", note=OTHER_NOTE)
    person = annotator(username="ann")
    held = claim_item(queue=house.queue, user=person)
    Review.objects.filter(pk=held.pk).update(id=ONE)
    return person


@pytest.mark.slow
def test_an_annotator_learns_nothing_on_any_route(ann):
    client = Client()
    client.force_login(ann)
    assert leaks(client) == []


@pytest.mark.slow
def test_nor_with_a_key(ann):
    _, token = create_api_key(user=ann, name="walk", scopes=[Scope.ADMIN])
    # A key opens no page: tests/access/test_every_key.py.
    client = Client(headers={"Authorization": f"Bearer {token}"})
    assert leaks(client, below="/api/", queries=["?q=zebra", "?text=What"]) == []


@pytest.mark.slow
def test_an_engineer_sees_it_and_the_walk_would_notice(house, ann):
    client, found = Client(), set()
    client.force_login(house.lead)
    for route in addresses():
        # One address of each route is enough here.
        is_new = str(ONE) in route.path and route.view not in {each.view for each in found}
        if is_new and "GET" in route.rules and SECRETS.search(ask(client, "GET", route.path)[1]):
            found.add(route)
    paths = {route.path for route in found}
    assert {f"/rollouts/{ONE}/", f"/rollouts/{ONE}/raw/", f"/collections/{ONE}/", f"/queues/{ONE}/"} <= paths
    assert {f"/api/v1/rollouts/{ONE}/", f"/api/v1/queues/{ONE}/figures/", f"/api/v1/queues/{ONE}/export/"} <= paths
    assert len(paths) > 15


def test_pages_of_an_annotator_do_not_depend_on_hidden_values(house, ann):
    """Neither a count, nor an order, nor what is found: after everything hidden has changed it is all the same."""
    client, lead = Client(), Client()
    client.force_login(ann)
    lead.force_login(house.lead)
    own = {Permission.READ_QUEUES, Permission.REVIEW, Permission.MEMBER}
    paths = [path for route, method, path in requests() if method == "GET" and route.rules["GET"] in own]
    paths = [path for path in paths if path not in {"/api/schema/", "/api/docs/"}]
    assert {"/queues/", "/reviews/", "/find/", f"/queues/{ONE}/review/", "/api/v1/reviews/?ordering=reward"} <= {*paths}

    def seen() -> dict[str, str]:
        # What is drawn anew for each page, and the clock.
        changing = re.compile(
            r'"X-CSRFToken": "[^"]*"|value="\w{32,64}"|nonce-[^\s;"]+|\b[0-9a-f]{32}\b'
            r"|\d+ (?:s|seconds?|min) ago|just now"
        )
        return {path: changing.sub("", ask(client, "GET", path)[1]) for path in paths}

    before, told = seen(), ask(lead, "GET", "/api/v1/reviews/")
    Rollout.objects.filter(pk=house.first.pk).update(reward=0.0, model_version="", judge_calls=3)
    PolicyModel.objects.filter(slug="zebra").update(name="Another", slug="another")
    Collection.objects.filter(pk=ONE).update(name="Aardvark", archived_at=timezone.now())
    row = json.dumps(make_row("What is it?", "another answer"))
    Task.objects.filter(pk=house.first.task_id).update(row_json=row)
    house.first.comments.all().delete()
    Review.objects.filter(reviewer=house.other, queue=house.queue).update(choice="b_much", note="Another", confidence=3)
    PreferencePair.objects.all().delete()
    PairSet.objects.all().delete()
    Queue.objects.filter(pk=house.others.pk).update(name="Another", item_count=9)
    after = seen()
    assert told != ask(lead, "GET", "/api/v1/reviews/")
    assert [path for path in paths if before[path] != after[path]] == []


def test_a_filter_by_a_hidden_value_finds_nothing(house, ann):
    client = Client()
    client.force_login(ann)
    asked = {"collection": ONE, "rollout": ONE, "task": house.first.task_id, "task_number": 1}
    asked |= {"text": "What", "verdict": "a", "is_repeat": "false"}
    assert asked.keys() == HIDDEN
    for name, value in asked.items():
        assert client.get("/api/v1/reviews/", {name: value}).json()["results"] == []
    assert len(client.get("/api/v1/reviews/").json()["results"]) == 1


def test_the_item_is_shown_without_what_its_queue_hides_until_it_is_submitted_and_after(house, client):
    ann = annotator()
    client.force_login(ann)
    told = [client.post(f"/api/v1/queues/{ONE}/claim/")]
    number = told[0].json()["id"]
    assert told[0].json()["rollouts"] is None
    assert [side["label"] for side in told[0].json()["shown"]["sides"]] == ["A", "B"]
    review, as_json = f"/api/v1/reviews/{number}/", {"content_type": "application/json"}
    told += [client.get(review), client.get(f"/queues/{ONE}/review/"), client.get(f"/reviews/{number}/text/A/0/")]
    told += [client.post(f"{review}renew/", {"draft": {"note": "so far"}}, **as_json)]
    told += [client.post(f"{review}submit/", {"token": "t", "choice": "a"}, **as_json), client.get(review)]
    told += [client.post(f"/api/v1/queues/{ONE}/undo/", **as_json), client.get("/reviews/")]
    told += [client.post(f"{review}skip/", {"reason": "no"}, **as_json), client.get(f"/queues/{ONE}/review/")]
    assert [reply.status_code for reply in told] == [200] * len(told)
    assert [SECRETS.findall(reply.content.decode()) for reply in told] == [[]] * len(told)


def opens(user, path: str) -> bool:
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


@pytest.mark.django_db(transaction=True)
def test_nor_by_a_socket(migrated):
    house, ann = House(), annotator()
    paths = [path.replace("999999", str(ONE)) for path in every_socket()]
    assert [opens(ann, path) for path in paths] == [False] * len(paths)
    assert [opens(house.lead, path) for path in paths] == [True] * len(paths)


def test_nothing_opens_to_an_annotator_with_nothing_left_to_review(house, client):
    """What they may read depends on their role alone, not on what waits for them."""
    ann = annotator()
    client.force_login(ann)
    say(claim_item(queue=house.queue, user=ann))
    close_queue(queue=house.queue, user=house.lead)
    Review.objects.update(submitted_at=timezone.now() - timedelta(days=2))
    paths = [f"/api/v1/rollouts/{ONE}/", f"/rollouts/{ONE}/", f"/collections/{ONE}/", "/datasets/zebra/"]
    assert [client.get(path).status_code for path in paths] == [403] * 4


def test_an_engineer_with_an_open_blind_review_reads_everything(house, client):
    client.force_login(house.lead)
    assert claim_item(queue=house.queue, user=house.lead) is not None
    assert client.get(f"/api/v1/rollouts/{ONE}/").json()["reward"] == float(REWARD)


def showing_queue(house, **shows) -> Queue:
    """Another queue, which asks about a rollout of the blind one and shows what that hides."""
    queue = Queue(name="Showing", kind="rubric", rubric=make_rubric(), **shows)
    return create_queue(queue=queue, items=fill_from_sets([[house.first.pk]], kind="rubric"), user=house.lead)


def test_a_queue_that_shows_more_does_not_reveal_what_another_hides(house, client):
    other = showing_queue(house, **dict.fromkeys(["shows_expected", "shows_reward", "shows_model", "reveals"], True))
    ann = annotator()
    client.force_login(ann)
    scores = {"token": "t", "scores": {"right": True, "clear": 3, "why": "so"}}

    def secrets() -> bool:
        body = client.post(f"/api/v1/queues/{other.pk}/claim/").content.decode()
        page = client.get(f"/queues/{other.pk}/review/").content.decode()
        assert "What is it?" in body
        return SECRETS.search(body + page) is not None

    # Before the other one has been claimed, while it is open, also for days, and while it can be taken back.
    assert not secrets()
    blind = claim_item(queue=house.queue, user=ann)
    Review.objects.filter(pk=blind.pk).update(leased_until=timezone.now() - timedelta(days=3))
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


def test_items_begun_in_a_closed_queue_stay_hidden_until_given_up(house, client):
    """The queue may be opened again, and the review submitted then."""
    other, ann = showing_queue(house, shows_expected=True), annotator()
    client.force_login(ann)
    blind = claim_item(queue=house.queue, user=ann)
    close_queue(queue=house.queue, user=house.lead)

    def shows() -> bool:
        return EXPECTED in client.post(f"/api/v1/queues/{other.pk}/claim/").content.decode()

    assert not shows()
    assert "You have an open item" in client.get(f"/queues/{ONE}/review/").content.decode()
    skip_item(review=blind, user=ann, reason="Given up.")
    assert not shows()
    Review.objects.filter(pk=blind.pk).update(skipped_at=timezone.now() - timedelta(minutes=11))
    assert shows()


def test_what_lost_a_rollout_hides_nothing(house, client):
    other, ann = showing_queue(house, shows_expected=True), annotator()
    client.force_login(ann)
    claim_item(queue=house.queue, user=ann)
    house.second.delete()
    assert EXPECTED in client.post(f"/api/v1/queues/{other.pk}/claim/").content.decode()


def test_no_other_queue_tells_the_answer_of_the_same_row_in_another_dataset(house, client):
    row = make_row("What is it?", EXPECTED)
    collections = [make_collection(dataset=make_dataset([one]), state=Collection.State.COMPLETED) for one in (row, row)]
    same, other = [make_rollout(each) for each in collections]
    Task.objects.filter(pk__in=[house.first.task_id, same.task_id]).update(row_hash="the same row")
    Task.objects.filter(pk=other.task_id).update(row_hash="another row")
    ann = annotator()
    client.force_login(ann)
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


def test_a_rubric_queue_shows_what_it_says_and_no_more(db):
    house = House(kind="rubric", rubric=make_rubric(), shows_expected=True)
    client = Client()
    client.force_login(annotator())
    body = client.post(f"/api/v1/queues/{ONE}/claim/").content.decode()
    assert EXPECTED in body
    assert re.findall(f"{REWARD}|{MODEL}", body) == []
    assert house.queue.is_blind
