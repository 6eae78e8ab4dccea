"""No rollout gets the task of another one, whatever happened to the rows between a run and its import."""

import pytest

from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.task_rows import parse_line
from apps.gym.traces.items import dump_json, text_of
from apps.rollouts.imports.task_matching import ImportRefused
from apps.tasks.upload_jobs import upload_file
from tests.factories import make_dataset
from tests.rollouts.stored import as_file, said, stored_row
from tests.rollouts.test_importing import import_these, rollouts_of

pytestmark = pytest.mark.django_db

QUESTION = "Which word is meant?"


def asking(question=QUESTION, **fields):
    """A task row."""
    return {"responses_create_params": {"input": [{"role": "user", "content": question}]}, **fields}


def done(question=QUESTION, *, task=0, repeat=0, **fields):
    """A rollout row that repeats only these fields of its task."""
    row = stored_row(question, _ng_task_index=task, _ng_rollout_index=repeat)
    del row["expected_answer"]
    return {**row, **fields}


def as_inputs(*tasks):
    """The materialised inputs of a run with these tasks."""
    rows = ({**task, "_ng_task_index": number, "_ng_rollout_index": 0} for number, task in enumerate(tasks))
    return as_file(*rows, name="rollouts_materialized_inputs.jsonl")


def as_tasks(*tasks):
    return as_file(*tasks, name="tasks.jsonl")


def answers(imported):
    """The expected answer that each rollout is verified with."""
    return [rollout.task.row.get("expected_answer") for rollout in rollouts_of(imported)]


A, B, C = ({"expected_answer": answer, "hint": hint} for answer, hint in (("ash", 1), ("oak", 2), ("elm", 3)))
TASKS = [asking(**each) for each in (A, B, C)]
"""Tasks with one prompt, as of a listening or a game environment."""


# -- task rows of a data set, whose positions are no evidence


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)], ids=["unchanged", "all moved", "two swapped"])
def test_rows_in_another_order_are_found_by_their_content(order):
    run = as_file(*(done(task=number, hint=number + 1) for number in range(3)))
    assert answers(import_these(run, as_tasks(*(TASKS[place] for place in order)))) == ["ash", "oak", "elm"]


def test_the_task_of_a_deleted_row_is_not_replaced_by_the_row_that_moved_up():
    with pytest.raises(ImportRefused, match="line 2: /hint differs from the task row with this prompt") as refused:
        import_these(as_file(done(hint=1), done(task=1, hint=2)), as_tasks(TASKS[0], TASKS[2]))
    assert [error.code for error in refused.value.errors] == ["other_task"]


def test_a_rollout_that_does_not_say_which_of_several_tasks_it_attempted_is_refused():
    with pytest.raises(ImportRefused, match="line 1: /responses_create_params/input several task rows") as refused:
        import_these(as_file(done(task=2)), as_tasks(*TASKS))
    assert "Give the file …_materialized_inputs.jsonl" in refused.value.errors[0].message


def test_the_inputs_of_the_run_say_which_of_several_tasks_was_attempted():
    assert answers(import_these(as_file(done(task=2), done(task=0)), as_inputs(*TASKS))) == ["elm", "ash"]


def test_equal_rows_are_tasks_of_their_own():
    run = [done(task=number, repeat=repeat) for number, repeat in ((1, 0), (0, 0), (1, 1))]
    imported = import_these(as_file(*run), as_tasks(TASKS[0], TASKS[0]))
    assert [(each.task.index, each.repeat) for each in rollouts_of(imported)] == [(1, 0), (0, 0), (1, 1)]


def test_a_changed_answer_is_another_task():
    changed = asking(expected_answer="yew", hint=1)
    with pytest.raises(ImportRefused, match="/expected_answer differs from the task row"):
        import_these(as_file(done(expected_answer="ash")), as_tasks(changed))


def test_an_id_finds_its_task_however_the_rows_are_placed():
    rows = [{**task, "id": f"t-{number}"} for number, task in enumerate(TASKS)]
    run = as_file(done(task=0, id="t-2"), done(task=1, id="t-0"))
    assert answers(import_these(run, as_tasks(*rows))) == ["elm", "ash"]


def test_more_rows_than_are_compared_are_told_apart_by_their_id(monkeypatch):
    monkeypatch.setattr("apps.rollouts.imports.task_finding.MAX_CANDIDATES", 2)
    rows = as_tasks(*({**task, "id": number} for number, task in enumerate(TASKS)))
    assert answers(import_these(as_file(done(task=0, id=2)), rows)) == ["elm"]
    with pytest.raises(ImportRefused, match="more than 2 different task rows"):
        import_these(as_file(done(task=0, hint=3)), as_tasks(*TASKS))


