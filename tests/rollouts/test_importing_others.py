"""Rollouts that others stored: results of verifiers, chat logs, and the failures that NeMo Gym keeps beside them."""

from io import BytesIO

import orjson
import pytest

from apps.gym.traces.events import EnvironmentTurn, ErrorRaised, ModelCall, Prompt, ToolResult, Verification
from apps.gym.traces.items import text_of
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.imports.task_matching import File, ImportRefused
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.reverification.reverification_jobs import apply_reverification, queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.tasks.upload_jobs import upload_file
from tests.factories import make_agent, make_dataset, make_environment, make_user
from tests.rollouts.finished import finish_reverification
from tests.rollouts.stored import as_file, stored_row

pytestmark = pytest.mark.django_db

QUESTION = [{"role": "system", "content": "Use the tools."}, {"role": "user", "content": "What is 2 + 2?"}]
TOOL = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {}, "b": {}}}}
CALL = {"id": "call_7", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}


def import_these(*files, dataset=None, **given):
    return import_rollouts(
        ImportOrder(dataset=dataset or make_dataset(rows=[]), agent=make_agent(), **given), files=list(files)
    )


def rollouts_of(imported):
    return list(Rollout.objects.filter(collection=imported.collection).select_related("task").order_by("pk"))


def result(example=0, answer="4", reward=1.0, **fields):
    """A line of results.jsonl, as verifiers writes it: tool calls are text that holds JSON."""
    flat = orjson.dumps({"id": "call_7", "name": "add", "arguments": '{"a": 2, "b": 2}'}).decode()
    return {
        "example_id": example,
        "prompt": QUESTION,
        "completion": [
            {"role": "assistant", "content": "I add.", "tool_calls": [flat], "reasoning_content": "2 and 2"},
            {"role": "tool", "tool_call_id": "call_7", "content": "4"},
            {"role": "assistant", "content": answer},
        ],
        "answer": "4",
        "info": {"level": "easy"},
        "task": "sums",
        "reward": reward,
        "error": None,
        "timing": {"start_time": 1.0, "total": 2.5},
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "no_tools_called",
        "metrics": {"correct": reward, "format": 0.5, "judged": None},
        "tool_defs": [TOOL],
        "token_usage": {"input_tokens": 30.0, "output_tokens": 12.0},
        "correct": reward,
        "format": 0.5,
        **fields,
    }


def log(*messages, **fields):
    return {"messages": [*QUESTION, *messages], **fields}


METADATA = {
    "env_id": "sums",
    "model": "small-model",
    "num_examples": 2,
    "rollouts_per_example": 2,
    "sampling_args": {"temperature": 1.0},
}


# -- verifiers


def test_a_result_of_verifiers_is_a_rollout_with_its_whole_trace():
    imported = import_these(as_file(result()), as_file(METADATA, name="metadata.json"))
    [rollout] = rollouts_of(imported)
    _, prompt, first, output, second, verified = rollout.trace()
    assert [item["role"] for item in prompt.items] == ["system", "user"]
    assert [item["type"] for item in first.items] == ["reasoning", "message", "function_call"]
    assert (first.items[2]["call_id"], first.items[2]["arguments"]) == ("call_7", '{"a": 2, "b": 2}')
    assert (output.name, output.call_id, output.output) == ("add", "call_7", "4")
    assert [text_of(item) for item in second.items] == ["4"]
    assert (verified.reward, verified.components) == (1.0, {"correct": 1.0, "format": 0.5})
    assert (rollout.reward, rollout.components, rollout.stop_reason) == (
        1.0,
        {"correct": 1.0, "format": 0.5},
        "answered",
    )
    assert (rollout.turns, rollout.tool_calls, rollout.input_tokens, rollout.output_tokens) == (2, 1, 30, 12)
    assert rollout.task.row == {
        "responses_create_params": {"input": prompt.items, "tools": [{"type": "function", **TOOL}]},
        "id": 0,
        "expected_answer": "4",
        "task": "sums",
        "info": {"level": "easy"},
    }
    assert imported.collection.policy_model.model_name == "small-model"


