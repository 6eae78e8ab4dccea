"""Stored rollouts that differ from the current rules are found, listed and updated; all others stay as they are."""

import pytest
from django.utils import timezone
from msgspec.structs import replace

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.rechecks import recheck_jobs
from apps.exports.rechecks.recheck_jobs import (
    CannotSteerRecheck,
    RecheckRefused,
    apply_recheck,
    cancel_recheck,
    continue_recheck,
    queue_recheck,
    resume_recheck,
)
from apps.exports.rechecks.stale_outputs import collections_to_recheck, find_overrides, find_reviews
from apps.gym.pairs.pair_rule import Rule
from apps.gym.stored_rules import RULES
from apps.gym.traces.events import AgentEnd, ModelCall, Verification
from apps.gym.traces.items import message
from apps.gym.traces.tokens import capture_tokens, pack_tokens
from apps.pairs.models import PreferencePair
from apps.pairs.pair_sets import PairOrder, order_pairs
from apps.reviews.models import RewardOverride
from apps.reviews.reviews.reward_overrides import override_reward
from apps.rollouts.metrics.trainable_rollouts import read_trainability
from apps.rollouts.models import Collection, Reverification, Rollout
from apps.rollouts.rechecks.derivation import LINKS, MAIN_PATH, derive_rollout
from tests.dashboard.pages import signed_in
from tests.factories import (
    make_collection,
    make_dataset,
    make_environment,
    make_rollout,
    make_row,
    make_trace,
    make_user,
)
from tests.gym.captured_calls import SYSTEM, Recorder, answered, asked, said
from tests.gym.exporters.test_stored_logprobs import packed
from tests.gym.exporters.test_stored_logprobs import stored as stored_with
from tests.gym.test_relinking import TASK, unlinked
from tests.gym.traces import with_tokens

pytestmark = pytest.mark.django_db
IMPOSSIBLE = pack_tokens(packed([1, 2, 3], [4, 5], [3.2, -0.5]), before=b"")
MASK = {"mask_sample": True, "failure_kind": "provider_oom_killed"}


def with_details(details, answer="5", reward=0.0):
    *events, verification = make_trace(answer, reward)
    return [*events, replace(verification, details=details)]


def with_sampled_tokens(*, grammar):
    capture = capture_tokens([1, 2], [3, 4, 5], [-0.5] * 3)
    call = ModelCall(seen=1, items=[said("4")], tokens=pack_tokens(capture, before=b""), grammar=grammar)
    return [*make_trace(tool_call=False)[:2], call, make_trace()[-1]]


def stored_by_0_2(collection, trace, **fields):
    """A rollout with the columns that GymWeb 0.2 stored."""
    rollout = make_rollout(collection, trace=trace, **{"answer": "5", "components": {"correct": 0.0}, **fields})
    Collection.objects.filter(pk=collection.pk).update(rules_version=0)
    return rollout


def right(collection, answer="4", reward=1.0):
    components = {"correct": reward}
    return make_rollout(
        collection, trace=make_trace(answer, reward), reward=reward, answer=answer, components=components
    )


@pytest.fixture
def collection():
    return make_collection(dataset=make_dataset([make_row()]), repeats=4)


def work(recheck):
    while continue_recheck():
        pass
    recheck.refresh_from_db()
    return recheck


def check(collection):
    return work(queue_recheck(collection=collection))


def count(collection):
    """Set the counters of a collection as the engine would."""
    rewards = list(collection.rollouts.rewarded().values_list("reward", flat=True))
    ended = collection.rollouts.count()
    counters = {"total": ended, "completed": ended, "rewarded": len(rewards), "reward_sum": sum(rewards)}
    Collection.objects.filter(pk=collection.pk).update(**counters, state="completed", finished_at=timezone.now())
    collection.refresh_from_db()


@pytest.mark.parametrize(
    ("details", "masked"),
    [
        (MASK, "provider_oom_killed"),
        ({"mask_sample": True}, "masked"),
        ({"instance_config": {"mask_sample": True}}, "masked"),
    ],
)
def test_a_masked_rollout_has_no_reward(collection, details, masked):
    rollout = stored_by_0_2(collection, with_details(details), reward=0.0)
    derived = derive_rollout(rollout, is_imported=False)
    assert derived.new == {"reward": None, "masked": masked}
    assert derived.old == {"reward": 0.0, "masked": ""}
    assert (derived.kind, derived.events) == ("outcome", {})


