"""What goes into an export: whole groups are looked at, and what is left out is counted by its reason."""

from itertools import zip_longest
from pathlib import Path

import pytest

from apps.exports.export_folders import rows_path
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, ExportRefused, queue_export
from apps.gym.pairs.pair_rule import Rule
from apps.gym.traces.items import message
from apps.gym.traces.messages import item_messages
from apps.pairs.pair_sets import PairOrder, build_pairs
from apps.reviews.reviews.reward_overrides import override_reward
from apps.rollouts.models import Rollout
from apps.rollouts.search.word_index import mark_unindexed
from tests.exports.test_exporting import broken_trace
from tests.factories import make_agent, make_collection, make_dataset, make_rollout, make_row, make_trace, make_user
from tests.gym.traces import call, decode_lines, turn, with_tokens
from tests.gym.traces import trace as trace_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def exports_folder(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path / "exports"


@pytest.fixture
def collection():
    """Four tasks: always solved, sometimes, never, never scored. Answers of the second repeat."""
    made = make_collection(dataset=make_dataset([make_row(name) for name in "abcd"]), repeats=4)
    made.version.tasks.update(split="train")
    made.version.tasks.filter(index=2).update(split="held")
    always, sometimes, never, unscored = made.version.tasks.order_by("index")
    for reward in (1.0, 1.0):
        make_rollout(made, task=always, reward=reward)
    for reward, answer, tokens in ((1.0, "4", 50), (0.8, "four", 10), (1.0, "4", 50), (0.1, "5", 10)):
        make_rollout(made, task=sometimes, reward=reward, output_tokens=tokens, trace=make_trace(answer, reward))
    for reward in (0.0, 0.0):
        make_rollout(made, task=never, reward=reward)
    make_rollout(made, task=unscored, reward=None, status="failed", error_kind="timed_out", stop_reason="")
    return made


def export(collection, format="scored_rollouts", *, filters=None, **order):
    """Of all splits of the dataset, unless filters name some."""
    encoding = {"encoding": "jsonl"} if format == "scored_rollouts" else {}
    taken = {"splits": [], **(filters or {})}
    return write_export(
        export=queue_export(ExportOrder(format=format, collection=collection, filters=taken, **encoding, **order))
    )


def rows_of(written, split="train"):
    return decode_lines(rows_path(written, f"{split}.jsonl").read_bytes())


def places(written):
    return [(row["task_index"], row["reward"]) for row in rows_of(written)]


def test_without_filters_every_scored_attempt_is_there(collection):
    written = export(collection, options={})
    assert places(written) == [(0, 1.0), (0, 1.0), (1, 1.0), (1, 0.8), (1, 1.0), (1, 0.1), (2, 0.0), (2, 0.0)]
    assert written.manifest["counts"]["dropped"] == {"failed": 1}


@pytest.mark.parametrize(
    ("filters", "kept", "dropped"),
    [
        ({"min_reward": 0.8}, [0, 0, 1, 1, 1], {"below_min_reward": 3, "failed": 1}),
        ({"min_reward": 0.0}, [0, 0, 1, 1, 1, 1, 2, 2], {"failed": 1}),
        ({"min_solve_rate": 0.1}, [0, 0, 1, 1, 1, 1], {"solved_too_rarely": 2, "never_scored": 1}),
        ({"max_solve_rate": 0.9}, [1, 1, 1, 1, 2, 2], {"solved_too_often": 2, "never_scored": 1}),
        ({"drop_zero_variance": True}, [1, 1, 1, 1], {"zero_variance": 4, "never_scored": 1}),
        ({"splits": ["held"]}, [2, 2], {"other_split": 7}),
        ({"dedupe": True}, [0, 1, 1, 1, 2], {"identical_completion": 3, "failed": 1}),
        ({"max_rows": 3}, [0, 0, 1], {"beyond_max_rows": 5, "failed": 1}),
        ({"per_task": 1}, [0, 1, 2], {"beyond_the_best_of_its_task": 5, "failed": 1}),
    ],
)
def test_a_filter_keeps_what_it_says_and_counts_the_rest(collection, filters, kept, dropped):
    written = export(collection, filters=filters)
    assert [row["task_index"] for row in rows_of(written)] == kept
    assert written.manifest["counts"]["dropped"] == dropped


def test_the_best_of_a_task_are_the_highest_rewards_then_the_shortest_and_differ_where_asked(collection):
    best = {"per_task": 2, "splits": ["train"], "min_solve_rate": 0.5, "max_solve_rate": 0.5}
    assert [row["reward"] for row in rows_of(export(collection, filters=best))] == [1.0, 1.0]
    assert [row["reward"] for row in rows_of(export(collection, filters={**best, "dedupe": True}))] == [1.0, 0.8]


def test_group_figures_are_of_the_whole_group_whatever_is_left_out(collection):
    written = export(collection, filters={"min_reward": 0.8, "max_solve_rate": 0.9})
    row = rows_of(written)[0]
    mean = (1.0 + 0.8 + 1.0 + 0.1) / 4
    assert (row["group_size"], row["pass_rate"], row["zero_variance"]) == (4, 0.5, False)
    assert row["group_mean"] == pytest.approx(mean)
    assert row["advantage_mean_only"] == pytest.approx(1.0 - mean)
    assert row["advantage"] == pytest.approx((1.0 - mean) / (row["group_std"] + 1e-4))


def test_tasks_are_prompts_with_what_attempts_at_them_got(collection):
    rows = rows_of(export(collection, "trl_grpo"))
    assert [(row["attempts"], row["solve_rate"]) for row in rows] == [(2, 1.0), (4, 0.5), (2, 0.0), (0, 0.0)]
    hard = export(collection, "trl_grpo", filters={"min_solve_rate": 0.01, "max_solve_rate": 0.99})
    assert [row["task_index"] for row in rows_of(hard)] == [1]
    assert hard.manifest["counts"] == {
        "considered": 4,
        "written_from": 1,
        "written": 1,
        "dropped": {"never_scored": 1, "solved_too_often": 1, "solved_too_rarely": 1},
    }


def test_a_task_is_in_one_file_and_all_exports_share_the_split():
    made = make_collection(dataset=make_dataset([make_row(str(number)) for number in range(60)]), repeats=2)
    for task in made.version.tasks.all():
        make_rollout(made, task=task)
        make_rollout(made, task=task)
    written = export(made, validation_share=0.3, split_seed=5)
    sides = [{row["task_id"] for row in rows_of(written, split)} for split in ("train", "validation")]
    assert sides[0] & sides[1] == set()
    assert len(sides[0]) + len(sides[1]) == 60
    assert 8 <= len(sides[1]) <= 28
    again = export(made, "trl_grpo", validation_share=0.3, split_seed=5)
    assert {row["task_index"] for row in rows_of(again, "validation")} == {
        row["task_index"] for row in rows_of(written, "validation")
    }
    other = export(made, validation_share=0.3, split_seed=6)
    assert {row["task_id"] for row in rows_of(other, "validation")} != sides[1]


def attempted(questions, ids=(), **fields):
    """A collection of a dataset that asks these, with a good and a bad attempt at each."""
    rows = [make_row(question, **({"id": one} if one else {})) for question, one in zip_longest(questions, ids)]
    made = make_collection(dataset=make_dataset(rows), repeats=2, **fields)
    for task, row in zip(made.version.tasks.order_by("index"), rows, strict=True):
        made.version.tasks.filter(pk=task.pk).update(external_id=row.get("id", ""), key=f"key-{questions[task.index]}")
        for answer, reward in (("4", 1.0), ("5", 0.0)):
            make_rollout(made, task=task, reward=reward, trace=make_trace(answer, reward))
    return made


def questions_in(written, split):
    tasks = {task.index: task for task in written.collection.version.tasks.all()}
    asked = (tasks[row["task_index"]].row["responses_create_params"] for row in rows_of(written, split))
    return {one["input"][0]["content"] for one in asked}


def test_equal_prompts_are_on_one_side_of_the_split():
    asked = [f"What is {number} + 2?" for number in range(40)]
    sides = {"validation_share": 0.3, "split_seed": 1}
    first = export(attempted([*asked, *asked], ids=[f"id-{number}" for number in range(80)]), "trl_grpo", **sides)
    train, held = (questions_in(first, split) for split in ("train", "validation"))
    assert (train & held, len(train | held), 4 <= len(held) <= 20) == (set(), 40, True)
    moved = export(attempted(["a row that came in between", *reversed(asked)]), "trl_sft", **sides)
    assert questions_in(moved, "validation") - {"a row that came in between"} == held


def test_pairs_of_several_datasets_name_their_own_task():
    asked = [f"What is {number} + 2?" for number in range(30)]
    first, second = attempted(asked), attempted(list(reversed(asked)))
    pair_set = build_pairs(PairOrder(collection=first, further=[second]))
    sides = {"validation_share": 0.3, "split_seed": 1}
    held = questions_in(export(second, "trl_sft", **sides), "validation")
    for collection in (first, second):
        written = export(collection, "trl_dpo", pair_set=pair_set, **sides)
        for split in ("train", "validation"):
            for row in rows_of(written, split):
                chosen = Rollout.objects.get(pk=row["chosen_rollout_id"])
                own = (chosen.collection_id, f"{chosen.collection.dataset.slug}@v1", chosen.task_id, chosen.task.index)
                assert tuple(row[name] for name in ("collection_id", "dataset", "task_id", "task_index")) == own
                (asked,) = chosen.task.row["responses_create_params"]["input"]
                assert (asked["content"] in held) == (split == "validation")


def test_the_best_of_a_task_is_the_best_that_can_be_written():
    made = make_collection(repeats=4)
    make_rollout(made, reward=1.0, trace=[*make_trace()[:1], *broken_trace()])
    for reward in (0.9, 0.8, 0.0):
        make_rollout(made, reward=reward, trace=make_trace(f"{reward}", reward))
    written = export(made, "trl_sft", filters={"per_task": 1})
    assert [row["reward"] for row in rows_of(written)] == [0.9]
    assert written.manifest["counts"]["dropped"] == {
        "below_min_reward": 1,
        "beyond_the_best_of_its_task": 1,
        "malformed_arguments": 1,
    }
    pair_set = build_pairs(PairOrder(collection=made, rule=Rule(mode="all")))
    pairs = export(made, "trl_dpo", pair_set=pair_set, filters={"per_task": 2})
    assert [(row["chosen_reward"], row["rejected_reward"]) for row in rows_of(pairs)] == [(0.9, 0.0), (0.8, 0.0)]
    assert pairs.manifest["counts"]["dropped"]["malformed_arguments"] == 1


@pytest.mark.parametrize("per_task", [1, 2, None])
def test_a_dropped_row_is_replaced_by_its_next_repeat(per_task):
    made = make_collection(repeats=4)
    captured = with_tokens(make_trace("4", 1.0), ([1, 2], [3]), ([1, 2, 3, 4], [5]))
    _, first, _ = (make_rollout(made, trace=trace) for trace in (make_trace("4", 1.0), captured, captured))
    written = export(made, "trl_sft_tokens", encoding="jsonl", filters={"per_task": per_task, "dedupe": True})
    assert [row["rollout_id"] for row in rows_of(written)] == [first.pk]
    counts = written.manifest["counts"]
    assert counts["considered"] == counts["written_from"] + sum(counts["dropped"].values())


def test_a_row_that_json_cannot_hold_is_none_of_the_rows_asked_for():
    made = make_collection(repeats=3)
    huge = call('{"n": 123456789012345678901234567890}')
    for trace in (
        trace_of(turn(huge), prompt=[message("user", "What is 2 + 2?")]),
        make_trace("4", 1.0),
        make_trace("5", 1.0),
    ):
        make_rollout(made, reward=1.0, trace=trace)
    written = export(made, "trl_sft", filters={"max_rows": 1, "per_task": 2})
    assert written.rows == 1
    assert written.manifest["counts"]["dropped"] == {"beyond_max_rows": 1, "not_encodable": 1}


def test_the_reward_that_a_person_set_counts_in_every_format_unless_the_verifiers_is_asked_for():
    made = make_collection(repeats=3)
    bad, good, none = (
        make_rollout(made, reward=reward, trace=make_trace(answer, reward))
        for answer, reward in (("4", 1.0), ("5", 0.0), ("6", 0.0))
    )
    override_reward(rollout=bad, reward=0.0, reason="It guessed.", author=make_user())
    override_reward(rollout=good, reward=0.9, reason="The verifier missed it.", author=make_user())
    written = {slug: export(made, slug) for slug in ("trl_sft", "trl_kto", "scored_rollouts", "trl_grpo")}
    assert [row["rollout_id"] for row in rows_of(written["trl_sft"])] == [good.pk]
    assert {row["rollout_id"]: row["label"] for row in rows_of(written["trl_kto"])} == {
        bad.pk: False,
        good.pk: True,
        none.pk: False,
    }
    assert [(row["reward"], row["group_mean"]) for row in rows_of(written["scored_rollouts"])] == [
        (0.0, 0.3),
        (0.9, 0.3),
        (0.0, 0.3),
    ]
    assert rows_of(written["trl_grpo"])[0]["mean_reward"] == 0.3
    assert {slug: one.manifest["rewards"]["set_by_people"] for slug, one in written.items()} == {
        "trl_sft": 1,
        "trl_kto": 2,
        "scored_rollouts": 2,
        "trl_grpo": 2,
    }
    verifiers = export(made, "trl_sft", filters={"reward_from": "verifier"})
    assert [row["rollout_id"] for row in rows_of(verifiers)] == [bad.pk]
    assert verifiers.manifest["rewards"] == {"from": "verifier", "set_by_people": 0}
    assert "overrides are ignored" in (Path(verifiers.path) / "README.md").read_text()


@pytest.mark.parametrize("counting", ["override", "verifier"])
def test_rows_have_override_and_verifier_reward(counting):
    made = make_collection(repeats=2)
    one, other = (make_rollout(made, reward=reward, trace=make_trace("4", reward)) for reward in (1.0, 0.5))
    override_reward(rollout=one, reward=0.39, reason="Half of it.", author=make_user())
    said = {"reward": 0.39, "original_reward": 1.0, "reason": "Half of it."}
    filters = {"reward_from": counting}
    reward = 0.39 if counting == "override" else 1.0
    scored, gym = (rows_of(export(made, slug, filters=filters)) for slug in ("scored_rollouts", "nemo_gym_rollouts"))
    assert [(row["rollout_id"], row["reward"], row["reward_override"]) for row in scored] == [
        (one.pk, reward, said),
        (other.pk, 0.5, {}),
    ]
    assert [(row["gymweb"]["rollout_id"], row["reward"], row["gymweb"].get("reward_override")) for row in gym] == [
        (one.pk, reward, said),
        (other.pk, 0.5, None),
    ]


def test_of_pairs_the_largest_margins_of_a_task_stay():
    made = make_collection(repeats=3)
    for reward, answer in ((1.0, "4"), (0.5, "5"), (0.0, "6")):
        make_rollout(made, reward=reward, trace=make_trace(answer, reward))
    pair_set = build_pairs(PairOrder(collection=made))
    best, middle, worst = made.rollouts.order_by("id")
    pair_set.pairs.all().delete()
    for chosen, rejected in ((best, middle), (best, worst), (middle, worst)):
        pair_set.pairs.create(
            task=best.task,
            chosen=chosen,
            rejected=rejected,
            margin=chosen.reward - rejected.reward,
            chosen_reward=chosen.reward,
            rejected_reward=rejected.reward,
        )
    written = export(made, "trl_dpo", pair_set=pair_set, filters={"per_task": 2})
    assert [row["reward_margin"] for row in rows_of(written)] == [1.0, 0.5]
    assert written.manifest["counts"]["dropped"] == {"beyond_the_best_of_its_task": 1}


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ({"filters": {"per_task": 0}}, "per_task must be a whole number of at least 1"),
        ({"filters": {"min_solve_rate": 1.5}}, "min_solve_rate must be a number from 0 to 1"),
        ({"filters": {"min_solve_rate": 0.6, "max_solve_rate": 0.5}}, "min_solve_rate must not exceed max_solve_rate"),
        ({"filters": {"splits": "train"}}, "splits: Expected `array`, got `str`"),
        ({"format": "trl_grpo", "filters": {"min_reward": 0.5}}, "no filter min_reward.* drop_zero"),
        ({"validation_share": 0.9}, "between 0 and 0.5"),
        ({"format": "verl_sft", "encoding": "jsonl"}, "Choose one of: parquet"),
        ({"format": "nemo_rl_dpo"}, "needs a pair set"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(collection, order, why):
    with pytest.raises(ExportRefused, match=why):
        queue_export(ExportOrder(**{"format": "trl_sft", "collection": collection, **order}))


def test_filters_and_numbers_select_and_are_in_the_manifest(collection):
    written = export(collection, filters={"q": " reward:0.5..0.9,1 -tool:search "}, options={})
    assert places(written) == [(0, 1.0), (0, 1.0), (1, 1.0), (1, 0.8), (1, 1.0)]
    assert written.manifest["counts"]["dropped"] == {"not_selected": 4}
    assert written.manifest["filters"]["q"] == " reward:0.5..0.9,1 -tool:search "
    marked = [row["rollout_id"] for row in rows_of(written)][1:4]
    written = export(collection, filters={"q": "reward:1", "rollouts": marked}, options={})
    assert [row["rollout_id"] for row in rows_of(written)] == [marked[0], marked[1]]
    # What is said of a group is said of all attempts at its task.
    assert {row["group_size"] for row in rows_of(written) if row["task_index"] == 1} == {4}
    assert written.manifest["filters"]["rollouts"] == marked


def test_tasks_are_selected_by_one_of_their_attempts_and_pairs_by_both(collection):
    written = export(collection, "trl_grpo", filters={"q": "reward:0.8"})
    assert (written.rows, written.manifest["counts"]["dropped"]) == (1, {"not_selected": 3})
    pair_set = build_pairs(PairOrder(collection=collection))
    both = pair_set.pairs.get()
    for numbers, rows in (([both.chosen_id], 0), ([both.chosen_id, both.rejected_id], 1)):
        written = export(collection, "trl_dpo", pair_set=pair_set, filters={"rollouts": numbers})
        assert (written.rows, written.manifest["counts"]["dropped"].get("not_selected", 0)) == (rows, 1 - rows)


def test_a_selection_that_cannot_be_is_refused_before_a_byte_is_written(collection):
    elsewhere = make_rollout(make_collection())
    for filters, says in (
        ({"q": "rewrd:1"}, "q: at character 1"),
        ({"rollouts": [elsewhere.pk]}, "belong to other collections"),
        ({"rollouts": [0]}, "rollouts must be a list of rollout numbers"),
        ({"rollouts": ["1"]}, r"rollouts\[0\]: Expected `int`, got `str`"),
    ):
        with pytest.raises(ExportRefused, match=says):
            queue_export(ExportOrder(format="trl_sft", collection=collection, filters=filters))
    mark_unindexed([collection.rollouts.first().pk])
    with pytest.raises(ExportRefused, match="The text index of this collection is not complete"):
        queue_export(ExportOrder(format="trl_sft", collection=collection, filters={"q": "text:four"}))


def test_only_flags_of_selected_rollouts_refuse_an_export(collection):
    first, second = collection.rollouts.filter(reward=1.0).order_by("pk")[:2]
    collection.rollouts.filter(pk=first.pk).update(flagged=True)
    with pytest.raises(ExportRefused, match="redactions in 1 rollout"):
        queue_export(ExportOrder(format="trl_sft", collection=collection, filters={"q": "reward:1"}))
    assert queue_export(ExportOrder(format="trl_sft", collection=collection, filters={"rollouts": [second.pk]})).pk


@pytest.mark.parametrize(
    ("format", "options", "opened"),
    [
        ("trl_grpo", {}, True),
        ("openrlhf_rl", {}, True),
        ("verl_rl", {}, True),
        ("nemo_rl_tasks", {"opening": "attempts"}, True),
        ("nemo_rl_tasks", {}, False),
        ("trl_grpo", {"opening": "task"}, False),
    ],
)
def test_prompts_for_rl_are_those_of_the_attempts_or_the_tasks(format, options, opened):
    agent = make_agent(system_prompt="Be brief.", examples=[message("user", "1 + 1?"), message("assistant", "2")])
    made = make_collection(
        agent=agent, dataset=make_dataset([{**make_row("a"), "hint": "Count."}, make_row("b")]),
        prompt_template={"user": "{hint} {prompt}"},
    )  # fmt: skip
    for task in made.version.tasks.all():
        make_rollout(made, task=task)
    written = export(made, format, options=options)
    [first, *others] = rows_of(written)
    place = {"verl_rl": "prompt", "trl_grpo": "prompt", "openrlhf_rl": "input"}.get(format)
    asked = first[place] if place else item_messages(first["responses_create_params"]["input"])
    own = made.version.tasks.get(index=0).row["responses_create_params"]["input"]
    question = own if isinstance(own, str) else own[-1]["content"]
    if opened:
        assert asked == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": f"Count. {question}"},
        ]
        assert (others, written.manifest["counts"]["dropped"]) == ([], {"prompt_template_gap": 1})
    else:
        assert asked == [{"role": "user", "content": question}]
        assert len(others) == 1


def test_the_prompt_is_that_of_the_plan_whatever_became_of_the_agent_since():
    made = make_collection(snapshot={"agent": {"slug": "a", "system_prompt": "Then.", "examples": []}})
    make_rollout(made)
    assert rows_of(export(made, "trl_grpo"))[0]["prompt"][0] == {"role": "system", "content": "Then."}


@pytest.mark.parametrize(("filters", "label"), [({}, False), ({"per_task": 2}, True)])
def test_the_same_words_with_another_reward_are_counted_apart(filters, label):
    made = make_collection()
    for reward in (0.0, 1.0, 0.0):
        make_rollout(made, reward=reward)
    written = export(made, "trl_kto", filters=filters)
    assert [row["label"] for row in rows_of(written)] == [label]
    assert written.manifest["counts"]["dropped"] == {
        "identical_completion_with_another_reward": 2 if label else 1,
        **({} if label else {"identical_completion": 1}),
    }
