"""Each shape of an uploaded file becomes exact task rows, with the detected mapping or a given one."""

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from apps.tasks.models import Upload
from apps.tasks.received_files import store_file
from apps.tasks.row_preview import preview_upload
from apps.tasks.upload_choices import ChoiceRefused, Choices
from apps.tasks.upload_jobs import upload_file
from tests.factories import make_dataset, make_environment, make_policy_model

pytestmark = pytest.mark.django_db

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 1}'}}
TOOL = {"name": "add", "description": "Add.", "parameters": {"type": "object"}}
FLAT = {"type": "function", **TOOL}
USER = {"role": "user", "content": "1 + 1?"}
ASKED = {"input": [USER]}
WITH_CALLS = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "assistant", "content": "It is 2."},
]


def jsonl(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(*rows: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), file)
    return file.getvalue()


def load(content: bytes, *, filename: str = "tasks.jsonl", **choices: Any) -> Upload:
    stream = io.BytesIO(content)
    return upload_file(dataset=make_dataset(rows=[]), stream=stream, filename=filename, choices=Choices(**choices))


def rows_of(upload: Upload) -> list[dict[str, Any]]:
    assert upload.version is not None, upload.message
    return [task.row for task in upload.version.tasks.order_by("index")]


SHAPES: dict[str, tuple[str, str, bytes, dict[str, Any]]] = {
    "NeMo Gym rows": (
        "nemo_gym",
        "a.jsonl",
        jsonl({"responses_create_params": ASKED, "verifier_metadata": {"k": None}, "id": 7}),
        {"responses_create_params": ASKED, "verifier_metadata": {"k": None}, "id": 7},
    ),
    "question and answer": (
        "prompt_answer",
        "a.jsonl",
        jsonl({"question": "1 + 1?", "answer": "2", "level": 3}),
        {"responses_create_params": ASKED, "expected_answer": "2", "level": 3},
    ),
    "CSV": (
        "prompt_answer",
        "a.csv",
        b"question,answer,level\n1 + 1?,2,3\n",
        {"responses_create_params": ASKED, "expected_answer": "2", "level": "3"},
    ),
    "a JSON array": (
        "prompt_answer",
        "a.json",
        json.dumps([{"question": "1 + 1?", "answer": "2"}]).encode(),
        {"responses_create_params": ASKED, "expected_answer": "2"},
    ),
    "GSM8K": (
        "prompt_answer",
        "a.jsonl",
        jsonl({"question": "1 + 1?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"}),
        {"responses_create_params": ASKED, "answer": "1 + 1 = <<1+1=2>>2\n#### 2", "expected_answer": "2"},
    ),
    "Alpaca": (
        "prompt_answer",
        "a.jsonl",
        jsonl({"instruction": "Add.", "input": "1 and 1", "output": "2"}),
        {
            "responses_create_params": {"input": [{"role": "user", "content": "Add.\n\n1 and 1"}]},
            "expected_answer": "2",
        },
    ),
    "verl in Parquet": (
        "verl",
        "a.parquet",
        parquet(
            {
                "data_source": "sums",
                "prompt": [USER],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": "2"},
                "extra_info": {"split": "train", "index": 7},
            }
        ),
        {
            "responses_create_params": ASKED,
            "data_source": "sums",
            "reward_model": {"style": "rule", "ground_truth": "2"},
            "extra_info": {"split": "train", "index": 7},
            "expected_answer": "2",
            "id": "sums/train/7",
            "split": "train",
            "tags": ["math"],
        },
    ),
    "OpenAI messages": (
        "messages",
        "a.jsonl",
        jsonl({"messages": [USER, {"role": "assistant", "content": "2"}]}),
        {"responses_create_params": ASKED, "expected_answer": "2"},
    ),
    "a demonstration with tools": (
        "messages",
        "a.jsonl",
        jsonl({"messages": WITH_CALLS, "tools": [{"type": "function", "function": TOOL}]}),
        {"responses_create_params": {**ASKED, "tools": [FLAT]}, "expected_answer": "It is 2."},
    ),
    "a column of conversations": (
        "messages",
        "a.jsonl",
        jsonl({"conversation": [{"role": "system", "content": "Add."}, USER, {"role": "assistant", "content": "2"}]}),
        {
            "responses_create_params": {"input": [{"role": "system", "content": "Add."}, USER]},
            "expected_answer": "2",
        },
    ),
    "ShareGPT": (
        "sharegpt",
        "a.jsonl",
        jsonl(
            {"conversations": [{"from": "human", "value": "1 + 1?"}, {"from": "gpt", "value": "2"}], "system": "Add."}
        ),
        {
            "responses_create_params": {"input": [{"role": "system", "content": "Add."}, USER]},
            "expected_answer": "2",
        },
    ),
    "ShareGPT with tools, as LLaMA-Factory writes it": (
        "sharegpt",
        "a.jsonl",
        jsonl(
            {
                "conversations": [
                    {"from": "human", "value": "1 + 1?"},
                    {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 1, "b": 1}}'},
                    {"from": "observation", "value": "2"},
                    {"from": "gpt", "value": "It is 2."},
                ],
                "tools": json.dumps([TOOL]),
            }
        ),
        {"responses_create_params": {**ASKED, "tools": [FLAT]}, "expected_answer": "It is 2."},
    ),
    "tau2": (
        "tau2",
        "a.jsonl",
        jsonl(
            {"id": "7", "user_scenario": {"instructions": "Renew."}, "evaluation_criteria": {}, "policy": "Be polite."}
        ),
        {
            "responses_create_params": {
                "input": [{"role": "system", "content": "Be polite."}, {"role": "user", "content": "Hello."}]
            },
            "id": "7",
            "user_scenario": {"instructions": "Renew."},
            "evaluation_criteria": {},
        },
    ),
    "prompt and completion of TRL": (
        "prompt_answer",
        "a.jsonl",
        jsonl({"prompt": [USER], "completion": [{"role": "assistant", "content": "2"}]}),
        {"responses_create_params": ASKED, "expected_answer": "2"},
    ),
}