@pytest.mark.parametrize("details", [{}, {"failure_kind": "agent_timeout"}, {"mask_sample": False}])
def test_a_rollout_that_is_not_masked_keeps_its_reward(collection, details):
    rollout = stored_by_0_2(collection, with_details(details), reward=0.0)
    assert derive_rollout(rollout, is_imported=False) is None


def test_a_mask_that_was_imported_as_a_field_of_the_task_is_found():
    collection = make_collection(dataset=make_dataset([make_row(**MASK)]))
    rollout = stored_by_0_2(collection, make_trace("5", 0.0), reward=0.0)
    derived = derive_rollout(rollout, is_imported=True)
    assert derived.new == {"reward": None, "masked": "provider_oom_killed"}
    assert [event.details for event in derived.events.values()] == [MASK]
    assert derive_rollout(rollout, is_imported=False) is None


@pytest.mark.parametrize(
    ("grammar", "kind", "trainable"), [(True, "untrainable", None), (False, "counts", 3)], ids=["forced", "free"]
)
def test_sampled_tokens_are_counted(collection, grammar, kind, trainable):
    fields = {"turns": 1, "tool_calls": 0, "answer": "4", "components": {"correct": 1.0}}
    rollout = stored_by_0_2(collection, with_sampled_tokens(grammar=grammar), **fields)
    derived = derive_rollout(rollout, is_imported=False)
    assert (derived.kind, derived.new["sampled_tokens"]) == (kind, 3)
    assert derived.new.get("trainable_tokens") == trainable


def test_tokens_with_impossible_log_probabilities_are_not_counted(collection):
    rollout = stored_by_0_2(collection, stored_with(3.2), sampled_tokens=3, trainable_tokens=3)
    derived = derive_rollout(rollout, is_imported=False)
    assert (derived.new["sampled_tokens"], derived.new["trainable_tokens"]) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "note", "turn"),
    [
        ({"tokens": IMPOSSIBLE}, "logprob_above_0", "logprobs_of_turn"),
        ({"usage": {"output_tokens": 3}}, "usage_differs", "counts_of_turn"),
    ],
    ids=["logprob", "usage"],
)
def test_tokens_that_are_left_out_are_named_with_the_exports_that_have_them(collection, changes, note, turn, settings):
    settings.VERSION = "0.2.0"
    right(collection)
    trace = with_tokens(make_trace(), ([1, 2, 3], [4, 5]), ([1, 2, 3, 4, 5, 6], [7]))
    trace[2] = replace(trace[2], **changes)
    stored = {"answer": "4", "components": {"correct": 1.0}, "sampled_tokens": 3, "trainable_tokens": 3}
    rollout = stored_by_0_2(collection, trace, **stored)
    count(collection)
    order = {"collection": collection, "filters": {"dedupe": False}}
    slugs = ("scored_rollouts", "atif", "nemo_gym_rollouts", "openai_sft")
    made = {slug: write_export(export=queue_export(ExportOrder(format=slug, **order))) for slug in slugs}
    settings.VERSION = "0.2.1"
    write_export(export=queue_export(ExportOrder(format="scored_rollouts", **order)))
    for slug, export in made.items():
        left_out = {one["reason"]: one["count"] for one in export.manifest["trainability"]["left_out"]}
        assert left_out == ({} if slug == "openai_sft" else {turn: 1})
    recheck = check(collection)
    change = recheck.changes.get(rollout=rollout)
    assert (change.kind, change.old["tokens"], change.new["tokens"]) == ("untrainable", {}, {"1": note})
    assert recheck.exports == [made[slug].pk for slug in slugs[:3]]
    work(apply_recheck(recheck=recheck))
    assert stale(type(made["atif"]).objects.order_by("pk")) == recheck.exports
    rollout.refresh_from_db()
    assert (rollout.sampled_tokens, rollout.trainable_tokens) == (1, 1)
    assert check(collection).changed == 0


