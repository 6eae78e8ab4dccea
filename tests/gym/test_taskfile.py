"""One line becomes a task or an error that names the place; no line costs more memory than the limit."""

import io
import os
from pathlib import Path

import orjson
import pytest

from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.files.file_limits import BadRow
from apps.gym.tasks.files.lines import LineReader
from apps.gym.tasks.task_rows import load_row, parse_line
from apps.gym.traces.items import input_items

SHARED = Path(os.environ.get("GYMWEB_SHARED", Path(__file__).resolve().parents[3] / "shared"))
EXAMPLES = sorted((SHARED / "data" / "nemo_gym").glob("*.example.jsonl"))


def line_of(params: object, **fields: object) -> bytes:
    return orjson.dumps({"responses_create_params": params, **fields})


def refusal(line: bytes) -> tuple[str, str]:
    with pytest.raises(RowRefused) as refused:
        parse_line(line)
    return refused.value.code, refused.value.message


def read(content: bytes, limit: int = 100) -> list[tuple[int, bytes | BadRow]]:
    return list(LineReader(io.BytesIO(content), max_line_bytes=limit))


def test_a_row_is_kept_as_it_came():
    line = (
        '{"uuid": "a-1",  "responses_create_params": {"input": "2 + 2?"}, "big": 123456789012345678901234567890,'
        ' "price": 1.10, "name": "Zoë \\u00e9", "nothing": null}'
    )
    task = parse_line(line.encode())
    assert (task.row_json, task.external_id, task.prompt_excerpt) == (line, "a-1", "2 + 2?")


def test_null_parameters_are_stored_as_uploaded_but_not_given():
    line = (
        b'{"responses_create_params":{"input":"q","tools":null,"tool_choice":null,"parallel_tool_calls":null,'
        b'"temperature":1.10},"big":123456789012345678901234567890,"x":{"y": null,"z": 2.50}}'
    )
    task = parse_line(line)
    assert task.row_json == line.decode()
    assert task.row["responses_create_params"] == {"input": "q", "temperature": 1.1}
    assert load_row(task.row_json)["responses_create_params"] == {"input": "q", "temperature": 1.1}


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (b'{"a": \xff}', "not_utf8", "byte 7 (0xff) is not UTF-8"),
        (b"[1]", "wrong_type", "the line holds a list, not a JSON object"),
        (b"{}", "missing", "/responses_create_params is missing"),
        (
            b'{"response_create_params": {}}',
            "missing",
            "/responses_create_params is missing",
        ),
        (b'{"responses_create_params": []}', "wrong_type", "/responses_create_params must be an object"),
        (
            line_of({}),
            "missing",
            "/responses_create_params/input is missing",
        ),
        (
            line_of({"input": 5}),
            "wrong_type",
            "/responses_create_params/input must be text",
        ),
        (
            line_of({"input": ["hi"]}),
            "wrong_type",
            "/responses_create_params/input/0 must be an object",
        ),
        (
            line_of({"input": [{"content": "hi"}]}),
            "missing",
            "/responses_create_params/input/0 has neither role nor type",
        ),
        (
            line_of({"input": "q", "tools": [{"type": "function", "function": {"name": "add"}}]}),
            "wrong_shape",
            "/responses_create_params/tools/0/function is not allowed",
        ),
        (
            line_of({"input": "q", "tools": [{"type": "function"}]}),
            "missing",
            "/responses_create_params/tools/0/name must be the tool's name",
        ),
        (
            line_of({"input": "q", "tools": [{"type": "web_search"}]}),
            "wrong_type",
            "/responses_create_params/tools/0/type must be function",
        ),
        (
            line_of({"input": "q", "metadata": {"n": 1}}),
            "wrong_type",
            "/responses_create_params/metadata/n must be text, not a number",
        ),
        (
            line_of({"input": "q", "temperature": "hot"}),
            "wrong_type",
            "/responses_create_params/temperature must be a number, not text",
        ),
        (
            line_of({"input": "q", "stream": True}),
            "wrong_type",
            "/responses_create_params/stream must be false",
        ),
    ],
)
def test_a_line_that_is_no_task_is_refused_with_the_place_and_the_reason(line, code, message):
    found, told = refusal(line)
    assert (found, told.startswith(message)) == (code, True)