@pytest.mark.parametrize(("shape", "filename", "content", "row"), SHAPES.values(), ids=SHAPES)
def test_a_shape_becomes_exact_task_rows(shape, filename, content, row):
    upload = load(content, filename=filename)
    assert (upload.shape, rows_of(upload)) == (shape, [row])


@pytest.mark.parametrize(
    ("basis", "judged", "loaded"), [("DB", False, 1), ("NL_ASSERTION", False, 0), ("NL_ASSERTION", True, 1)]
)
def test_a_task_that_needs_a_judge_is_rejected_without_one(basis, judged, loaded):
    environment = make_environment(builtin="simulated_user", judge_model=make_policy_model() if judged else None)
    row = {"user_scenario": {"instructions": "Renew."}, "evaluation_criteria": {"reward_basis": [basis]}}
    upload = upload_file(
        dataset=make_dataset(rows=[], environment=environment),
        stream=io.BytesIO(jsonl(row)),
        filename="a.jsonl",
        choices=Choices(),
    )
    assert upload.rejected == 1 - loaded
    assert len(rows_of(upload) if loaded else []) == loaded
    assert ["choose a user model" in error["message"] for error in upload.errors] == [True] * (1 - loaded)


def test_a_conversation_that_continues_after_calls_keeps_them_up_to_the_last_user_turn():
    again = {"role": "user", "content": "And 1 + 2?"}
    messages = [*WITH_CALLS, again, *WITH_CALLS[1:3], {"role": "assistant", "content": "3"}]
    (row,) = rows_of(load(jsonl({"messages": messages})))
    kinds = [item.get("type", "message") for item in row["responses_create_params"]["input"]]
    assert kinds == ["message", "function_call", "function_call_output", "message", "message"]
    assert (row["responses_create_params"]["input"][-1]["content"], row["expected_answer"]) == ("And 1 + 2?", "3")