def test_failed_rollouts_only_get_other_counts(collection):
    fields = {"status": "failed", "error_kind": "verifier_error", "reward": None, "stop_reason": ""}
    rollout = stored_by_0_2(collection, with_sampled_tokens(grammar=False)[:-1], turns=1, tool_calls=0, **fields)
    assert derive_rollout(rollout, is_imported=False).new == {"sampled_tokens": 3, "trainable_tokens": 3}


def wrong_links():
    """A second turn that was stored as a root of its own, so that the first reply counted as the answer."""
    recorder = Recorder()
    recorder.call([SYSTEM, TASK], [asked("c1")])
    recorder.call([SYSTEM, TASK, asked("c1"), answered("c1")], [said("The answer is 3")])
    first, second, _ = recorder.events
    return [first, second, unlinked(recorder.events, 2), Verification(reward=0.0, stop_reason="answered")]


def test_wrong_links_are_replaced_and_verified_again(collection):
    fields = {"reward": 0.0, "turns": 2, "tool_calls": 0, "answer": "", "components": {}}
    rollout = stored_by_0_2(collection, wrong_links(), **fields)
    recheck = check(collection)
    change = recheck.changes.get()
    assert (change.kind, change.needs_verification, recheck.to_verify) == ("outcome", True, 1)
    assert (change.old[LINKS], change.new[LINKS]) == ({"2": 0}, {"2": 1})
    assert change.new["answer"] == "3"
    work(apply_recheck(recheck=recheck))
    stored = rollout.events.order_by("seq")
    assert [one.event.parent for one in stored.filter(kind="model_call")] == [0, 1]
    assert Reverification.objects.get().filters == {"ids": [rollout.pk]}
    assert recheck.reverifications.count() == 1
    assert check(collection).changed == 0


def test_verifiers_that_need_the_state_are_named(collection):
    environment = make_environment(slug="unverified", verifies=False)
    Collection.objects.filter(pk=collection.pk).update(environment=environment)
    stored_by_0_2(collection, wrong_links(), reward=0.0, turns=2, tool_calls=0, answer="", components={})
    recheck = work(apply_recheck(recheck=check(Collection.objects.get(pk=collection.pk))))
    assert (recheck.state, recheck.applied) == ("applied", 1)
    assert "1 rollouts are not verified again" in recheck.message


@pytest.fixture
def used(collection):
    """A masked rollout that became the rejected side of a pair and a row of exports, beside right rollouts."""
    best, masked = right(collection), stored_by_0_2(collection, with_details(MASK), reward=0.0)
    right(collection, "3", 0.5)
    count(collection)
    # 0.2 knew no masks.
    pair_set = order_pairs(PairOrder(collection=collection, rule=Rule(mode="all")))
    exports = {
        name: write_export(export=queue_export(ExportOrder(format=name, collection=collection)))
        for name in ("openai_sft", "nemo_gym_rollouts")
    }
    preferences = queue_export(ExportOrder(format="openai_dpo", collection=collection, pair_set=pair_set))
    exports["openai_dpo"] = write_export(export=preferences)
    return masked, best, pair_set, exports


def stale(rows):
    return [row.pk for row in rows.filter(stale_at__isnull=False)]


def test_pairs_and_exports_that_used_a_masked_rollout_become_stale(collection, used):
    masked, best, pair_set, exports = used
    assert {export.state for export in exports.values()} == {"ready"}
    of_masked = PreferencePair.objects.filter(rejected=masked)
    assert of_masked.count() == 2
    recheck = check(collection)
    assert (recheck.state, recheck.outcomes, recheck.changed) == ("ready", 1, 1)
    assert recheck.exports == [exports["nemo_gym_rollouts"].pk, exports["openai_dpo"].pk]
    assert (stale(PreferencePair.objects), Rollout.objects.get(pk=masked.pk).reward) == ([], 0.0)
    work(apply_recheck(recheck=recheck))
    assert stale(PreferencePair.objects) == [pair.pk for pair in of_masked]
    assert stale(type(pair_set).objects) == [pair_set.pk]
    assert stale(type(exports["openai_sft"]).objects.order_by("pk")) == recheck.exports
    masked.refresh_from_db()
    assert (masked.reward, masked.masked, masked.status) == (None, "provider_oom_killed", "completed")
    best.refresh_from_db()
    assert best.reward == 1.0
    collection.refresh_from_db()
    assert (collection.rewarded, collection.reward_sum, collection.rules_version) == (2, 1.5, RULES)
    ledger = read_trainability(collection)
    assert (ledger.used, [(one.reason, one.count) for one in ledger.left_out]) == (2, [("masked", 1)])
    # A new version uses the current outcomes.
    again = order_pairs(PairOrder(collection=collection, rule=Rule(mode="all")))
    assert (again.stale_at, again.pair_count) == (None, 1)


