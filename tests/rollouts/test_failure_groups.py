"""Unsolved rollouts are grouped by cause, and a group can be found, reviewed and left out."""

import pytest

from apps.gym.traces.events import ModelCall, Prompt, SessionOpened, ToolResult, Verification
from apps.gym.traces.items import dump_json, message
from apps.rollouts.failures.failure_groups import read_failures
from apps.rollouts.models import Collection, FailureCause, Rollout, RolloutCause
from apps.rollouts.search.filters.filter_sql import filter_rollouts
from apps.rollouts.search.word_index import index_next_rollouts, mark_unindexed
from tests.factories import make_collection, make_dataset, make_rollout

pytestmark = pytest.mark.django_db


def index() -> None:
    while index_next_rollouts():
        pass


def attempt(
    collection: Collection, reward: float | None = 0.0, explanation: str = "", *, tools: tuple[str, ...] = (), **fields
) -> Rollout:
    """A rollout with this explanation and these tool errors; an empty one succeeded."""
    events = [SessionOpened(environment="e"), Prompt(items=[message("user", "Go.")])]
    for place, error in enumerate(tools):
        output = dump_json({"error": error}) if error else "found"
        call = {"type": "function_call", "call_id": f"c{place}", "name": "search", "arguments": "{}"}
        events += [
            ModelCall(seen=1, items=[call]),
            ToolResult(call_id=f"c{place}", name="search", output=output, error=error),
        ]
    details = fields.pop("details", {})
    if reward is not None:
        events.append(Verification(reward=reward, explanation=explanation, details=details))
    errors = sum(map(bool, tools))
    rollout = make_rollout(collection, reward=reward, trace=events, tool_errors=errors, **fields)
    mark_unindexed([rollout.pk])
    return rollout


def failed(collection: Collection, message: str, **fields) -> Rollout:
    ended = {"status": "failed", "stop_reason": "", "error_kind": "policy_error", "error_message": message}
    return attempt(collection, None, **ended, **fields)


def groups(collection: Collection, source: str) -> list[tuple[str, int]]:
    return [(group.text, group.rollouts) for group in read_failures(collection, source).groups]


def test_explanations_that_differ_in_numbers_are_one_group():
    collection = make_collection()
    for number in range(3):
        attempt(collection, 0.5, f"expected {number}, got {number + 1}")
    attempt(collection, 0.0, "no answer")
    attempt(collection, 1.0, "expected 4, got 4")
    index()
    assert groups(collection, "verifier") == [("expected N, got N", 3), ("no answer", 1)]
    assert read_failures(collection).unsolved == 4


def test_values_of_the_verifier_are_left_out():
    collection = make_collection()
    for answer in ("Rome", "Oslo"):
        attempt(collection, 0.0, f"answer {answer} is not Paris", details={"answer": answer, "expected": "Paris"})
    index()
    assert groups(collection, "verifier") == [("answer “…” is not “…”", 2)]


def test_the_last_tool_error_counts():
    collection = make_collection()
    attempt(collection, tools=("file not found", "timed out after 30 s", ""))
    attempt(collection, tools=("timed out after 60 s",))
    attempt(collection, tools=("",))
    index()
    assert groups(collection, "tool") == [("search: timed out after N s", 2)]


def test_errors_name_their_kind():
    collection = make_collection()
    failed(collection, "HTTP 500")
    failed(collection, "HTTP 503")
    index()
    assert groups(collection, "error") == [("policy_error: HTTP N", 2)]


def test_a_lower_threshold_solves_more():
    collection = make_collection(solve_threshold=0.5)
    attempt(collection, 0.6, "good enough")
    attempt(collection, 0.4, "too little")
    index()
    assert groups(collection, "verifier") == [("too little", 1)]


