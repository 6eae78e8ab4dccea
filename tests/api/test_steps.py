"""Changed tasks of two collections, steps of a trace, and two rollouts side by side."""

import pytest
from django.utils import timezone

from apps.gym.traces.events import ModelCall, Prompt, SessionOpened
from apps.gym.traces.items import message
from apps.rollouts.models import Collection, TraceEvent
from tests.factories import make_collection, make_rollout
from tests.mcp_server.seed import seed_regression

pytestmark = pytest.mark.django_db


def test_changes_list_the_worst_tasks_first_with_rollouts_to_compare(viewer):
    one, other = seed_regression()
    path = f"/api/v1/collections/{one.pk}/changes/"
    page = viewer.get(path, {"with": other.pk, "limit": 1}).json()
    rest = viewer.get(path, {"with": other.pk, "limit": 1, "after": page["next_after"]}).json()
    changes = [*page["results"], *rest["results"]]
    assert [change["difference"] for change in changes] == [-1.0, -1.0]
    for change in changes:
        mine, theirs = (viewer.get(f"/api/v1/rollouts/{change[name]}/").json() for name in ("rollout", "other_rollout"))
        assert (mine["collection"], mine["reward"], theirs["collection"], theirs["reward"]) == (
            *(one.pk, 1.0),
            *(other.pk, 0.0),
        )
    assert len(viewer.get(path, {"with": other.pk, "which": "same"}).json()["results"]) == 6


def test_deleted_traces_are_not_shown_as_empty_ones(viewer):
    one, other = seed_regression()
    pair = viewer.get(f"/api/v1/collections/{one.pk}/changes/", {"with": other.pk}).json()["results"][0]
    TraceEvent.objects.all().delete()
    Collection.objects.update(traces_deleted_at=timezone.now())
    for path in (f"{pair['rollout']}/steps/", f"{pair['rollout']}/side_by_side/?with={pair['other_rollout']}"):
        reply = viewer.get(f"/api/v1/rollouts/{path}")
        assert (reply.status_code, reply.json()["type"]) == (410, "urn:gymweb:problem:traces-deleted")


@pytest.mark.parametrize(
    ("query", "pointer"),
    [({}, "?with"), ({"with": 999_999}, "?with"), ({"which": "worse"}, "?which"), ({"after": "x"}, "?after")],
    ids=str,
)
def test_a_wrong_parameter_of_changes_is_named(viewer, query, pointer):
    one, other = seed_regression()
    given = query if pointer == "?with" else {"with": other.pk, **query}
    reply = viewer.get(f"/api/v1/collections/{one.pk}/changes/", given)
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (400, pointer)


def test_changes_of_other_datasets_are_refused(viewer):
    one, other = make_collection(), make_collection()
    reply = viewer.get(f"/api/v1/collections/{one.pk}/changes/", {"with": other.pk})
    assert (reply.status_code, reply.json()["type"]) == (409, "urn:gymweb:problem:cannot-contrast")


def test_steps_are_numbered_and_paged(viewer):
    rollout = make_rollout(make_collection())
    path = f"/api/v1/rollouts/{rollout.pk}/steps/"
    whole = viewer.get(path).json()
    assert [step["kind"] for step in whole["results"]] == ["prompt", "call", "result", "reply", "verdict"]
    assert [step["number"] for step in whole["results"]] == [1, 2, 3, 4, 5]
    assert (whole["total"], whole["next_after"]) == (5, None)
    part = viewer.get(path, {"after": 1, "limit": 2}).json()
    assert (part["results"], part["next_after"]) == (whole["results"][1:3], 3)
    assert viewer.get(path, {"attempt": 2}).json()["total"] == 0


def test_steps_of_a_captured_attempt_are_its_main_path(viewer):
    asked, answer = message("user", "Go"), message("assistant", "Done")
    trace = [
        SessionOpened(environment="x"),
        ModelCall(seen=1, items=[answer], call=1, items_in=[asked], root_reason="first"),
    ]
    rollout = make_rollout(make_collection(), trace=trace)
    steps = viewer.get(f"/api/v1/rollouts/{rollout.pk}/steps/").json()["results"]
    assert [step["text"] for step in steps] == ["Go", "Done"]


def test_two_rollouts_are_aligned_up_to_their_difference_and_beyond(viewer):
    one, other = seed_regression()
    first, second = (side.rollouts.order_by("-task__index").first() for side in (one, other))
    path = f"/api/v1/rollouts/{first.pk}/side_by_side/"
    found = viewer.get(path, {"with": second.pk}).json()
    assert (found["diverges_at"], found["total"], found["rewards"]) == (2, 5, [1.0, 0.0])
    assert [row["same"] for row in found["results"]] == [True, False, False, False, False]
    assert (found["results"][0]["other"], found["results"][1]["other"]["kind"]) == (None, "call")
    part = viewer.get(path, {"with": second.pk, "after": 1, "limit": 1}).json()
    assert (part["results"], part["next_after"]) == (found["results"][1:2], 2)


def test_a_step_that_only_one_rollout_has_stands_alone(viewer):
    collection = make_collection()
    short, long = ([Prompt(items=[message("user", "Go")])] for _ in range(2))
    long.append(ModelCall(seen=1, items=[message("assistant", "Done")]))
    one, other = (make_rollout(collection, trace=trace) for trace in (short, long))
    found = viewer.get(f"/api/v1/rollouts/{one.pk}/side_by_side/", {"with": other.pk}).json()
    assert [(row["one"] is None, row["other"] is None) for row in found["results"]] == [(False, True), (True, False)]


def test_rollouts_of_two_tasks_cannot_be_aligned(viewer):
    one, other = (make_rollout(make_collection()) for _ in range(2))
    reply = viewer.get(f"/api/v1/rollouts/{one.pk}/side_by_side/", {"with": other.pk})
    assert (reply.status_code, reply.json()["type"]) == (409, "urn:gymweb:problem:cannot-compare")