def test_a_second_recheck_finds_nothing(collection, used):
    work(apply_recheck(recheck=check(collection)))
    again = check(collection)
    assert (again.state, again.changed, again.checked) == ("applied", 0, 3)
    assert not Collection.objects.under_earlier_rules().exists()


def test_human_verdicts_stay(collection, used):
    masked = used[0]
    override_reward(rollout=masked, reward=0.25, reason="Half right", author=make_user())
    recheck = work(apply_recheck(recheck=check(collection)))
    assert [one.reward for one in find_overrides(recheck)] == [0.25]
    assert RewardOverride.objects.get().ended_at is None
    assert not find_reviews(recheck).exists()


def test_a_cancelled_check_and_apply_continue_where_they_stopped(collection, monkeypatch):
    rollouts = [stored_by_0_2(collection, with_details(MASK), reward=0.0) for _ in range(4)]
    count(collection)
    monkeypatch.setattr("apps.exports.rechecks.rollout_changes.CHUNK", 1)
    monkeypatch.setattr(recheck_jobs, "TURN_SECONDS", 0.0)
    recheck = queue_recheck(collection=collection)
    for step in (1, 2):
        continue_recheck()
        recheck.refresh_from_db()
        assert (recheck.state, recheck.checked) == ("queued", step)
    cancel_recheck(recheck=recheck)
    assert not continue_recheck()
    work(resume_recheck(recheck=recheck))
    assert (recheck.state, recheck.checked, recheck.outcomes) == ("ready", 4, 4)
    apply_recheck(recheck=recheck)
    continue_recheck()
    cancel_recheck(recheck=recheck)
    collection.refresh_from_db()
    assert (collection.rewarded, collection.rules_version) == (3, 0)
    work(resume_recheck(recheck=recheck))
    assert (recheck.state, recheck.applied, recheck.skipped) == ("applied", 4, 0)
    assert not Rollout.objects.filter(pk__in=[one.pk for one in rollouts], reward__isnull=False).exists()
    collection.refresh_from_db()
    assert (collection.rewarded, collection.reward_sum, collection.rules_version) == (0, 0.0, RULES)


def test_a_rollout_that_changed_since_the_check_is_skipped(collection, used):
    masked = used[0]
    recheck = check(collection)
    Rollout.objects.filter(pk=masked.pk).update(reward=0.5)
    work(apply_recheck(recheck=recheck))
    assert (recheck.state, recheck.applied, recheck.skipped) == ("applied", 0, 1)
    assert stale(PreferencePair.objects) == []
    masked.refresh_from_db()
    assert (masked.reward, masked.masked) == (0.5, "")
    assert Collection.objects.under_earlier_rules().exists()


def test_a_recheck_is_refused_without_traces_and_in_the_wrong_state(collection):
    right(collection)
    count(collection)
    recheck = check(collection)
    with pytest.raises(CannotSteerRecheck):
        cancel_recheck(recheck=recheck)
    with pytest.raises(CannotSteerRecheck):
        resume_recheck(recheck=recheck)
    one = queue_recheck(collection=collection)
    assert queue_recheck(collection=collection) == one
    with pytest.raises(CannotSteerRecheck):
        apply_recheck(recheck=one)
    Collection.objects.filter(pk=collection.pk).update(traces_deleted_at=timezone.now())
    collection.refresh_from_db()
    with pytest.raises(RecheckRefused):
        queue_recheck(collection=collection)


def test_only_the_imported_row_that_became_the_task_gets_its_mask():
    row = {**make_row("What is 2 + 2?", "4"), "mask_sample": True, "failure_kind": "provider_oom_killed"}
    collection = make_collection(dataset=make_dataset([row]))
    first, second = make_rollout(collection, reward=0.0), make_rollout(collection, reward=1.0)
    derived = derive_rollout(first, is_imported=True)
    assert derived is not None
    assert (derived.new["masked"], derived.new["reward"]) == ("provider_oom_killed", None)
    kept = derive_rollout(second, is_imported=True)
    assert kept is None or "reward" not in kept.new


