import asyncio
from unittest.mock import AsyncMock

import orjson
import pytest
from django.db.models import F
from django.utils import timezone

from apps.environments.models import Adapter
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym import process_exit
from apps.gym.environments.single_turn import ExactMatch
from apps.gym.errors import EnvironmentFault
from apps.gym.resources.inprocess import InProcessServer, InProcessSession
from apps.gym.traces.events import ErrorRaised, JudgeCall, Verification
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.metrics.attempt_history import read_attempts
from apps.rollouts.models import Collection, Reverification, Rollout
from apps.rollouts.reverification.ownership import Owner
from apps.rollouts.reverification.rescoring import GIVEN_UP
from apps.rollouts.reverification.reverification_jobs import (
    CannotApply,
    ReverifyRefused,
    apply_reverification,
    cancel_reverification,
    continue_reverification,
    queue_reverification,
)
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.rollouts.reverification.reward_changes import compare_rewards
from apps.tasks.fenced_jobs import QUIET
from tests.deadlines import DEADLINE
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_environment,
    make_policy_model,
    make_rollout,
    make_user,
)
from tests.rollouts.finished import finish_reverification
from tests.rollouts.stored import as_file, stored_row

pytestmark = pytest.mark.django_db
State = Reverification.State


def imported(*rows, **environment):
    dataset = make_dataset(rows=[], environment=make_environment(**environment))
    return import_rollouts(ImportOrder(dataset=dataset, agent=make_agent()), files=[as_file(*rows)]).collection


def reverified(collection, *, apply=False, **options):
    done = finish_reverification(
        reverification=queue_reverification(ReverificationOrder(collection=collection, **options))
    )
    if apply:
        done = finish_reverification(reverification=apply_reverification(reverification=done))
    return done


def three_rows():
    """Right and scored so, right and scored wrong, wrong and scored right."""
    return stored_row("a"), stored_row("b", reward=0.0), stored_row("c", "5", reward=1.0)


def rewards(collection):
    return list(collection.rollouts.order_by("id").values_list("reward", flat=True))


def test_old_and_new_rewards_are_shown_and_nothing_changes_until_applied():
    collection = imported(*three_rows())
    done = reverified(collection)
    assert (done.state, done.total, done.verified, done.changed, done.failed) == (State.READY, 3, 3, 2, 0)
    pairs = list(done.rewards.values_list("old_reward", "new_reward", "changed"))
    assert pairs == [(1.0, 1.0, False), (0.0, 1.0, True), (1.0, 0.0, True)]
    assert rewards(collection) == [1.0, 0.0, 1.0]


def test_applied_the_rollouts_their_traces_and_the_counters_agree():
    collection = imported(*three_rows(), stored_row("d", reward=0.0, _ng_failure_class="judge_failed"))
    done = reverified(collection, apply=True)
    assert (done.state, done.applied, done.stale) == (State.APPLIED, 3, 0)
    assert rewards(collection) == [1.0, 1.0, 0.0, 1.0]
    collection.refresh_from_db()
    counters = (collection.completed, collection.failed, collection.rewarded, collection.reward_sum)
    assert counters == (4, 0, 4, 3.0)
    mended = collection.rollouts.order_by("-id")[0]
    assert (mended.status, mended.error_kind, mended.stop_reason) == ("completed", "", "answered")
    assert mended.answer == "4"
    last = mended.trace()[-1]
    assert isinstance(last, Verification)
    assert (last.reward, last.reverification, last.components) == (1.0, done.pk, {"exact_match": 1.0})
    assert read_attempts(mended)[0].outcome == "completed"
    unchanged = collection.rollouts.order_by("id")[0]
    assert [event.reverification for event in unchanged.trace() if isinstance(event, Verification)] == [0]


def test_only_judge_failures_are_verified_again_where_that_is_asked():
    failed = {"reward": 0.0, "_ng_failure_class": "judge_failed"}
    collection = imported(stored_row("a", reward=0.0), stored_row("b", **failed), stored_row("c", **failed))
    done = reverified(collection, filters={"judge_failures": True}, apply=True)
    assert (done.total, done.verified, done.applied) == (2, 2, 2)
    assert rewards(collection) == [0.0, 1.0, 1.0]