def test_a_misspelt_object_of_the_prompt_is_guessed():
    _, message = refusal(b'{"response_create_params": {}}')
    assert "did you mean responses_create_params" in message


INPUT = "/responses_create_params/input/0"
CALL = {"type": "function_call", "name": "add", "call_id": "c", "arguments": "{}"}


@pytest.mark.parametrize(
    ("item", "code", "message"),
    [
        ({"role": "bogus", "content": "q"}, "wrong_value", "/role must be user, assistant, system or developer"),
        ({"type": "message", "content": "q"}, "wrong_value", "/role must be user, assistant, system or developer"),
        (
            {"type": "bogus2"},
            "unknown_type",
            "/type must be message, function_call, function_call_output or reasoning, or another item of the "
            "Responses API",
        ),
        ({"role": "user"}, "wrong_type", "/content must be text or a list of parts"),
        ({"role": "user", "content": ["q"]}, "wrong_type", "/content/0 must be an object with a type"),
        ({**CALL, "arguments": {}}, "wrong_type", "/arguments must be text"),
        ({"type": "function_call", "name": "add", "arguments": ""}, "missing", "/call_id must be text"),
        ({"type": "function_call_output", "output": "4"}, "missing", "/call_id must be text"),
        (
            {"type": "function_call_output", "call_id": "c", "output": 4},
            "wrong_type",
            "/output must be text or a list of parts",
        ),
    ],
)
def test_an_item_that_the_wire_does_not_have_is_refused_with_its_place(item, code, message):
    assert refusal(line_of({"input": [item]})) == (code, INPUT + message)


@pytest.mark.parametrize(
    "item",
    [
        *({"role": role, "content": "q"} for role in ("user", "assistant", "system", "developer")),
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": None, "role": "user", "content": "q"},
        CALL,
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "4"}]},
        {"type": "reasoning", "summary": []},
        {"type": "item_reference", "id": "m"},
        {"type": "mcp_call", "id": "m"},
    ],
)
def test_an_item_that_the_wire_has_is_taken(item):
    assert parse_line(line_of({"input": [item]})).row["responses_create_params"]["input"] == [item]


@pytest.mark.parametrize(
    ("name", "value", "code", "message"),
    [
        ("tool_choice", "zz", "wrong_value", " must be auto, none or required, or an object that names a tool"),
        ("tool_choice", [], "wrong_type", " must be text or an object"),
        ("tool_choice", {"type": "function"}, "missing", "/name must be text"),
        ("tool_choice", {"name": "add"}, "missing", "/type must be text"),
        ("temperature", 99, "out_of_range", " must be from 0 to 2"),
        ("temperature", -0.1, "out_of_range", " must be from 0 to 2"),
        ("temperature", True, "wrong_type", " must be a number, not true or false"),
        ("top_p", 1.5, "out_of_range", " must be from 0 to 1"),
        ("max_output_tokens", -5, "out_of_range", " must be 1 or more"),
        ("max_output_tokens", 0, "out_of_range", " must be 1 or more"),
        ("max_output_tokens", 1.5, "wrong_type", " must be a whole number, not a number"),
        ("max_tool_calls", -1, "out_of_range", " must be 0 or more"),
        ("top_logprobs", -1, "out_of_range", " must be 0 or more"),
    ],
)
def test_a_parameter_that_no_model_takes_is_refused(name, value, code, message):
    assert refusal(line_of({"input": "q", name: value})) == (code, f"/responses_create_params/{name}{message}")


@pytest.mark.parametrize(
    "params",
    [
        *({"tool_choice": choice} for choice in ("auto", "none", "required")),
        {"tool_choice": {"type": "function", "name": "add"}},
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
        {"temperature": 0, "top_p": 1.0, "max_output_tokens": 1, "max_tool_calls": 0, "top_logprobs": 20},
        {"temperature": 2.0, "tool_choice": None, "max_output_tokens": None},
    ],
)
def test_a_parameter_that_models_take_is_taken(params):
    assert parse_line(line_of({"input": "q", **params})).prompt_excerpt == "q"


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"a": 1}, "/tags must be a list of texts, not an object"),
        ("a, b", "/tags must be a list of texts, not text"),
        (["a", 1], "/tags/1 must be text, not a number"),
    ],
)
def test_tags_that_are_no_list_of_texts_are_refused(tags, message):
    assert refusal(line_of({"input": "q"}, tags=tags)) == ("wrong_type", message)