def test_a_task_without_a_prompt_is_not_that_of_every_other_rollout():
    """As for environments that ask by themselves: an empty prompt begins every other one."""
    promptless = {"responses_create_params": {"input": []}, "expected_answer": "ash", "level": 3}
    lone, own = rollouts_of(import_these(as_file(done(task=0, level=3), done("Else?", task=1)), as_tasks(promptless)))
    assert (lone.task.row.get("expected_answer"), own.task.row.get("expected_answer")) == ("ash", None)


def test_a_longer_conversation_is_not_the_task_that_it_begins_like():
    longer = done()
    reply = {"role": "assistant", "content": "Ash."}
    longer["responses_create_params"]["input"] += [reply, {"role": "user", "content": "And in the other text?"}]
    [rollout] = rollouts_of(import_these(as_file(longer), as_tasks(TASKS[0])))
    assert len(rollout.task.row["responses_create_params"]["input"]) == 3


# -- materialised inputs, which were written again after the rows had changed


@pytest.mark.parametrize(
    "tasks",
    [[TASKS[1], TASKS[0]], [TASKS[1]], [asking(expected_answer="yew", hint=9)]],
    ids=["swapped", "deleted", "changed"],
)
def test_inputs_with_another_task_in_this_place_are_refused(tasks):
    with pytest.raises(ImportRefused, match=r"_ng_task_index the number 0 belongs to a task with another value in"):
        import_these(as_file(done(hint=1)), as_inputs(*tasks))


def test_inputs_of_two_runs_are_refused_where_a_number_has_two_tasks():
    with pytest.raises(ImportRefused, match="another value in expected_answer"):
        import_these(as_file(done(task=0)), as_inputs(TASKS[0]), as_inputs(TASKS[1]))
    longer = asking(**A)
    longer["responses_create_params"]["input"].append({"role": "user", "content": "Once more."})
    with pytest.raises(ImportRefused, match="a task with another prompt"):
        import_these(as_file(done(task=0)), as_inputs(asking(**A)), as_inputs(longer))


def test_a_failure_of_another_task_is_refused():
    """Failures of environment servers name their task."""
    failure = {"_ng_failure_class": "environment_server_failed", "_ng_failure_message": "late", "_ng_task_index": 0}
    failure |= {"_ng_rollout_index": 0, "_ng_task_id": {"taskset": "words", "task_id": "w-1"}}
    first, second = ({**asking(**A), "taskset": "words", "task_id": name} for name in ("w-1", "w-2"))
    [rollout] = rollouts_of(import_these(as_file(failure), as_inputs(first, second)))
    assert (rollout.status, rollout.task.external_id) == ("failed", "words/w-1")
    with pytest.raises(ImportRefused, match="another value in _ng_task_id"):
        import_these(as_file(failure), as_inputs(second, first))


# -- rollouts alone: a run that was resumed after its rows had changed


@pytest.mark.parametrize(
    ("first", "second", "field"),
    [
        (done("Red?"), done("Blue?", repeat=1), "prompt"),
        (done(ground_truth=[1]), done(ground_truth=[2], repeat=1), "value in ground_truth"),
        (done(id="a"), done(id="b", repeat=1), "value in id"),
    ],
    ids=["prompt", "content", "identity"],
)
def test_one_number_for_two_tasks_of_a_file_is_refused(first, second, field):
    with pytest.raises(ImportRefused, match=f"line 2: .*the number 0 belongs to a task with another {field}"):
        import_these(as_file(first, second))


def test_one_number_in_two_files_is_one_task_only_with_the_same_content():
    files = [as_file(done(seed=seed, repeat=seed), name=f"run-{place}.jsonl") for place, seed in enumerate((1, 2, 1))]
    assert [rollout.task.row["seed"] for rollout in rollouts_of(import_these(*files))] == [1, 2, 1]
    assert len({rollout.task_id for rollout in rollouts_of(import_these(*files))}) == 2


def test_verifiers_say_something_else_about_each_attempt_at_a_task():
    """Restored from rollouts alone, a task has the fields of a verifier that GymWeb does not know."""
    imported = import_these(as_file(*(done(repeat=place, judge_says=place) for place in (0, 1))))
    assert [(each.task.index, each.trace()[-1].details) for each in rollouts_of(imported)] == [
        (0, {}),
        (0, {"judge_says": 1}),
    ]