def test_filters_choose_by_reward_and_stop_reason():
    collection = imported(*three_rows())
    assert reverified(collection, filters={"max_reward": 0.5}).total == 1
    assert reverified(collection, filters={"max_reward": 0}).total == 1
    assert reverified(collection, filters={"min_reward": 0.5, "stop_reason": "answered"}).total == 2


BAD_FILTERS = [{"status": "failed"}, {"min_reward": "much"}, {"min_reward": float("nan")}, {"judge_failures": 1}]


def test_a_recovered_judge_scores_its_failures_with_calls_in_the_trace():
    failed = {"reward": 0.0, "_ng_failure_class": "judge_failed"}
    collection = imported(stored_row("a", **failed), stored_row("b", reward=0.25), builtin="judged")
    # Without a judge nothing changes.
    nobody = reverified(collection, filters={"judge_failures": True}, apply=True)
    assert (nobody.failed, nobody.changed, nobody.rewards.get().error_kind) == (1, 0, "judge_error")
    environment = collection.environment
    environment.judge_model = make_policy_model(input_price=1_000_000.0)
    environment.save()
    done = reverified(collection, filters={"judge_failures": True}, apply=True)
    assert (done.total, done.applied, done.cost > 0) == (1, 1, True)
    mended, other = collection.rollouts.order_by("id")
    assert (mended.status, mended.reward, other.reward) == ("completed", 1.0, 0.25)
    assert [type(event) for event in mended.trace()[-3:]] == [ErrorRaised, JudgeCall, Verification]