def agent_finished(*calls, **end):
    recorder = Recorder()
    for request, reply in calls:
        recorder.call(request, reply)
    return [
        *recorder.events,
        AgentEnd(command="finish", **end),
        Verification(reward=0.0, components={"correct": 0.0}, stop_reason="answered"),
    ]


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (agent_finished(unserved=[1]), "The model failed at call 1"),
        (agent_finished(([TASK], [said("Let me see.")]), unserved=[2], answer="none"), "The model failed at call 2"),
    ],
    ids=["no reply", "no last reply"],
)
def test_a_rollout_whose_model_failed_loses_its_reward(collection, trace, message):
    turns = sum(isinstance(event, ModelCall) for event in trace)
    rollout = stored_by_0_2(collection, trace, reward=0.0, turns=turns, tool_calls=0)
    right(collection)
    count(collection)
    recheck = work(apply_recheck(recheck=check(collection)))
    assert (recheck.outcomes, recheck.applied) == (1, 1)
    rollout.refresh_from_db()
    assert (rollout.status, rollout.reward, rollout.stop_reason, rollout.error_kind) == (
        "failed",
        None,
        "",
        "policy_error",
    )
    assert rollout.error_message.startswith(message)
    collection.refresh_from_db()
    counters = (collection.completed, collection.failed, collection.rewarded, collection.reward_sum)
    assert counters == (1, 1, 1, 1.0)
    assert check(collection).changed == 0


@pytest.mark.parametrize(
    "trace",
    [
        agent_finished(([TASK], [said("It is 3")]), unserved=[1]),
        agent_finished(([TASK], [said("It is 3")]), unserved=[2], answer="3"),
        agent_finished(answer="3"),
    ],
    ids=["unread reply", "answered before", "no call"],
)
def test_a_rollout_whose_agent_had_its_answer_keeps_its_reward(collection, trace):
    turns = sum(isinstance(event, ModelCall) for event in trace)
    rollout = stored_by_0_2(collection, trace, reward=0.0, turns=turns, tool_calls=0, answer=trace[-2].answer)
    assert derive_rollout(rollout, is_imported=False) is None


def test_tool_calls_of_captured_agents_are_counted(collection):
    calls = [([TASK], [asked("c1"), asked("c2")]), ([TASK, asked("c1"), asked("c2"), answered("c1")], [said("3")])]
    rollout = stored_by_0_2(collection, agent_finished(*calls), reward=0.0, turns=2, tool_calls=0, answer="3")
    derived = derive_rollout(rollout, is_imported=False)
    assert (derived.kind, derived.new) == ("counts", {"tool_calls": 2, "tools": {"run": [2, 0, 0.0]}})
    work(apply_recheck(recheck=check(collection)))
    rollout.refresh_from_db()
    assert (rollout.tool_calls, rollout.tools) == (2, {"run": [2, 0, 0.0]})


def planned_and_executed(answer=""):
    recorder = Recorder(tools=[])
    recorder.call([message("system", "You plan."), TASK], [said("Count with ls.")], tools=[])
    recorder.call([message("system", "You execute."), message("user", "Count with ls.")], [said("4")], tools=[])
    end = AgentEnd(command="finish", answer=answer)
    return [*recorder.events, end, Verification(reward=0.0, components={"correct": 0.0}, stop_reason="answered")]


def test_a_rollout_whose_verifier_saw_another_conversation_is_verified_again(collection):
    fields = {"turns": 2, "tool_calls": 0, "reward": 0.0, "answer": "count with ls"}
    rollout = stored_by_0_2(collection, planned_and_executed(), **fields)
    derived = derive_rollout(rollout, is_imported=False, rules=1)
    assert (derived.old[MAIN_PATH], derived.new[MAIN_PATH]) == (1, 2)
    assert (derived.new["answer"], derived.needs_verification, derived.kind) == ("4", True, "outcome")
    recheck = work(apply_recheck(recheck=check(collection)))
    assert (recheck.outcomes, recheck.to_verify, recheck.applied) == (1, 1, 1)
    assert recheck.reverifications.count() == 1
    rollout.refresh_from_db()
    assert rollout.answer == "4"
    assert check(collection).changed == 0