def test_the_results_of_one_example_are_one_group():
    rows = [result(0), result(1, reward=0.0), result(0, "5", 0.0), result(1)]
    imported = import_these(as_file(*rows))
    places = [(rollout.task.index, rollout.repeat, rollout.reward) for rollout in rollouts_of(imported)]
    assert places == [(0, 0, 1.0), (1, 0, 0.0), (0, 1, 0.0), (1, 1, 1.0)]
    assert (imported.collection.repeats, imported.collection.version.task_count) == (2, 2)


def test_a_result_that_ended_with_an_error_has_no_reward():
    wire = {"error": "ModelError", "message": "502", "error_chain_repr": "ModelError('502')", "error_chain_str": "M"}
    rows = [
        result(0, reward=0.0, error=wire),
        result(1, reward=0.0, error="SandboxError('gone')", completion=None),
        result(2, reward=0.0, error="TimeoutError()"),
    ]
    rollouts = rollouts_of(import_these(as_file(*rows)))
    assert [(each.status, each.error_kind, each.reward) for each in rollouts] == [
        ("failed", "policy_error", None),
        ("failed", "environment_error", None),
        ("failed", "timed_out", None),
    ]
    assert rollouts[0].trace()[-1] == ErrorRaised(kind="policy_error", message="model_error: 502")
    assert rollouts[1].error_message == "SandboxError: SandboxError('gone')"


STOPS = {
    "no_tools_called": "answered",
    "max_turns_reached": "max_steps",
    "prompt_too_long": "context_length",
    "max_total_completion_tokens_reached": "token_limit",
    "timeout_reached": "time_limit",
    "has_final_env_response": "environment_done",
    "of_its_own": "answered",
}


@pytest.mark.parametrize(("theirs", "ours"), STOPS.items())
def test_how_verifiers_ended_an_attempt_has_a_name_here(theirs, ours):
    [rollout] = rollouts_of(import_these(as_file(result(stop_condition=theirs))))
    assert (rollout.stop_reason, rollout.trace()[-1].details["stop_condition"]) == (ours, theirs)


def test_a_result_that_was_cut_says_so():
    [rollout] = rollouts_of(import_these(as_file(result(stop_condition=None, is_truncated=True))))
    assert rollout.stop_reason == "max_output_tokens"


def test_rows_of_older_data_sets_have_metrics_in_columns_and_tools_in_their_info():
    """As `make_dataset` of verifiers 0.1 saved them: no `metrics`, `info` perhaps as text, completions perhaps too."""
    nested = {"type": "function", "function": TOOL}
    row = {
        "id": 3,
        "prompt": "What is 2 + 2?",
        "completion": "4",
        "answer": "4",
        "task": "default",
        "reward": 0.75,
        "generation_ms": 12.5,
        "scoring_ms": 1.0,
        "total_ms": 13.5,
        "info": orjson.dumps({"oai_tools": [nested], "level": 1}).decode(),
        "exact": 0.5,
        "length_ok": 1,
    }
    [rollout] = rollouts_of(import_these(as_file(row)))
    assert (rollout.reward, rollout.components) == (0.75, {"exact": 0.5, "length_ok": 1.0})
    assert rollout.task.row["responses_create_params"] == {
        "input": [{"type": "message", "role": "user", "content": "What is 2 + 2?"}],
        "tools": [{"type": "function", **TOOL}],
    }
    assert (rollout.task.row["id"], rollout.task.row["info"]) == (3, {"level": 1})
    assert (rollout.turns, rollout.stop_reason) == (1, "answered")


def test_saved_columns_are_kept_as_verifier_details():
    rollout = rollouts_of(import_these(as_file(result(board=[[1, 2]], seed=7))))[0]
    details = rollout.trace()[-1].details
    assert details == {"stop_condition": "no_tools_called", "board": [[1, 2]], "seed": 7}
    assert {"board", "seed", "correct", "metrics", "timing"}.isdisjoint(rollout.task.row)