def test_a_reverified_rollout_is_exported_with_its_new_reward(tmp_path):
    collection = imported(*three_rows(), stored_row("d", reward=0.0, _ng_failure_class="judge_failed"))
    reverified(collection, apply=True)
    export = queue_export(ExportOrder(format="nemo_gym_rollouts", collection=collection))
    write_export(export=export, path=tmp_path / "out.jsonl")
    rows = [orjson.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [row["reward"] for row in rows] == [1.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("filters", [*BAD_FILTERS, {"min_reward": 7.0}])
def test_filters_that_cannot_be_or_leave_nothing_are_refused(filters):
    with pytest.raises(ReverifyRefused):
        queue_reverification(ReverificationOrder(collection=imported(stored_row()), filters=filters))


def test_an_environment_that_verifies_nothing_is_refused():
    with pytest.raises(ReverifyRefused, match="has no verifier"):
        queue_reverification(ReverificationOrder(collection=imported(stored_row(), verifies=False)))


@pytest.fixture
def stateful(monkeypatch):
    """The verifier reads how often its session's tool was called, as one of a stateful environment does."""
    monkeypatch.setattr(InProcessServer, "reverify_mode", AsyncMock(return_value="unsupported"))
    calls = []
    monkeypatch.setattr(ExactMatch, "call_tool", lambda self, name, arguments: calls.append((name, arguments)) or "ok")
    return calls


def test_a_verifier_that_needs_live_state_is_refused_unless_forced(stateful):
    collection = imported(stored_row())
    with pytest.raises(ReverifyRefused, match="needs the state of the attempt") as refused:
        queue_reverification(ReverificationOrder(collection=collection))
    assert refused.value.argument == "force"
    assert reverified(collection, force=True).verified == 1


def test_a_replay_makes_the_recorded_tool_calls_again_in_their_order(stateful):
    row = stored_row()
    calls = [
        {"type": "function_call", "call_id": f"c{number}", "name": "count", "arguments": arguments}
        for number, arguments in enumerate(['{"by": 1}', "{oops", '{"by": 2}', '{"by": 3}'])
    ]
    # The last one was never run: its turn was cut.
    outputs = [{"type": "function_call_output", "call_id": f"c{number}", "output": "ok"} for number in range(3)]
    row["response"]["output"] = [*calls, *outputs, *row["response"]["output"]]
    assert reverified(imported(row), replay=True).verified == 1
    assert stateful == [("count", {"by": 1}), ("count", {"by": 2})]


def test_a_server_that_cannot_be_reached_is_told_when_it_is_asked_for():
    collection = imported(stored_row(), adapter=Adapter.HTTP, builtin="", base_url="http://127.0.0.1:9")
    with pytest.raises(ReverifyRefused, match=r"127\.0\.0\.1"):
        queue_reverification(ReverificationOrder(collection=collection))


def test_a_verification_that_fails_keeps_the_old_reward_and_says_why(monkeypatch):
    collection = imported(*three_rows())
    Rollout.objects.filter(collection=collection, reward=0.0).update(reward=0.5)
    row = collection.rollouts.order_by("id")[0].task
    row.row_json = row.row_json.replace("expected_answer", "other")
    row.save()
    done = reverified(collection, apply=True)
    kept = done.rewards.order_by("id")[0]
    assert (kept.error_kind, kept.new_reward, kept.changed) == ("verifier_error", None, False)
    assert "expected_answer" in kept.error_message
    assert (done.failed, rewards(collection)[0]) == (1, 1.0)


def test_code_that_raises_what_it_likes_ends_one_verification_alone(monkeypatch):
    verify = ExactMatch.verify

    def break_once(self, response):
        if "a" in self.row["responses_create_params"]["input"][0]["content"]:
            raise ZeroDivisionError("division by zero")
        return verify(self, response)

    monkeypatch.setattr(ExactMatch, "verify", break_once)
    done = reverified(imported(*three_rows()))
    assert (done.state, done.verified, done.failed) == (State.READY, 2, 1)
    assert done.rewards.order_by("id")[0].error_message.endswith("ZeroDivisionError: division by zero")


def test_an_environment_that_fails_all_the_time_is_given_up(monkeypatch):
    async def fail(self, row, *, seed):
        raise EnvironmentFault("gone")

    collection = imported(*[stored_row(str(number)) for number in range(GIVEN_UP + 1)])
    monkeypatch.setattr(InProcessServer, "seed_session", fail)
    done = reverified(collection)
    assert (done.state, done.verified) == (State.FAILED, 0)
    assert done.message == f"EnvironmentFault: stopped after {GIVEN_UP} failures in a row: gone"


def test_a_rollout_changed_meanwhile_is_not_touched():
    collection = imported(*three_rows())
    done = reverified(collection)
    Rollout.objects.filter(collection=collection).filter(reward=0.0).update(attempt=F("attempt") + 1)
    done = finish_reverification(reverification=apply_reverification(reverification=done))
    assert (done.applied, done.stale) == (1, 1)
    assert rewards(collection) == [1.0, 0.0, 0.0]


def test_applying_twice_is_once_and_a_cancelled_one_is_not_applied():
    collection = imported(*three_rows())
    done = reverified(collection, apply=True)
    assert apply_reverification(reverification=done).state == State.APPLIED
    dropped = cancel_reverification(reverification=queue_reverification(ReverificationOrder(collection=collection)))
    assert finish_reverification(reverification=dropped).state == State.CANCELLED
    with pytest.raises(CannotApply):
        apply_reverification(reverification=dropped)
    with pytest.raises(CannotApply):
        cancel_reverification(reverification=done)


def test_a_worker_does_what_waits_as_a_background_job():
    collection = imported(*three_rows())
    queued = queue_reverification(ReverificationOrder(collection=collection), user=make_user())
    assert [continue_reverification(), continue_reverification()] == [True, False]
    queued.refresh_from_db()
    assert queued.state == State.READY
    apply_reverification(reverification=queued)
    assert [continue_reverification(), continue_reverification()] == [True, False]
    assert rewards(collection) == [1.0, 1.0, 0.0]


def test_the_work_of_a_lost_worker_is_continued(monkeypatch):
    collection = imported(*three_rows())
    queued = queue_reverification(ReverificationOrder(collection=collection))
    monkeypatch.setattr("apps.rollouts.reverification.rescoring.CHUNK", 1)

    def leave():
        raise process_exit.Leaving

    with monkeypatch.context() as patched:
        patched.setattr(process_exit, "check", leave)
        left = finish_reverification(reverification=queued)
    assert (left.state, left.verified, left.attempt) == (State.QUEUED, 1, 0)
    # One that is gone without a word goes quiet.
    quiet = timezone.now() - 2 * QUIET
    Reverification.objects.filter(pk=queued.pk).update(state=State.VERIFYING, attempt=1, touched_at=quiet)
    assert continue_reverification()
    queued.refresh_from_db()
    assert (queued.state, queued.verified, queued.rewards.count()) == (State.READY, 3, 3)


def test_a_worker_turns_to_its_other_background_jobs_now_and_then(monkeypatch):
    collection = imported(*three_rows())
    queued = queue_reverification(ReverificationOrder(collection=collection))
    monkeypatch.setattr("apps.rollouts.reverification.rescoring.CHUNK", 1)
    monkeypatch.setattr("apps.rollouts.reverification.reward_application.CHUNK", 1)
    monkeypatch.setattr("apps.rollouts.reverification.reverification_jobs.TURN_SECONDS", 0.0)
    seen = []
    while continue_reverification():
        queued.refresh_from_db()
        seen.append((queued.state, queued.verified, queued.attempt))
    assert seen == [(State.QUEUED, 1, 0), (State.QUEUED, 2, 0), (State.QUEUED, 3, 0), (State.READY, 3, 1)]
    apply_reverification(reverification=queued)
    turns = 0
    while continue_reverification():
        turns += 1
    queued.refresh_from_db()
    assert (turns, queued.state, queued.applied) == (3, State.APPLIED, 2)
    assert rewards(collection) == [1.0, 1.0, 0.0]


def test_one_that_is_cancelled_while_a_judge_thinks_stops_at_once(monkeypatch):
    collection = imported(*three_rows())
    queued = queue_reverification(ReverificationOrder(collection=collection))
    ended = []

    async def think(self, response):
        try:
            await asyncio.sleep(2 * DEADLINE)
        except asyncio.CancelledError:
            ended.append(self)
            raise

    monkeypatch.setattr(InProcessSession, "verify", think)
    monkeypatch.setattr("apps.rollouts.reverification.rescoring.HEARTBEAT_SECONDS", 0.05)
    write = Owner.write

    def cancel_first(self, **fields):
        cancel_reverification(reverification=Reverification.objects.get(pk=queued.pk))
        write(self, **fields)

    monkeypatch.setattr(Owner, "write", cancel_first)
    done = finish_reverification(reverification=queued)
    assert (done.state, done.verified, len(ended)) == (State.CANCELLED, 0, 3)


def test_three_lost_workers_fail_it():
    queued = queue_reverification(ReverificationOrder(collection=imported(stored_row())))
    quiet = timezone.now() - 2 * QUIET
    Reverification.objects.filter(pk=queued.pk).update(state=State.VERIFYING, attempt=3, touched_at=quiet)
    assert not continue_reverification()
    queued.refresh_from_db()
    assert (queued.state, "lost 3 times" in queued.message) == (State.FAILED, True)


def test_the_comparison_counts_what_would_change():
    collection = imported(*three_rows(), stored_row("d", _ng_failure_class="judge_failed"))
    comparison = compare_rewards(reverified(collection))
    assert (comparison.changed, comparison.unchanged, comparison.failed) == (3, 1, 0)
    assert (comparison.better, comparison.worse, comparison.newly_rewarded) == (1, 1, 1)
    assert comparison.old_mean == comparison.new_mean == 2 / 3
    counts = [bar["count"] for bar in comparison.histogram]
    assert (counts, comparison.histogram[0]["low"], comparison.histogram[-1]["high"]) == ([1, *[0] * 8, 1], -1.0, 1.0)


def test_rollouts_that_never_reached_their_verifier_are_left_alone():
    collection = make_collection(state=Collection.State.COMPLETED)
    make_rollout(collection)
    make_rollout(collection, status="failed", error_kind="policy_error", reward=None, stop_reason="")
    make_rollout(collection, status="cancelled", reward=None, stop_reason="")
    assert queue_reverification(ReverificationOrder(collection=collection)).total == 1


def test_the_session_is_closed_after_a_verification(monkeypatch):
    closed = []

    async def close(self):
        closed.append(self)

    monkeypatch.setattr(InProcessSession, "close", close)
    reverified(imported(*three_rows()))
    assert len(closed) == 3