def test_a_rollout_whose_answer_no_call_holds_becomes_ambiguous(collection):
    fields = {"turns": 2, "tool_calls": 0, "reward": 0.0, "answer": "5"}
    rollout = stored_by_0_2(collection, planned_and_executed("5"), **fields)
    derived = derive_rollout(rollout, is_imported=False, rules=1)
    assert derived.new == {"ambiguous_path": True, MAIN_PATH: 2}
    work(apply_recheck(recheck=check(collection)))
    rollout.refresh_from_db()
    assert rollout.ambiguous_path


def test_rewards_that_the_verifier_gives_no_more_are_listed_and_verified_again():
    verifier = {"type": "math"}
    environment = make_environment(adapter="declared", builtin="", verifier=verifier)
    rows = [make_row("Find x.", r"x\equiv 3 \pmod 7"), make_row("Add.", "4")]
    collection = make_collection(
        dataset=make_dataset(rows=rows, environment=environment), snapshot={"environment": {"verifier": verifier}}
    )
    answers = [r"\boxed{x\equiv 4 \pmod 7}", r"\boxed{4}"]
    wrong, kept = (
        make_rollout(
            collection,
            task=task,
            trace=make_trace(answer, 1.0),
            reward=1.0,
            answer=answer[7:-1],
            components={"correct": 1.0},
        )
        for task, answer in zip(collection.version.tasks.order_by("index"), answers, strict=True)
    )
    Collection.objects.filter(pk=collection.pk).update(rules_version=0)
    collection.refresh_from_db()
    recheck = work(queue_recheck(collection=collection))
    verdicts = {one.rollout_id: (one.old["verdict"], one.new["verdict"]) for one in recheck.changes.all()}
    assert verdicts == {wrong.pk: (1.0, 0.0)}
    assert (recheck.checked, recheck.outcomes, recheck.to_verify) == (2, 1, 1)
    work(apply_recheck(recheck=recheck))
    wrong.refresh_from_db()
    assert wrong.reward == 1.0  # A person applies the new reward.
    assert Reverification.objects.get().filters == {"ids": [wrong.pk]}

    # Another verifier is a decision of a person, which a recheck does not judge.
    environment.verifier = {"type": "exact_match"}
    environment.save()
    Collection.objects.filter(pk=collection.pk).update(rules_version=0)
    collection.refresh_from_db()
    assert work(queue_recheck(collection=collection)).changes.count() == 0
    kept.refresh_from_db()
    assert kept.reward == 1.0


@pytest.mark.parametrize("format", ["nemo_rl_tasks", "nemo_gym_rollouts", "nemo_gym_inputs"])
def test_an_export_whose_card_has_no_column_types_becomes_stale(collection, tmp_path, format):
    right(collection)
    count(collection)
    order = ExportOrder(format=format, collection=collection)
    earlier, typed, one_file = (
        write_export(export=queue_export(order), path=path) for path in (None, None, tmp_path / "one.jsonl")
    )
    for export in (earlier, one_file):
        export.manifest.pop("columns")
        export.save()
    Collection.objects.filter(pk=collection.pk).update(rules_version=RULES)
    client = signed_in()
    assert list(collections_to_recheck()) == [collection]
    assert [one["id"] for one in client.get("/api/v1/collections/?earlier_rules=true").json()["results"]] == [
        collection.pk
    ]
    assert "needs a recheck" in client.get(f"/collections/{collection.pk}/").text
    assert f'name="collection" value="{collection.pk}"' in client.get("/rechecks/").text
    assert "1 collection needs a recheck" in client.get("/").text
    recheck = check(collection)
    assert (recheck.state, recheck.changed, recheck.exports) == ("ready", 0, [earlier.pk])
    assert stale(type(earlier).objects) == []
    work(apply_recheck(recheck=recheck))
    recheck.refresh_from_db()
    assert (recheck.state, stale(type(earlier).objects)) == ("applied", [earlier.pk])
    earlier.refresh_from_db()
    assert "column types" in earlier.stale_reason
    assert not collections_to_recheck().exists()
    assert "needs a recheck" not in client.get("/").text
    assert (check(collection).state, typed.manifest["columns"]["responses_create_params"]) == ("applied", "json")