def test_imported_rollouts_can_be_reverified():
    """Their answer is our expected answer, so that an environment of ours scores the same attempt."""
    dataset = make_dataset(rows=[], environment=make_environment())
    imported = import_these(as_file(result(0), result(1, "5", 1.0)), dataset=dataset)
    done = finish_reverification(
        reverification=queue_reverification(ReverificationOrder(collection=imported.collection))
    )
    apply_reverification(reverification=done)
    finish_reverification(reverification=done)
    assert [rollout.reward for rollout in rollouts_of(imported)] == [1.0, 0.0]


# -- chat logs


def test_the_task_of_a_chat_log_ends_before_the_first_reply():
    row = log(
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_7", "content": "4"},
        {"role": "assistant", "content": "It is 4."},
        {"role": "user", "content": "Are you sure?"},
        {"role": "assistant", "content": "Yes."},
        tools=[{"type": "function", "function": TOOL}],
        reward=0.5,
        reward_components={"polite": 1},
        metadata={"customer": "c-1"},
        model="gpt-small",
        temperature=0.25,
        max_tokens=64,
        usage={"prompt_tokens": 9, "completion_tokens": 4},
    )
    [rollout] = rollouts_of(import_these(as_file(row)))
    events = rollout.trace()
    kinds = [Prompt, ModelCall, ToolResult, ModelCall, EnvironmentTurn, ModelCall, Verification]
    assert [type(event) for event in events[1:]] == kinds
    assert events[2].sampling == {"temperature": 0.25, "max_output_tokens": 64}
    assert (rollout.reward, rollout.components, rollout.model_version) == (0.5, {"polite": 1.0}, "gpt-small")
    assert (rollout.input_tokens, rollout.output_tokens, rollout.stop_reason) == (9, 4, "environment_done")
    assert rollout.task.row["metadata"] == {"customer": "c-1"}
    assert set(rollout.task.row["responses_create_params"]) == {"input", "tools"}


def test_logs_of_the_same_question_are_one_group_whatever_their_metadata():
    rows = [
        log({"role": "assistant", "content": "4"}, metadata={"turn": 1}, reward=1),
        log({"role": "assistant", "content": "5"}, metadata={"turn": 2}, reward=0),
        {"messages": [{"role": "user", "content": "Else?"}, {"role": "assistant", "content": "No."}]},
    ]
    rollouts = rollouts_of(import_these(as_file(*rows)))
    places = [(rollout.task.index, rollout.repeat, rollout.reward) for rollout in rollouts]
    assert places == [(0, 0, 1.0), (0, 1, 0.0), (1, 0, None)]
    assert rollouts[1].trace()[-1].details == {"metadata": {"turn": 2}}


def test_a_log_without_a_reward_is_left_to_people():
    [rollout] = rollouts_of(import_these(as_file(log({"role": "assistant", "content": "4"}))))
    assert (rollout.status, rollout.reward, rollout.trace()[-1].reward) == ("completed", None, None)


def test_replies_of_weight_zero_before_the_first_one_to_learn_from_are_the_prompt():
    shown = [{"role": "assistant", "content": "An example.", "weight": 0}, {"role": "user", "content": "Now you."}]
    [rollout] = rollouts_of(import_these(as_file(log(*shown, {"role": "assistant", "content": "4", "weight": 1}))))
    assert [item["role"] for item in rollout.trace()[1].items] == ["system", "user", "assistant", "user"]
    assert (rollout.turns, rollout.answer) == (1, "4")


def test_two_replies_one_after_the_other_are_two_turns_and_a_silent_one_is_one():
    row = log({"role": "assistant", "content": "Let me see."}, {"role": "assistant", "content": ""})
    [rollout] = rollouts_of(import_these(as_file(row)))
    assert (rollout.turns, rollout.stop_reason) == (2, "empty_reply")


