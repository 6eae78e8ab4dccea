"""Every format, with every choice that it has, on attempts of every shape: its rows are what its loader demands."""

import json
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from apps.gym.exporters.protocol import NUMBERS, Format, OptionRefused, Options, resolve_options
from apps.gym.exporters.registry import FORMATS, FormatUnknown, find_format
from apps.gym.traces.events import ModelCall
from apps.gym.traces.messages import completion_messages, prompt_messages
from apps.gym.trainability import Dropped
from tests.gym.exporters.attempts import attempt, paris, preference, task
from tests.gym.exporters.generated import as_json, attempts
from tests.gym.exporters.validators import CHECKS, FORBIDDEN_COLUMNS, fits_feature
from tests.gym.traces import call, nulls, said, thought, trace, turn, with_tokens

COLUMNS = {"rollout_id": 7, "collection_id": 2, "dataset": "weather@v1", "task_id": 3, "task_index": 0}
PAIR_COLUMNS = {
    "pair_id": 4,
    "chosen_rollout_id": 7,
    "rejected_rollout_id": 8,
    **{name: COLUMNS[name] for name in ("collection_id", "dataset", "task_id", "task_index")},
}
unhurried = settings(max_examples=40)
MADE_OF_ATTEMPTS = [
    slug for slug, format in FORMATS.items() if format.row_kind in {"demonstrations", "labels", "scored"}
]
MADE_OF_PAIRS = [slug for slug, format in FORMATS.items() if format.row_kind == "preferences"]
MADE_OF_TASKS = [slug for slug, format in FORMATS.items() if format.row_kind == "tasks"]


def all_options(format: Format) -> list[Options]:
    """Every combination of choices that is not refused."""
    names = [name for name in format.choices if name not in NUMBERS]
    found = []
    for values in product(*(format.choices[name] for name in names)):
        try:
            found.append(resolve_options(format, dict(zip(names, values, strict=True))))
        except OptionRefused:
            continue
    return found


def check_row(format: Format, row: dict[str, Any], options: Options) -> None:
    features = format.features(options)
    if features:
        assert set(row) <= set(features)
        assert {name: row[name] for name in row if not fits_feature(row[name], features[name])} == {}
    assert not FORBIDDEN_COLUMNS & set(row)
    if format.slug in CHECKS:
        CHECKS[format.slug](as_json(row), options)


def without_arguments(row: Any) -> Any:
    """The row without what a model wrote as arguments, which may hold nulls of its own."""
    if isinstance(row, dict):
        return {key: without_arguments(value) for key, value in row.items() if key != "arguments"}
    return [without_arguments(one) for one in row] if isinstance(row, list) else row


@pytest.mark.parametrize("slug", MADE_OF_ATTEMPTS)
@unhurried
@given(data=st.data())
def test_rows_of_attempts_are_what_the_loader_demands(slug, data):
    format = FORMATS[slug]
    options = data.draw(st.sampled_from(all_options(format)))
    events = data.draw(attempts(malformed=options.malformed == "text", tokens=True))
    try:
        rows = list(format.rows(attempt(events, columns=COLUMNS, reward=0.25), options))
    except Dropped as why:
        of_family = {"parallel_calls", "text_beside_call", "reasoning_as_answer"} if options.family != "qwen" else set()
        assert why.reason in {"turns_do_not_alternate", "malformed_arguments", "inexact_numbers", *of_family}
        assert why.reason != "inexact_numbers" or options.numbers == "exact"
        assert why.reason != "turns_do_not_alternate" or format.trainer == "LLaMA-Factory"
        return
    assert rows
    for row in rows:
        check_row(format, row, options)
        # A Responses object has nulls by its own schema; no trainer's columns may.
        assert slug == "nemo_gym_rollouts" or nulls(without_arguments(row)) == []


@pytest.mark.parametrize("slug", MADE_OF_PAIRS)
@unhurried
@given(data=st.data())
def test_rows_of_pairs_are_what_the_loader_demands(slug, data):
    format = FORMATS[slug]
    options = data.draw(st.sampled_from(all_options(format)))
    good, bad = data.draw(attempts()), data.draw(attempts())
    bad[0], bad[1] = good[0], good[1]
    pair = preference(good, bad)
    pair.columns.update(PAIR_COLUMNS)
    try:
        rows = list(format.rows(pair, options))
    except Dropped:
        assume(False)
    for row in rows:
        check_row(format, row, options)