def test_examples_name_a_solved_rollout_of_the_task():
    dataset = make_dataset()
    collection = make_collection(dataset=dataset)
    first, second = dataset.latest_version().tasks.order_by("index")[:2]
    wrong = attempt(collection, 0.0, "no answer", task=first)
    right = attempt(collection, 1.0, "fine", task=first, repeat=1)
    alone = attempt(collection, 0.0, "no answer", task=second)
    index()
    (group,) = read_failures(collection, "verifier").groups
    assert {each.rollout: each.solved for each in group.examples} == {wrong.pk: right.pk, alone.pk: None}
    assert {each.text for each in group.examples} == {"no answer"}
    assert (group.rollouts, group.tasks) == (2, 2)


def test_tags_and_versions_are_counted():
    collection = make_collection()
    collection.version.tasks.update(tags_text="\nhard\nmath\n")
    for version in ("step-1", "step-1", "step-2"):
        attempt(collection, 0.0, "no answer", model_version=version)
    index()
    (group,) = read_failures(collection, "verifier").groups
    assert dict(group.tags) == {"hard": 3, "math": 3}
    assert list(group.versions) == [("step-1", 2), ("step-2", 1)]


def test_a_filter_selects_and_excludes_a_group():
    collection = make_collection()
    one, other = attempt(collection, 0.0, "no answer"), attempt(collection, 0.0, "wrong format")
    index()
    cause = FailureCause.objects.get(text="no answer").pk
    rollouts = Rollout.objects.filter(collection=collection)
    assert list(filter_rollouts(rollouts, f"cause:{cause}")) == [one]
    assert list(filter_rollouts(rollouts, f"-cause:{cause}")) == [other]


def test_a_filter_selects_and_excludes_the_unsolved_rollouts():
    lenient, strict = make_collection(solve_threshold=0.5), make_collection(solve_threshold=0.9)
    low, solved = attempt(lenient, 0.25), attempt(lenient, 0.5)
    error, unscored = failed(lenient, "no reply"), attempt(lenient, None)
    queued = make_rollout(lenient, reward=None, trace=[], status="queued", stop_reason="", attempt=0)
    other = attempt(strict, 0.5)
    rollouts = Rollout.objects.order_by("pk")
    assert list(filter_rollouts(rollouts, "flag:unsolved")) == [low, error, other]
    assert list(filter_rollouts(rollouts, "-flag:unsolved")) == [solved, unscored, queued]
    of_one = filter_rollouts(rollouts, f"collection:{lenient.pk} flag:unsolved")
    assert of_one.count() == read_failures(lenient).unsolved == 2


def test_a_rollout_that_is_solved_later_loses_its_causes():
    collection = make_collection()
    rollout = attempt(collection, 0.0, "no answer")
    index()
    rollout.reward = 1.0
    rollout.save()
    assert groups(collection, "verifier") == []
    mark_unindexed([rollout.pk])
    index()
    assert not RolloutCause.objects.exists()


def test_groups_are_paged_and_waiting_rollouts_counted():
    collection = make_collection()
    for text in ("alpha", "beta", "beta", "gamma"):
        attempt(collection, 0.0, text)
    assert read_failures(collection).waiting == 4
    index()
    first = read_failures(collection, "verifier", limit=2)
    assert ([group.text for group in first.groups], first.next_offset, first.waiting) == (["beta", "alpha"], 2, 0)
    last = read_failures(collection, "verifier", limit=2, offset=2)
    assert ([group.text for group in last.groups], last.next_offset) == (["gamma"], None)


def test_the_source_with_most_rollouts_comes_first():
    collection = make_collection()
    failed(collection, "HTTP 500")
    failed(collection, "HTTP 500")
    attempt(collection, 0.0, "no answer")
    index()
    found = read_failures(collection)
    assert (found.source, found.by_source) == ("error", {"verifier": 1, "tool": 0, "error": 2})


def test_an_unreadable_trace_keeps_the_words_of_others(monkeypatch):
    collection = make_collection()
    rollout = attempt(collection, 0.0, "peculiar words")

    def fail(rollouts):
        raise ValueError("broken")

    monkeypatch.setattr("apps.rollouts.search.word_index.find_causes", fail)
    index()
    assert list(filter_rollouts(Rollout.objects.all(), "peculiar")) == [rollout]