def test_functions_of_the_older_format_become_tools():
    row = log(
        {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": '{"a": 2}'}},
        {"role": "function", "name": "add", "content": "4"},
        {"role": "assistant", "content": "4"},
        functions=[TOOL],
    )
    [rollout] = rollouts_of(import_these(as_file(row)))
    call, output = rollout.trace()[2].items[0], rollout.trace()[3]
    assert (call["name"], call["call_id"] == output.call_id, output.name, output.output) == ("add", True, "add", "4")
    assert rollout.task.row["responses_create_params"]["tools"] == [{"type": "function", **TOOL}]


# -- all of them


BAD = {
    "no shape": ({"text": "x"}, "unknown_shape", "this is not a stored rollout. Give responses_create_params"),
    "no completion": (result(completion=None), "missing", "/completion is missing. Give the reply"),
    "no prompt": (result(prompt=[]), "empty", "/prompt is empty. Give the prompt"),
    "no reward": (result(reward=None), "reward", "/reward must be a number from -1e+100 to 1e+100, not "),
    "a reward that is too large": (
        log({"role": "assistant", "content": "x"}, reward=1e308),
        "reward",
        "from -1e+100 to 1e+100, not 1e+308",
    ),
    "a metric that is too large": (
        result(metrics={"length": -1e101}),
        "reward",
        "/metrics/length must be a number from -1e+100 to 1e+100",
    ),
    "metrics": (result(metrics=[1]), "wrong_type", "/metrics must be an object of numbers"),
    "a call that is text": (
        result(completion=[{"role": "assistant", "tool_calls": ["{oops"]}]),
        "not_json",
        "/completion/0/tool_calls/0 is not JSON: a tool call",
    ),
    "nobody asked": ({"messages": [{"role": "assistant", "content": "x"}]}, "no_prompt", "/messages starts with"),
    "nobody answered": ({"messages": QUESTION}, "no_attempt", "Upload these rows as tasks"),
    "no messages": ({"messages": []}, "empty", "/messages is empty"),
    "messages as text": ({"messages": 7}, "wrong_type", "/messages must be a list of messages"),
    "a message as text": ({"messages": ["x"]}, "wrong_type", "/messages/0 must be a message"),
    "a role": (
        log({"role": "narrator", "content": "x"}),
        "unknown_role",
        "/messages/2/role is 'narrator': it must be one of system, developer, user, assistant, tool, function",
    ),
    "a content": (log({"role": "assistant", "content": 7}), "wrong_type", "/messages/2/content must be text or a list"),
    "an output of no call": (
        log({"role": "assistant", "content": "x"}, {"role": "tool", "content": "4"}),
        "missing",
        "/messages/3/tool_call_id is missing, and no call waits for an output: give the id of the call",
    ),
    "a tool": (log({"role": "assistant", "content": "x"}, tools=[7]), "wrong_type", "/tools/0 must be a function tool"),
    "a tool without a name": (
        log({"role": "assistant", "content": "x"}, tools=[{"type": "function", "function": {}}]),
        "missing",
        "/tools/0/name must be the tool's name",
    ),
    "a reward": (
        log({"role": "assistant", "content": "x"}, reward="good"),
        "reward",
        "/reward must be a number from -1e+100 to 1e+100, not ",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_told_with_its_code_and_what_would_be_right_and_nothing_is_stored(name):
    row, code, words = BAD[name]
    dataset = make_dataset(rows=[])
    before = dataset.versions.count()
    with pytest.raises(ImportRefused) as refused:
        import_these(as_file(result(), log({"role": "assistant", "content": "4"}), row), dataset=dataset)
    [error] = refused.value.errors
    assert (error.line, error.code) == (3, code)
    assert words in error.message
    assert str(error) == f"rollouts.jsonl, line 3: {error.message} ({code})"
    assert (Collection.objects.count(), Rollout.objects.count(), dataset.versions.count()) == (0, 0, before)


def test_a_format_that_is_named_is_the_only_one_that_is_read():
    with pytest.raises(ImportRefused, match="/messages must be a list of messages"):
        import_these(as_file(result()), format="openai_chat")
    with pytest.raises(ImportRefused, match="/prompt must be a list of messages"):
        import_these(as_file(log({"role": "assistant", "content": "4"})), format="verifiers")
    with pytest.raises(ImportRefused, match="/responses_create_params is missing"):
        import_these(as_file(result()), format="nemo_gym")
    both = result() | {"messages": [*QUESTION, {"role": "assistant", "content": "of the log"}]}
    assert rollouts_of(import_these(as_file(both)))[0].answer == "4"
    assert rollouts_of(import_these(as_file(both), format="openai_chat"))[0].answer == "of the log"


def test_files_of_several_kinds_are_one_collection():
    imported = import_these(
        as_file(stored_row("a")), as_file(result()), as_file(log({"role": "assistant", "content": "4"}, reward=1))
    )
    assert [rollout.reward for rollout in rollouts_of(imported)] == [1.0, 1.0, 1.0]


def test_pages_of_imported_rollouts_open(client):
    imported = import_these(
        as_file(result(), result(1, error="SandboxError('gone')"), log({"role": "assistant", "content": "4"}))
    )
    client.force_login(make_user())
    for rollout in rollouts_of(imported):
        assert client.get(f"/rollouts/{rollout.pk}/").status_code == 200
    assert client.get(f"/collections/{imported.collection.pk}/").status_code == 200


# -- failures of NeMo Gym beside its rollouts


def test_a_failure_that_was_attempted_again_is_left_out():
    """NeMo Gym writes one row an attempt into `_failures`; what came of the rollout in the end stands elsewhere."""
    at = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    broken = {"responses_create_params": stored_row()["responses_create_params"], "_ng_failure_class": "agent_failed"}
    lost = broken | {"_ng_task_index": 0, "_ng_rollout_index": 1}
    imported = import_these(
        as_file(broken | at, broken | at, lost, lost | {"_ng_failure_class": "judge_failed"}, name="failures.jsonl"),
        as_file(stored_row(**at)),
    )
    ends = {(each.repeat, each.status, each.error_kind, each.reward) for each in rollouts_of(imported)}
    assert ends == {(0, "completed", "", 1.0), (1, "failed", "judge_error", None)}
    assert (imported.superseded, imported.collection.total, imported.collection.failed) == (3, 2, 1)


def test_a_failure_after_its_rollout_changes_nothing():
    at = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    broken = {"responses_create_params": stored_row()["responses_create_params"], "_ng_failure_class": "agent_failed"}
    imported = import_these(as_file(stored_row(**at)), as_file(broken | at, name="failures.jsonl"))
    assert [(each.status, each.reward) for each in rollouts_of(imported)] == [("completed", 1.0)]
    assert imported.superseded == 1


def test_tasks_of_one_id_stay_apart():
    rows = [stored_row("a", id="same"), stored_row("b", id="same"), stored_row("a", id="same", reward=0.0)]
    imported = import_these(as_file(*rows))
    assert [text_of(each.trace()[1].items[0]) for each in rollouts_of(imported)] == ["a", "b", "a"]
    assert [each.task.row["responses_create_params"]["input"][0]["content"] for each in rollouts_of(imported)] == [
        "a",
        "b",
        "a",
    ]


# -- files of NeMo Gym 0.7.0

MATERIALISED = {
    "_ng_task_index": 3,
    "_ng_rollout_index": 0,
    "agent_ref": {"name": "agent"},
    "responses_create_params": {"input": [{"role": "user", "content": "What is 2 + 2?"}]},
    "expected_answer": "4",
}
FAILURE = {
    "_ng_failure_class": "agent_run_error",
    "_ng_failure_message": "500",
    "_ng_task_index": 3,
    "_ng_rollout_index": 0,
    "agent_ref": {"name": "agent"},
}


def test_a_failure_without_its_task_gets_the_materialised_one():
    inputs = as_file(MATERIALISED, name="rollouts_materialized_inputs.jsonl")
    [rollout] = rollouts_of(import_these(as_file(FAILURE, name="rollouts_failures.jsonl"), inputs))
    assert (rollout.status, rollout.reward, rollout.error_message) == ("failed", None, "agent_run_error: 500")
    assert rollout.task.row["expected_answer"] == "4"
    assert [text_of(item) for item in rollout.trace()[1].items] == ["What is 2 + 2?"]


def test_a_failure_whose_task_no_file_has_is_refused_with_the_remedy():
    with pytest.raises(ImportRefused, match=r"number of its task \(3\)\. Add the file …_materialized_inputs\.jsonl"):
        import_these(as_file(FAILURE, name="rollouts_failures.jsonl"))


def test_a_rollout_never_gets_the_task_of_another_prompt():
    """The materialised inputs were written again with other rows in these places."""
    inputs = as_file(MATERIALISED, name="rollouts_materialized_inputs.jsonl")
    other = stored_row("Name a colour.", _ng_task_index=3, _ng_rollout_index=0)
    with pytest.raises(ImportRefused, match="the number 3 belongs to a task with another prompt"):
        import_these(as_file(other), inputs)


def test_two_materialised_tasks_of_one_number_are_refused():
    other = MATERIALISED | {"responses_create_params": stored_row("Name a colour.")["responses_create_params"]}
    inputs = as_file(MATERIALISED, other | {"_ng_rollout_index": 1}, name="rollouts_materialized_inputs.jsonl")
    with pytest.raises(ImportRefused, match="line 2: /_ng_task_index the number 3 belongs to a task with another"):
        import_these(as_file(FAILURE, name="rollouts_failures.jsonl"), inputs)


@pytest.mark.parametrize("nested", [True, False], ids=["for a typed environment server", "from a flat row"])
def test_a_task_with_identity_and_input_is_its_flat_row(nested):
    data = {"expected_answer": "4", "seed": 9007199254740993}
    params = {"responses_create_params": MATERIALISED["responses_create_params"]}
    task_input = {**params, "task_data": data} if nested else {**params, **data}
    given = {"task_id": {"taskset": "sums", "task_id": "t-7"}, "task_input": task_input}
    wanted = {"taskset": "sums", "task_id": "t-7", **params, **data}
    upload = upload_file(dataset=make_dataset(rows=[]), stream=as_file(given).stream, filename="tasks.jsonl")
    [task] = upload.version.tasks.all()
    assert (task.row, task.external_id) == (wanted, "sums/t-7")
    numbers = {"_ng_task_index": 3, "_ng_rollout_index": 0}
    [rollout] = rollouts_of(import_these(as_file(FAILURE), as_file(given | numbers, name="inputs.jsonl")))
    assert rollout.task.row == wanted


def test_the_steps_of_an_aviary_agent_are_one_conversation():
    asked = {"type": "message", "role": "user", "content": "What is 2 + 2?"}
    call = {"type": "function_call", "name": "add", "call_id": "c", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "4"}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "4", "annotations": []}],
    }
    first, second = [asked, call, result], [asked, call, result, said]
    row = stored_row()
    row["responses_create_params"]["input"] = []
    row["response"]["output"] = [first, second]
    [rollout] = rollouts_of(import_these(as_file(row)))
    assert (rollout.answer, rollout.turns) == ("4", 2)
    row["response"]["output"] = [first, second[1:]]
    with pytest.raises(ImportRefused, match="/response/output/1 must continue /response/output/0"):
        import_these(as_file(row))


@pytest.mark.parametrize("option", [orjson.OPT_INDENT_2, 0], ids=["aggregate metrics", "metrics of repeats"])
def test_metrics_of_nemo_gym_are_refused_once_with_what_to_do(option):
    metrics = [{"agent_metrics": {}, "repeat_level_metrics": [{"sample_count": 1}], "perf_summary": None}]
    given = File("rollouts_aggregate_metrics.json", BytesIO(orjson.dumps(metrics, option=option)))
    with pytest.raises(ImportRefused) as refused:
        import_these(as_file(stored_row()), given)
    [error] = refused.value.errors
    assert (error.file, error.line, error.code) == ("rollouts_aggregate_metrics.json", 1, "json_list")
    assert "repeat_level_metrics, perf_summary" in error.message


def test_measurements_of_nemo_gym_stay_with_the_rollout():
    [rollout] = rollouts_of(import_these(as_file(stored_row(ng_perf={"total_latency_ms": 5}))))
    assert rollout.trace()[0].original["row"]["ng_perf"] == {"total_latency_ms": 5}
    assert "ng_perf" not in rollout.task.row