@pytest.mark.parametrize(
    ("field", "code", "message"),
    [
        ({"split": "x" * 65}, "too_long", "/split must have at most 64 characters"),
        ({"split": [1]}, "wrong_type", "/split must be text or a whole number, not a list"),
        ({"split": False}, "wrong_type", "/split must be text or a whole number, not true or false"),
        ({"id": True}, "wrong_type", "/id must be text or a whole number, because it is the row id, not true or false"),
        (
            {"id": "", "uuid": 3.0},
            "wrong_type",
            "/uuid must be text or a whole number, because it is the row id, not a number",
        ),
    ],
)
def test_an_invalid_split_or_id_is_refused(field, code, message):
    assert refusal(line_of({"input": "q"}, **field)) == (code, message)


@pytest.mark.parametrize(
    ("fields", "split", "external_id"),
    [
        ({"split": " dev ", "id": 3}, "dev", "3"),
        ({"split": 3, "id": None, "uuid": "a"}, "3", "a"),
        ({"split": None, "id": ""}, "", ""),
    ],
)
def test_a_split_and_an_id_are_text_or_whole_numbers(fields, split, external_id):
    task = parse_line(line_of({"input": "q"}, **fields))
    assert (task.split, task.external_id) == (split, external_id)


@pytest.mark.parametrize(("tags", "taken"), [(None, ()), ([], ()), (["a", " b ", "a"], ("a", "b"))])
def test_tags_that_are_one_are_taken(tags, taken):
    assert parse_line(line_of({"input": "q"}, tags=tags)).tags == taken


@pytest.mark.skipif(not EXAMPLES, reason="the shared example files are not here")
def test_no_row_of_the_real_files_is_refused():
    files = sorted((SHARED / "data" / "nemo_gym").rglob("*.jsonl"))
    rows = [orjson.loads(line) for file in files for line in file.read_bytes().splitlines()]
    params = [row["responses_create_params"] for row in rows if "responses_create_params" in row]
    assert len(params) > 100
    assert [parse_line(line_of(one)).row_json for one in params if None not in one.values()] == [
        line_of(one).decode() for one in params if None not in one.values()
    ]
    assert all(parse_line(line_of(one)).prompt_excerpt for one in params)
    tasks = [line for file in EXAMPLES for line in file.read_bytes().splitlines()]
    assert [parse_line(line).row_json for line in tasks] == [line.decode() for line in tasks]


def test_broken_json_is_refused_with_its_column():
    code, message = refusal(b'{"a": 1, "b" 2}')
    assert code == "not_json"
    assert message.endswith("(column 14)")


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"1" + b"0" * 400])
def test_a_number_that_json_does_not_have_is_refused(number):
    code, message = refusal(b'{"responses_create_params": {"input": "q"}, "x": ' + number + b"}")
    assert (code, message[:45]) == ("not_finite", "a number that is not finite, or beyond 1.8e30")


def test_an_unknown_parameter_is_refused_with_a_guess_and_the_allowed_ones():
    code, message = refusal(line_of({"input": "q", "temprature": 1}))
    assert code == "unknown_key"
    assert message.startswith("/responses_create_params/temprature ")
    assert "Did you mean temperature?" in message
    assert message.endswith("tools, top_logprobs, top_p, truncation, user")


@pytest.mark.parametrize(("levels", "refused"), [(90, False), (101, True), (5000, True)])
def test_depth_is_bounded(levels, refused):
    line = b'{"responses_create_params": {"input": "q"}, "x": ' + b"[" * levels + b"]" * levels + b"}"
    if refused:
        assert refusal(line) == ("too_deep", "nested deeper than 100 levels")
    else:
        assert parse_line(line).prompt_excerpt == "q"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b'{"responses_create_params": {"input": "a", "input": "b"}}', "input"),
        (b'{"x": 1, "responses_create_params": {"input": "a"}, "\\u0078" : 2}', "x"),
        (b'{"responses_create_params": {"input": "a"}, "y": [[{"k": 1, "k": {}}]], "z": "\\":"}', "k"),
    ],
)
def test_a_duplicate_key_in_one_object_is_refused(line, name):
    assert refusal(line) == ("duplicate_key", f"the name {name!r} is repeated in one object")