@pytest.mark.parametrize("slug", MADE_OF_TASKS)
def test_rows_of_tasks_have_the_columns_of_their_card(slug):
    format = FORMATS[slug]
    [row] = format.rows(task(), resolve_options(format, {}))
    check_row(format, row, Options())
    assert nulls(row) == []


def test_every_format_is_checked_by_a_validator_or_has_rows_of_nemo_gym():
    assert set(FORMATS) - set(CHECKS) == {*MADE_OF_TASKS, "nemo_gym_rollouts", "nemo_gym_inputs"}


@pytest.mark.parametrize("slug", FORMATS)
def test_the_defaults_of_a_format_are_not_refused_and_each_refusal_says_why(slug):
    format = FORMATS[slug]
    resolve_options(format, {})
    assert not {(name, value) for name, values in format.choices.items() for value in values} & set(format.refused)
    for (name, value), reason in format.refused.items():
        with pytest.raises(OptionRefused) as refusal:
            resolve_options(format, {name: value})
        assert str(refusal.value) == reason
        assert refusal.value.option == name
        assert reason.endswith(".")


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(FormatUnknown, match=r"format sft.* trl_sft, "):
        find_format("sft")


@pytest.mark.parametrize(
    ("slug", "given", "message"),
    [
        ("trl_sft", {"level": "step"}, "no option level.* reasoning, arguments,"),
        (
            "trl_sft",
            {"reasoning": "hidden"},
            "reasoning of .*: field, inline, dropped",
        ),
        ("trl_sft", {"reasoning": ["field"]}, "reasoning of .*: field, inline, dropped"),
        ("trl_sft", {"malformed": "text"}, "Malformed arguments can only be kept as text"),
        ("trl_kto", {"good_from": float("nan")}, "good_from must be"),
        ("trl_kto", {"good_from": True}, "good_from must be"),
        ("trl_grpo", {"tools": "column"}, "no option tools.* opening"),
        ("nemo_gym_inputs", {"tools": "column"}, "no option tools.* none"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(slug, given, message):
    with pytest.raises(OptionRefused, match=message):
        resolve_options(find_format(slug), given)


@unhurried
@given(attempts())
def test_texts_are_in_the_file_byte_for_byte(events):
    [row] = FORMATS["trl_sft"].rows(attempt(events), Options())
    assert as_json(row)["messages"] == [*prompt_messages(events), *completion_messages(events)]


@unhurried
@given(attempts())
def test_turns_by_turn_are_the_whole_conversation_cut_where_the_model_spoke(events):
    rows = list(FORMATS["trl_sft_turns"].rows(attempt(events), Options()))
    [whole] = FORMATS["trl_sft"].rows(attempt(events), Options())
    assert [*rows[-1]["prompt"], *rows[-1]["completion"]] == whole["messages"]
    assert [row["completion"][0] for row in rows] == [
        one for one in completion_messages(events) if one["role"] == "assistant"
    ]


def test_arguments_as_text_are_exactly_the_models():
    odd = '{ "city":"Paris",  "unit": "celsius" }'
    [row] = FORMATS["openai_sft"].rows(attempt(paris(arguments=odd)), resolve_options(FORMATS["openai_sft"], {}))
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == odd


@pytest.mark.parametrize("arguments", ["{oops", "[1]", '{"a": Infinity}'])
def test_malformed_arguments_drop_the_row_or_stay_as_text_where_asked(arguments):
    events = trace(turn(call(arguments)), turn(said("22")))
    format = FORMATS["openai_sft"]
    with pytest.raises(Dropped, match="malformed_arguments"):
        list(format.rows(attempt(events), resolve_options(format, {})))
    [row] = format.rows(attempt(events), resolve_options(format, {"malformed": "text"}))
    assert row["messages"][1]["tool_calls"][0]["function"]["arguments"] == arguments


def test_reasoning_is_in_its_field_inline_or_left_out():
    said_last = []
    for reasoning in ("field", "inline", "dropped"):
        options = resolve_options(FORMATS["trl_sft"], {"reasoning": reasoning})
        [row] = FORMATS["trl_sft"].rows(attempt(), options)
        said_last.append(row["messages"][-1])
    answer = "It is 22 °C and sunny in Paris."
    assert said_last == [
        {"role": "assistant", "content": answer, "reasoning_content": "The tool says 22."},
        {"role": "assistant", "content": f"<think>\nThe tool says 22.\n</think>\n\n{answer}"},
        {"role": "assistant", "content": answer},
    ]


@pytest.mark.parametrize(("reward", "label"), [(0.25, True), (0.249, False)])
def test_a_reward_of_the_threshold_is_labelled_good(reward, label):
    format = FORMATS["trl_kto"]
    [row] = format.rows(attempt(reward=reward), resolve_options(format, {"good_from": 0.25}))
    assert row["label"] is label


@pytest.mark.parametrize(("asked", "said"), [(False, False), (True, True), (None, True)])
def test_parallel_calls_are_allowed_unless_the_task_says_otherwise(asked, said):
    made = attempt()
    made.task["responses_create_params"]["parallel_tool_calls"] = asked
    [row] = FORMATS["openai_sft"].rows(made, resolve_options(FORMATS["openai_sft"], {}))
    assert row["parallel_tool_calls"] is said


def test_tools_in_the_system_message_equal_the_column():
    column, system = (
        next(iter(FORMATS["trl_sft"].rows(attempt(), resolve_options(FORMATS["trl_sft"], {"tools": tools}))))
        for tools in ("column", "system")
    )
    assert "tools" not in system
    text = system["messages"][0]["content"]
    assert text.startswith("You are a helpful assistant.\n\n# Tools\n\n")
    between = text.partition("<tools>\n")[2].partition("\n</tools>")[0]
    assert [json.loads(line) for line in between.splitlines()] == column["tools"]
    assert system["messages"][1:] == column["messages"][1:]


def test_token_rows_train_where_the_model_sampled():
    events = with_tokens(paris(), ([1, 2, 3], [4, 5]), ([1, 2, 3, 4, 5, 6], [7]))
    [row] = FORMATS["trl_sft_tokens"].rows(attempt(events), Options())
    assert (row["input_ids"], row["labels"]) == ([1, 2, 3, 4, 5, 6, 7], [-100, -100, -100, 4, 5, -100, 7])


def test_a_break_in_the_tokens_begins_another_row():
    events = with_tokens(paris(), ([1, 2, 3], [4, 5]), ([1, 2, 9], [7]))
    rows = list(FORMATS["trl_sft_tokens"].rows(attempt(events), Options()))
    assert [(row["segment"], row["input_ids"], row["labels"]) for row in rows] == [
        (0, [1, 2, 3, 4, 5], [-100, -100, -100, 4, 5]),
        (1, [1, 2, 9, 7], [-100, -100, -100, 7]),
    ]


def test_without_captured_tokens_there_are_no_token_rows():
    with pytest.raises(Dropped, match="tokens_not_captured"):
        list(FORMATS["trl_sft_tokens"].rows(attempt(), Options()))


@pytest.mark.parametrize("captured", [(([1, 2], [3, 4]), None), (None, ([1, 2, 3, 4], [5]))])
def test_half_of_the_tokens_of_an_attempt_are_no_demonstration_and_counted_where_all_is_kept(captured):
    events = with_tokens(paris(), *captured)
    with pytest.raises(Dropped, match="tokens_partly_captured"):
        list(FORMATS["trl_sft_tokens"].rows(attempt(events), Options()))
    [row] = scored(events)
    assert (row["calls"], row["captured_calls"]) == (2, 1)


def test_a_reply_that_said_nothing_has_no_tokens_to_miss():
    events = with_tokens(trace(turn(), turn(said("22"))), None, ([1, 2], [3]))
    [row] = FORMATS["trl_sft_tokens"].rows(attempt(events), Options())
    assert row["input_ids"] == [1, 2, 3]


def scored(events, **given):
    format = FORMATS["scored_rollouts"]
    return list(format.rows(attempt(events, model_version="v1"), resolve_options(format, given)))


def constrained(events, *grammar):
    """Return the trace in which these calls used a grammar, at temperature 0.7."""
    given = iter(grammar)
    return [
        msgspec.structs.replace(event, grammar=next(given), sampling={"temperature": 0.7})
        if isinstance(event, ModelCall)
        else event
        for event in events
    ]


CAPTURED = ([1, 2, 3], [4, 5]), ([1, 2, 3, 4, 5, 6], [7])


@pytest.mark.parametrize(
    ("grammar_calls", "labels"),
    [("mask", [-100, -100, -100, -100, -100, -100, 7]), ("keep", [-100, -100, -100, 4, 5, -100, 7])],
)
def test_token_rows_mask_or_keep_calls_with_a_grammar(grammar_calls, labels):
    format = FORMATS["trl_sft_tokens"]
    events = constrained(with_tokens(paris(), *CAPTURED), True, False)
    options = resolve_options(format, {"grammar_calls": grammar_calls})
    [row] = format.rows(attempt(events, logprob_mode="processed_logprobs"), options)
    assert (row["labels"], row["temperature"], row["logprob_mode"]) == (labels, 0.7, "processed_logprobs")


@pytest.mark.parametrize("slug", ["trl_sft_tokens", "scored_rollouts", "nemo_gym_rollouts"])
def test_rollouts_with_a_grammar_are_dropped_on_request(slug):
    format = FORMATS[slug]
    options = resolve_options(format, {"grammar_calls": "drop"})
    free, forced = (
        constrained(with_tokens(paris(), *CAPTURED), *grammar) for grammar in [(False, False), (False, True)]
    )
    assert len(list(format.rows(attempt(free), options))) == 1
    with pytest.raises(Dropped, match="grammar_calls"):
        list(format.rows(attempt(forced), options))


def test_a_token_row_without_a_token_to_train_on_is_left_out():
    events = constrained(with_tokens(paris(), ([1, 2, 3], [4, 5]), ([1, 2, 9], [7])), True, False)
    [row] = FORMATS["trl_sft_tokens"].rows(attempt(events), Options())
    assert (row["segment"], row["labels"]) == (0, [-100, -100, -100, 7])
    assert list(FORMATS["trl_sft_tokens"].rows(attempt(constrained(events, True, True)), Options())) == []


def test_scored_rows_mask_calls_with_a_grammar_and_mark_them():
    [row] = scored(constrained(with_tokens(paris(), *CAPTURED), False, True))
    assert (row["loss_mask"], row["logprobs"]) == ([0, 0, 0, 1, 1, 0, 0], [0.0, 0.0, 0.0, -0.5, -0.5, 0.0, 0.0])
    assert [(one.get("grammar"), one["temperature"]) for one in row["sampled"]] == [(None, 0.7), (True, 0.7)]
    assert row["temperature"] == 0.7


def test_a_row_whose_requests_set_no_temperature_has_none():
    [row] = scored(with_tokens(paris(), *CAPTURED))
    assert "temperature" not in row
    assert row["logprob_mode"] == ""


def versioned(events, *versions):
    given = iter(versions)
    return [
        msgspec.structs.replace(event, version=next(given)) if isinstance(event, ModelCall) else event
        for event in events
    ]


def test_each_scored_row_tells_whose_weights_sampled_which_of_its_tokens():
    ways = {"one": ([1, 2, 3, 4, 5, 6], [7]), "two": ([1, 2, 9], [7])}
    told = {
        name: [
            (row["model_version"], [(one["call"], one["version"], one["start"], one["end"]) for one in row["sampled"]])
            for row in scored(versioned(with_tokens(paris(), ([1, 2, 3], [4, 5]), then), "v1", "v2"))
        ]
        for name, then in ways.items()
    }
    assert told == {
        "one": [("v1, v2", [(1, "v1", 3, 5), (2, "v2", 6, 7)])],
        "two": [("v1", [(1, "v1", 3, 5)]), ("v2", [(2, "v2", 3, 4)])],
    }


def test_a_scored_row_without_tokens_tells_every_version_and_one_without_any_that_of_its_rollout():
    assert [row["model_version"] for row in scored(versioned(paris(), "v1", "v2"))] == ["v1, v2"]
    assert [row["model_version"] for row in scored(paris())] == ["v1"]


@pytest.mark.parametrize(
    ("events", "completion"),
    [
        (trace(turn(call("{oops"))), [{"role": "assistant", "content": "", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{oops"}}
        ]}]),
        (trace(turn(thought("Hm, 2"))), [{"role": "assistant", "content": "", "reasoning_content": "Hm, 2"}]),
        (trace(turn()), []),
    ],
)  # fmt: skip
def test_what_went_wrong_is_scored_as_well(events, completion):
    assert [row["completion"] for row in scored(events)] == [completion]


def test_scored_arguments_as_objects_leave_malformed_ones_out():
    with pytest.raises(Dropped, match="malformed_arguments"):
        scored(trace(turn(call("{oops"))), arguments="object")