def test_a_conversation_that_does_not_end_with_a_reply_stays_whole():
    (row,) = rows_of(load(jsonl({"messages": WITH_CALLS[:3]})))
    kinds = [item.get("type", "message") for item in row["responses_create_params"]["input"]]
    assert (kinds, "expected_answer" in row) == (["message", "function_call", "function_call_output"], False)


@pytest.mark.parametrize(
    ("extractor", "cell", "taken"),
    [
        ("####", "a\n#### 1,234", "1,234"),
        ("\\boxed{}", "so \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("regex:Answer: (\\w+)", "Answer: B, no. Answer: C", "C"),
        ("regex:[0-9]+", "from 3 to 42", "42"),
        ("/final/0", '{"final": [2, 3]}', 2),
        ("/final/0", {"final": ["2"]}, "2"),
    ],
)
def test_an_extractor_takes_the_answer_and_the_cell_stays(extractor, cell, taken):
    mapping = {"input": "q", "expected_answer": "gold", "extract": {"expected_answer": extractor}}
    (row,) = rows_of(load(jsonl({"q": "1 + 1?", "gold": cell}), mapping=mapping))
    assert row == {"responses_create_params": ASKED, "gold": cell, "expected_answer": taken}


def test_a_row_without_what_an_extractor_takes_is_rejected_with_its_place():
    mapping = {"input": "q", "expected_answer": "gold", "extract": {"expected_answer": "####"}}
    upload = load(jsonl({"q": "1 + 1?", "gold": "2"}), mapping=mapping)
    assert [(one["pointer"], one["code"]) for one in upload.errors] == [("/gold", "nothing_extracted")]


@pytest.mark.parametrize(
    ("extract", "told"),
    [
        ({"expected_answer": "hashes"}, "Unknown extractor “hashes”"),
        ({"expected_answer": "regex:("}, "Invalid pattern"),
        ({"expected_answer": "regex:(?=a)"}, "Invalid pattern"),
        ({"other": "####"}, "other has an extractor but no column"),
    ],
)
def test_an_extractor_that_cannot_be_is_refused(extract, told):
    mapping = {"input": "q", "expected_answer": "gold", "extract": extract}
    with pytest.raises(ChoiceRefused, match=told):
        Choices(mapping=mapping).as_fields()


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ([{"from": "alien", "value": "hi"}], "turn 1 has the unknown role 'alien'"),
        ([{"from": "human", "value": "hi"}, {"from": "function_call", "value": "add(1)"}], "turn 2 is a call, but not"),
    ],
)
def test_turns_that_cannot_be_read_are_rejected(turns, told):
    upload = load(jsonl({"conversations": turns}))
    assert told in upload.errors[0]["message"]


def test_unmapped_columns_are_named_before_loading():
    content = jsonl({"question": "1 + 1?", "answer": "2", "level": 3, "source": "x"})
    upload = store_file(dataset=make_dataset(rows=[]), stream=io.BytesIO(content), filename="a.jsonl", draft=True)
    assert preview_upload(upload=upload).notes == [
        "These columns are not mapped and become verifier fields: level, source."
    ]
    checked = load(content, check_only=True)
    assert "These columns are not mapped and become verifier fields: level, source." in checked.message


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        (["a" * 64], None),
        (["a" * 65], ("/tags/0", "too_long")),
        ([str(number) for number in range(32)], None),
        ([str(number) for number in range(33)], ("/tags", "too_many")),
    ],
)
def test_too_long_and_too_many_tags_are_refused_not_cut(tags, error):
    upload = load(jsonl({"responses_create_params": ASKED, "tags": tags}))
    assert [(one["pointer"], one["code"]) for one in upload.errors] == ([error] if error else [])
    if not error:
        assert list(upload.version.tasks.get().tags) == tags


def test_names_of_columns_that_cannot_be_stored_are_shown_without_their_control_characters():
    content = jsonl({"question": "1 + 1?", "answer": "2", "le\x00vel\n": 3, "key\x00": "ghp_" + "a1B2c3D4e" * 4})
    checked = load(content, check_only=True)
    assert checked.state == "checked"
    assert "le vel" in checked.message
    assert "\x00" not in checked.message