def test_a_game_begins_otherwise_at_each_attempt():
    """A Gymnasium server adds its first observation to the prompt of each rollout."""
    rows = [done(repeat=repeat, terminated=True, truncated=False) for repeat in (0, 1)]
    for row, hand in zip(rows, ("Your hand: 13", "Your hand: 20"), strict=True):
        row["responses_create_params"]["input"].append({"role": "user", "content": hand})
    imported = import_these(as_file(*rows))
    assert {(each.task.index, each.repeat) for each in rollouts_of(imported)} == {(0, 0), (0, 1)}
    few_shots = [{**row, "terminated": None} for row in rows]
    for row in few_shots:
        del row["terminated"]
    with pytest.raises(ImportRefused, match="another prompt"):
        import_these(as_file(*few_shots))


def test_agents_that_store_steps_are_matched_like_others():
    """Aviary's agents ask in their first step, so all prompts are empty."""
    rows = []
    for number, seed in enumerate((5, 7)):
        row = done(task=number, seed=seed)
        row["responses_create_params"]["input"] = []
        asked = {"type": "message", "role": "user", "content": f"Game {seed}"}
        row["response"]["output"] = [[asked, said("left")], [asked, said("left"), said("right")]]
        rows.append(row)
    tasks = [{"responses_create_params": {"input": []}, "seed": seed, "expected_answer": str(seed)} for seed in (7, 5)]
    assert answers(import_these(as_file(*rows), as_tasks(*tasks))) == ["5", "7"]
    with pytest.raises(ImportRefused, match="the number 0 belongs to a task with another value in seed"):
        import_these(as_file(*rows), as_inputs(*tasks))


# -- other formats, which have no numbers


def test_attempts_with_other_answers_are_of_other_tasks():
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    logs = [{"messages": messages, "expected_answer": answer, "reward": 1} for answer in ("4", "5", "4")]
    assert answers(import_these(as_file(*logs))) == ["4", "5", "4"]
    result = {"example_id": 0, "prompt": messages[:1], "completion": messages[1:], "reward": 1.0}
    assert answers(import_these(as_file({**result, "answer": "4"}, {**result, "answer": "5"}))) == ["4", "5"]


def test_a_chat_log_finds_its_task_whatever_the_id_of_the_conversation():
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "ash"}]
    rows = as_tasks({**TASKS[0], "id": "t-1"})
    assert answers(import_these(as_file({"messages": messages, "id": "chat-9", "reward": 1}), rows)) == ["ash"]


# -- ids of stored tasks


def test_a_position_is_no_id():
    """Else a merge would put the row that moved up in the place of the deleted one."""
    assert parse_line(dump_json(asking(_ng_task_index=3)).encode()).external_id == ""
    given = {"task_id": {"taskset": "t", "task_id": "0"}, "task_input": {**asking(), "task_data": {"hint": 1}}}
    parsed = parse_line(dump_json(given).encode())
    assert (parsed.external_id, parsed.row["_ng_task_id"]) == ("", given["task_id"])
    given["task_input"]["instance_id"] = "0"
    assert parse_line(dump_json(given).encode()).external_id == "t/0"


def test_tasks_of_two_tasksets_with_one_id_stay_apart():
    dataset = make_dataset(rows=[])
    rows = [{"task_id": {"taskset": name, "task_id": "w-1"}, "task_input": asking(name)} for name in ("a", "b")]
    upload = upload_file(dataset=dataset, stream=as_file(*rows).stream, filename="tasks.jsonl")
    assert [task.external_id for task in upload.version.tasks.order_by("index")] == ["a/w-1", "b/w-1"]
    run = [done(name, task=number, _ng_task_id=rows[number]["task_id"]) for number, name in enumerate("ab")]
    imported = import_these(as_file(*reversed(run)), as_tasks(*rows))
    assert [text_of(each.trace()[1].items[0]) for each in rollouts_of(imported)] == ["b", "a"]
    assert [each.task.external_id for each in rollouts_of(imported)] == ["b/w-1", "a/w-1"]


def test_a_field_with_two_values_in_a_materialised_task_is_refused():
    given = {"task_id": {"taskset": "t", "task_id": "a"}, "task_input": {**asking(hint=1), "task_data": {"hint": 2}}}
    with pytest.raises(RowRefused, match="/task_input/task_data/hint must equal the value outside"):
        parse_line(dump_json(given).encode())