def test_json_within_texts_is_no_repeated_name():
    line = b'{"responses_create_params": {"input": "{\\"a\\": 1, \\"a\\": 2}"}, "a": 1}'
    assert parse_line(line).row["a"] == 1


def test_the_excerpt_is_the_start_of_the_last_user_message():
    items = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "first"},
        {"role": "user", "content": [{"type": "input_text", "text": "last\nquestion\u0000 " + "x" * 300}]},
    ]
    excerpt = parse_line(line_of({"input": items})).prompt_excerpt
    assert excerpt == "last question " + "x" * 186


@pytest.mark.parametrize(("fields", "wanted"), [({"id": 0}, "0"), ({"uuid": "u", "_ng_task_index": 3}, "u"), ({}, "")])
def test_the_rows_own_id_is_found(fields, wanted):
    assert parse_line(line_of({"input": "q"}, **fields)).external_id == wanted


@pytest.mark.parametrize("own", ["y" * 200, "a b", "a  b", " a b", "a\tb", "\n"])
def test_an_id_is_unchanged(own):
    assert parse_line(line_of({"input": "q"}, id=own)).external_id == own


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"id": "y" * 201}, "too_long", "/id must have at most 200 characters (row id)"),
        ({"uuid": " " * 201}, "too_long", "/uuid must have at most 200 characters (row id)"),
    ],
)
def test_an_id_that_cannot_be_stored_whole_is_refused(fields, code, message):
    with pytest.raises(RowRefused) as refused:
        parse_line(line_of({"input": "q"}, **fields))
    assert (refused.value.code, refused.value.message) == (code, message)


def test_lines_are_numbered_as_an_editor_numbers_them():
    content = b'\xef\xbb\xbf{"a":1}\r\n\r\n  \n{"b":2}\n{"c":3}'
    assert read(content) == [(1, b'{"a":1}\r'), (4, b'{"b":2}'), (5, b'{"c":3}')]


def test_an_empty_stream_has_no_lines():
    assert read(b"") == []
    assert read(b"\n\n") == []


def test_a_line_over_the_limit_is_named_and_reading_goes_on_behind_it():
    assert read(b"a" * 101 + b"\nnext\n" + b"b" * 100) == [
        (1, BadRow("too_long", "101 bytes in one line: the limit is 100 (GYMWEB_MAX_LINE_BYTES)", b"a" * 101)),
        (2, b"next"),
        (3, b"b" * 100),
    ]


def test_a_line_far_over_the_limit_is_never_held():
    class Endless:
        left = 200

        def read(self, size: int = -1, /) -> bytes:
            self.left -= 1
            return b"x" * size if self.left > 0 else b"\nok" if self.left == 0 else b""

    reader = LineReader(Endless(), max_line_bytes=1024 * 1024)
    (first, cut), (second, line) = reader
    assert (first, second, line) == (1, 2, b"ok")
    assert isinstance(cut, BadRow)
    assert (cut.message.split(" ")[0], len(cut.head)) == (f"{199 * 256 * 1024:,}", 16_384)


@pytest.mark.skipif(not EXAMPLES, reason="the shared example files are not here")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name.split(".")[0])
def test_every_example_of_nemo_gym_is_a_task(path):
    with path.open("rb") as stream:
        tasks = [parse_line(line) for _, line in LineReader(stream, max_line_bytes=8 * 1024**2)]
    assert len(tasks) == len(path.read_bytes().splitlines())
    assert all(task.prompt_excerpt for task in tasks)


@pytest.mark.parametrize("empty", [[], "", " "])
def test_an_empty_prompt_is_unchanged(empty):
    task = parse_line(line_of({"input": empty}))
    assert (task.row["responses_create_params"]["input"], task.prompt_excerpt) == (empty, "")
    assert input_items(task.row) == []
