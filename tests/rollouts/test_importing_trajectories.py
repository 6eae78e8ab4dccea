"""Import of ATIF trajectories and of session files of Claude Code and Codex."""

import json
import re
from io import BytesIO

import orjson
import pytest
from django.test import Client

from apps.exports.rechecks.recheck_jobs import apply_recheck, queue_recheck
from apps.gym.rollout_files import stored_calls
from apps.gym.traces.events import ModelCall, ToolResult
from apps.gym.traces.items import text_of
from apps.rollouts.imports import rollout_import
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.imports.task_matching import File, ImportRefused
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.rechecks.derivation import derive_rollout
from tests.factories import make_agent, make_dataset, make_user
from tests.rollouts.stored import as_file
from tests.rollouts.test_rechecks import work

pytestmark = pytest.mark.django_db


def rollouts_of(*files, **given):
    imported = import_rollouts(
        ImportOrder(dataset=make_dataset(rows=[]), agent=make_agent(), **given), files=list(files)
    )
    return list(Rollout.objects.filter(collection=imported.collection).select_related("task").order_by("pk"))


def texts(items):
    return [text_of(item) or item.get("arguments") or item.get("output") for item in items]


# -- ATIF


def steps(*more):
    call = {"tool_call_id": "c1", "function_name": "multiply", "arguments": {"a": 17, "b": 23}}
    return [
        {"step_id": 1, "source": "user", "message": "What is 17 x 23?", "timestamp": "2026-01-01T10:00:00Z"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "timestamp": "2026-01-01T10:00:01Z",
            "reasoning_content": "multiply",
            "model_name": "small",
            "tool_calls": [call],
            "observation": {"results": [{"source_call_id": "c1", "content": "391"}]},
            "metrics": {"prompt_tokens": 41, "completion_tokens": 12, "cached_tokens": 8},
        },
        {"step_id": 3, "source": "agent", "message": "391", "timestamp": "2026-01-01T10:00:03Z"},
        *more,
    ]


def trajectory(**fields):
    agent = {"name": "solver", "version": "2", "model_name": "small"}
    return {"schema_version": "ATIF-v1.7", "session_id": "s1", "agent": agent, "steps": steps(), **fields}


@pytest.mark.parametrize("version", ["1.4", "1.5", "1.6", "1.7", "1.8"])
def test_a_trajectory_is_an_unverified_rollout(version):
    [rollout] = rollouts_of(as_file(trajectory(schema_version=f"ATIF-v{version}")))
    _, prompt, first, result, second, verified = rollout.trace()
    assert texts(prompt.items) == ["What is 17 x 23?"]
    assert texts(first.items) == ["multiply", '{"a":17,"b":23}']
    assert (first.model, first.usage) == ("small", {"input_tokens": 41, "output_tokens": 12, "cached_tokens": 8})
    assert (result.call_id, result.name, result.output) == ("c1", "multiply", "391")
    assert (texts(second.items), second.at) == (["391"], 2.0)
    assert (rollout.reward, rollout.stop_reason, rollout.turns, rollout.tool_calls) == (None, "answered", 2, 1)
    assert (second.tokens, second.tokens_note) == (None, "")
    assert verified.details["session"] == {"format": "atif", "id": "s1", "agent": "solver", "agent_version": "2"}


def test_an_indented_trajectory_file_is_one_rollout():
    text = orjson.dumps(trajectory(), option=orjson.OPT_INDENT_2)
    [rollout] = rollouts_of(File("trajectory.json", BytesIO(text)))
    assert rollout.turns == 2


def test_an_embedded_subagent_is_a_lineage():
    sub = {**trajectory(), "trajectory_id": "sub", "steps": [*steps()[:1], {**steps()[2], "step_id": 2}]}
    row = trajectory(subagent_trajectories=[sub])
    refs = [{"trajectory_id": "sub"}, {"trajectory_path": "other.json"}]
    row["steps"][1]["observation"]["results"][0]["subagent_trajectory_ref"] = refs
    [rollout] = rollouts_of(as_file(row))
    graph = rollout.graph()
    assert [(one.number, one.root_reason, one.spawned_by) for one in graph.lineages] == [
        (1, "first", 0),
        (2, "subagent", 1),
    ]
    main = [event for event in graph.main if isinstance(event, ModelCall | ToolResult)]
    assert [type(event) for event in main] == [ModelCall, ToolResult, ModelCall]
    left_out = rollout.trace()[-1].details["session"]["left_out"]
    assert left_out == {"subagent other.json": 1}


def test_copied_context_is_no_reply():
    copied = {"step_id": 2, "source": "agent", "message": "Before.", "is_copied_context": True}
    row = trajectory(steps=[steps()[0], copied, steps()[2]])
    [rollout] = rollouts_of(as_file(row))
    assert rollout.turns == 1
    assert texts(rollout.trace()[1].items) == ["What is 17 x 23?", "Before."]


def test_token_ids_are_kept_where_a_trajectory_has_all():
    row = trajectory()
    row["steps"][2]["metrics"] = {"prompt_token_ids": [1, 2], "completion_token_ids": [3], "logprobs": [-0.5]}
    [rollout] = rollouts_of(as_file(row))
    calls = [event for event in rollout.trace(tokens=True) if isinstance(event, ModelCall)]
    assert [call.tokens is not None for call in calls] == [False, True]


@pytest.mark.parametrize(
    ("metrics", "note"),
    [
        ({"logprobs": [float("nan")]}, "logprob_not_finite"),
        ({"logprobs": [3.2]}, "logprob_above_0"),
        ({"logprobs": [-9999.0]}, "logprob_placeholder"),
        ({"prompt_tokens": 2, "completion_tokens": 2}, "usage_differs"),
        ({"prompt_tokens": 3, "completion_tokens": 1}, "usage_differs"),
        ({"prompt_tokens": 2, "completion_tokens": 1}, ""),
    ],
)
def test_token_ids_of_a_trajectory_are_left_out_where_its_numbers_are_impossible(metrics, note):
    row = trajectory()
    tokens = {"prompt_token_ids": [1, 2], "completion_token_ids": [3], "logprobs": [-0.5]}
    row["steps"][2]["metrics"] = {**tokens, **metrics}
    [rollout] = rollouts_of(as_file(json.dumps(row).encode()))
    call = [event for event in rollout.trace(tokens=True) if isinstance(event, ModelCall)][1]
    assert (texts(call.items), call.tokens_note, call.tokens is None) == (["391"], note, bool(note))


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda row: row.update(schema_version="ATIF-v2.0"), "/schema_version"),
        (lambda row: row["steps"][2].update(step_id=7), "/steps/2/step_id"),
        (lambda row: row["steps"][1].update(source="robot"), "/steps/1/source"),
        (lambda row: row["steps"][1]["tool_calls"][0].update(arguments="x"), "/steps/1/tool_calls/0/arguments"),
        (
            lambda row: row["steps"][1]["observation"]["results"][0].update(source_call_id="c9"),
            "/steps/1/observation/results/0/source_call_id",
        ),
        (lambda row: row["steps"][2].update(timestamp="soon"), "/steps/2/timestamp"),
        (lambda row: row["steps"][2].update(is_copied_context=True), "/steps/2"),
        (lambda row: row.update(extra={"gymweb": {"reward": "good"}}), "/reward"),
        (lambda row: row.update(steps=row["steps"][:1]), "/steps"),
    ],
)
def test_a_bad_trajectory_is_refused_with_file_line_and_field(change, pointer):
    row = trajectory()
    change(row)
    with pytest.raises(ImportRefused, match=rf"runs\.jsonl, line 2: {re.escape(pointer)} "):
        rollouts_of(as_file(trajectory(), row, name="runs.jsonl"))
    assert not Collection.objects.exists()


# -- Claude Code


def line(uuid, parent, kind, content, *, number=0, **fields):
    message = {"role": kind, "content": content}
    if kind == "assistant":
        usage = {"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2, "output_tokens": 4}
        message |= {"id": fields.pop("id", f"m_{uuid}"), "model": "claude", "usage": usage}
    told = {"sessionId": "s1", "version": "2.1", "isSidechain": False, "timestamp": f"2026-01-01T10:00:0{number}Z"}
    return {"type": kind, "uuid": uuid, "parentUuid": parent, **told, "message": message, **fields}


def use(call_id, name="Bash", **given):
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def told(call_id, output, **fields):
    return {"type": "tool_result", "tool_use_id": call_id, "content": output, **fields}


def session():
    """A reply on three lines with two calls, whose results are on side branches, then an answer."""
    return [
        {"type": "file-history-snapshot", "messageId": "x", "sessionId": "s1"},
        line("u1", None, "user", "List the files."),
        line("a1", "u1", "assistant", [{"type": "thinking", "thinking": "Look.", "signature": "sig"}], id="m1"),
        line("a2", "a1", "assistant", [use("t1", command="ls")], id="m1"),
        line("a3", "a2", "assistant", [use("t2", command="pwd")], id="m1"),
        line("r1", "a2", "user", [told("t1", "a.txt")]),
        line("r2", "a3", "user", [told("t2", [{"type": "text", "text": "no"}], is_error=True)]),
        line("a4", "r2", "assistant", [{"type": "text", "text": "a.txt"}], number=3),
    ]


def test_a_claude_code_session_is_a_rollout():
    [rollout] = rollouts_of(as_file(*session(), name="session.jsonl"))
    _, prompt, first, one, two, answer, verified = rollout.trace()
    assert texts(prompt.items) == ["List the files."]
    assert [item["type"] for item in first.items] == ["reasoning", "function_call", "function_call"]
    assert first.items[0]["signature"] == "sig"
    assert [(each.name, each.output, each.error) for each in (one, two)] == [
        ("Bash", "a.txt", ""),
        ("Bash", "no", "no"),
    ]
    assert (texts(answer.items), answer.at, answer.model) == (["a.txt"], 3.0, "claude")
    assert first.usage == {"input_tokens": 10, "output_tokens": 4, "cached_tokens": 3, "cache_write_tokens": 2}
    assert (rollout.reward, rollout.tool_errors) == (None, 1)
    assert verified.details["session"]["left_out"] == {"file-history-snapshot": 1}


def recorded(*blobs, tools=("Bash",), **request):
    """A request as Claude Code records it, with its messages by hash."""
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in tools]
    shape = {"system": [{"type": "text", "text": "Be brief."}], "tools": tools}
    params = {"model": "claude", "max_tokens": 900}
    return [
        {"type": "api-request-shape", "sessionId": "s1", "shapeHash": "shape", "shape": shape},
        *({"type": "api-request-blob", "sessionId": "s1", "hash": name, "message": text} for name, text in blobs),
        {"type": "api-request", "sessionId": "s1", "id": "q1", "shapeHash": "shape", "params": params, **request},
    ]


def test_a_recorded_request_of_claude_code_gives_prompt_tools_and_sampling():
    blob = ("b1", {"role": "user", "content": "<system-reminder>It is May.</system-reminder>\nList the files."})
    first, *rest = recorded(blob, keep=0, tail=["b1"])
    lines = session()
    lines[2] |= {"requestRef": "q1"}
    [rollout] = rollouts_of(as_file(first, *rest, *lines))
    opened, prompt, call, *_ = rollout.trace()
    assert [item["role"] for item in prompt.items] == ["system", "user"]
    assert "It is May." in texts(prompt.items)[1]
    assert [tool["name"] for tool in opened.tools] == ["Bash"]
    assert call.sampling == {"max_output_tokens": 900}


@pytest.mark.parametrize(
    "request_lines",
    [
        recorded(keep=0, tail=["missing"]),
        recorded(keep=1, base="q0", tail=[]),
        recorded(("b1", {"role": "user"}), keep=0, tail=["b1"]),
        recorded(keep=0, tail=7),
    ],
    ids=["no blob", "continued", "bad blob", "bad tail"],
)
def test_an_incomplete_request_of_claude_code_leaves_the_prompt_of_its_lines(request_lines):
    lines = session()
    lines[2] |= {"requestRef": "q1"}
    [rollout] = rollouts_of(as_file(*request_lines, *lines))
    assert texts(rollout.trace()[1].items) == ["List the files."]


def test_attachments_of_claude_code_are_texts_of_the_prompt():
    lines = session()
    given = {"rendered": [{"content": "One."}, {"content": "Two."}], "renderedRole": "system"}
    lines.insert(2, {"type": "attachment", "uuid": "x1", "parentUuid": "u1", "sessionId": "s1", **given})
    lines[3] |= {"parentUuid": "x1"}
    [rollout] = rollouts_of(as_file(*lines))
    prompt = rollout.trace()[1].items
    assert [(item["role"], texts([item])) for item in prompt] == [
        ("user", ["List the files."]),
        ("system", ["One.\nTwo."]),
    ]


def test_a_subagent_of_claude_code_is_a_lineage():
    lines = [
        line("u1", None, "user", "Ask a helper."),
        line("a1", "u1", "assistant", [use("t1", "Task", prompt="Count.")]),
        line("s1", None, "user", "Count.", isSidechain=True),
        line("s2", "s1", "assistant", [{"type": "text", "text": "7"}], isSidechain=True),
        line("r1", "a1", "user", [told("t1", "7")]),
        line("a2", "r1", "assistant", [{"type": "text", "text": "It is 7."}]),
    ]
    [rollout] = rollouts_of(as_file(*lines))
    graph = rollout.graph()
    assert [(one.calls, one.root_reason, one.spawned_by) for one in graph.lineages] == [
        ([1, 3], "first", 0),
        ([2], "subagent", 1),
    ]
    assert graph.main_leaf == 3


def test_compaction_and_rewound_turns_are_branches():
    lines = [
        line("u1", None, "user", "One."),
        line("a1", "u1", "assistant", "first"),
        line("u2", "a1", "user", "Rewound."),
        line("a2", "u2", "assistant", "dropped"),
        line("u3", "a1", "user", "Two."),
        line("a3", "u3", "assistant", "second"),
        {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None, "sessionId": "s1"},
        line("u4", "b", "user", "Summary.", isCompactSummary=True),
        line("a4", "u4", "assistant", "third"),
    ]
    [rollout] = rollouts_of(as_file(*lines))
    graph = rollout.graph()
    assert [call.lineage for call in graph.calls.values()] == [1, 2, 1, 1]
    assert [call.root_reason for call in graph.calls.values()] == ["first", "", "", "compaction"]
    assert (graph.main_leaf, texts(graph.request(4)), texts(graph.request(3))) == (
        4,
        ["Summary."],
        ["One.", "first", "Two."],
    )
    assert texts(rollout.task.row["responses_create_params"]["input"]) == ["One."]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b'{"type": "user"', "line 9: not JSON"),
        (line("u9", "a4", "user", 7), "line 9: /message/content must be text"),
        (line("a9", None, "assistant", "x"), "line 9: /parentUuid the reply has no prompt"),
        ({**line("a9", "a4", "assistant", "x"), "timestamp": "soon"}, "line 9: /timestamp must be"),
    ],
)
@pytest.mark.parametrize("on_error", ["reject", "skip"])
def test_a_bad_line_rejects_the_whole_session(bad, said, on_error):
    with pytest.raises(ImportRefused) as refused:
        rollouts_of(as_file(*session(), bad, name="session.jsonl"), on_error=on_error)
    assert str(refused.value.errors[0]).startswith(f"session.jsonl, {said}")
    assert not Collection.objects.exists()


def streamed(stops, text="x" * 4_000, **usage):
    """A session with a reply on several lines, whose counts are those of the first event of its stream."""
    lines = [line("u1", None, "user", "Tell a story.")]
    for number, stop in enumerate(stops):
        lines.append(line(f"a{number}", lines[-1]["uuid"], "assistant", [{"type": "text", "text": text}], id="m1"))
        lines[-1]["message"] |= stop
        lines[-1]["message"]["usage"] |= {"output_tokens": 8, **usage}
    return lines


@pytest.mark.parametrize(
    ("stops", "text"),
    [([{"stop_reason": None}] * 4, "x"), ([{}] * 4, "x" * 1_000), ([{"stop_reason": "end_turn"}], "x" * 4_000)],
    ids=["open", "no key", "too few"],
)
def test_a_count_of_output_tokens_that_never_became_final_is_a_lower_bound(stops, text):
    [rollout] = rollouts_of(as_file(*streamed(stops, text)))
    [call] = [event for event in rollout.trace() if isinstance(event, ModelCall)]
    assert call.usage == {"input_tokens": 10, "cached_tokens": 3, "cache_write_tokens": 2}
    assert call.notes == ["output tokens: at least 8, because the file has no final count"]
    collection = rollout.collection
    for row in (rollout, collection):
        assert (row.input_tokens, row.output_tokens, row.calls_without_usage) == (10, 0, 1)
    client = Client()
    client.force_login(make_user())
    assert "1 reply has no token counts" in client.get(f"/collections/{collection.pk}/").text
    page = client.get(f"/rollouts/{rollout.pk}/").text
    assert "at least 8" in page
    assert derive_rollout(rollout, is_imported=True) is None


def test_a_final_count_of_output_tokens_is_kept():
    stops = [{"stop_reason": None}, {"stop_reason": "max_tokens"}]
    [rollout] = rollouts_of(as_file(*streamed(stops, output_tokens=2_000)))
    assert (rollout.output_tokens, rollout.calls_without_usage) == (2_000, 0)


def test_a_recheck_finds_counts_that_were_imported_as_final(monkeypatch):
    monkeypatch.setattr(stored_calls, "drop_partial_count", lambda call, **_: call)
    monkeypatch.setattr(rollout_import, "count_without_usage", lambda _: 0)
    [rollout] = rollouts_of(as_file(*streamed([{}] * 4)))
    collection = rollout.collection
    monkeypatch.undo()
    assert (rollout.output_tokens, collection.output_tokens, rollout.calls_without_usage) == (8, 8, 0)
    Collection.objects.filter(pk=collection.pk).update(rules_version=1)
    recheck = work(apply_recheck(recheck=work(queue_recheck(collection=collection))))
    assert (recheck.changed, recheck.applied, recheck.counts) == (1, 1, 1)
    for row in (rollout, collection):
        row.refresh_from_db()
        assert (row.output_tokens, row.calls_without_usage) == (0, 1)
    [call] = [event for event in rollout.trace() if isinstance(event, ModelCall)]
    assert "output_tokens" not in call.usage
    assert work(queue_recheck(collection=collection)).changed == 0


# -- Codex


def entry(kind, number=0, **payload):
    return {"timestamp": f"2026-01-01T10:00:0{number}Z", "type": kind, "payload": payload}


def item(kind, **fields):
    return entry("response_item", type=kind, **fields)


def spoken(role, text):
    part = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
    return item("message", role=role, content=[part])


def count(read, written):
    usage = {"input_tokens": read, "cached_input_tokens": 1, "output_tokens": written, "reasoning_output_tokens": 2}
    return entry("event_msg", type="token_count", info={"last_token_usage": usage})


def codex():
    return [
        entry("session_meta", id="c1", cli_version="0.1", base_instructions={"text": "Be brief."}),
        entry("turn_context", model="gpt", effort="high"),
        spoken("user", "<environment_context>x</environment_context>"),
        spoken("user", "Make a file."),
        entry("event_msg", type="user_message", message="Make a file."),
        item("reasoning", summary=[{"type": "summary_text", "text": "Patch."}], encrypted_content="e"),
        item("custom_tool_call", call_id="k1", name="apply_patch", input="*** Begin"),
        count(30, 9),
        item("custom_tool_call_output", call_id="k1", output="done"),
        spoken("assistant", "Made."),
        count(40, 3),
    ]


def test_a_codex_session_is_a_rollout():
    [rollout] = rollouts_of(as_file(*codex(), name="rollout-1.jsonl"))
    _, prompt, first, result, second, verified = rollout.trace()
    assert [one["role"] for one in prompt.items] == ["system", "user", "user"]
    assert [one["type"] for one in first.items] == ["reasoning", "function_call"]
    assert first.items[1]["arguments"] == '{"input":"*** Begin"}'
    assert (result.name, result.output) == ("apply_patch", "done")
    assert (first.model, first.sampling) == ("gpt", {"reasoning": {"effort": "high"}})
    assert [call.usage["input_tokens"] for call in (first, second)] == [30, 40]
    assert (rollout.turns, rollout.reward) == (2, None)
    assert verified.details["session"]["left_out"] == {"event_msg/user_message": 1}


def test_a_codex_rollback_and_compaction_are_branches():
    more = [
        spoken("user", "Wrong."),
        spoken("assistant", "dropped"),
        entry("event_msg", type="thread_rolled_back", num_turns=1),
        spoken("user", "Right."),
        spoken("assistant", "kept"),
        entry("compacted", message="Summary."),
        spoken("user", "Go on."),
        spoken("assistant", "last"),
    ]
    [rollout] = rollouts_of(as_file(*codex(), *more))
    graph = rollout.graph()
    assert [(call.parent, call.lineage) for call in graph.calls.values()] == [(0, 1), (1, 1), (2, 2), (2, 1), (0, 1)]
    assert texts(graph.request(4))[-2:] == ["Made.", "Right."]
    assert texts(graph.request(5)) == ["Summary.", "Go on."]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (item("function_call", call_id="k2", name="f"), "line 12: /payload/arguments must be text, not null"),
        ({"timestamp": "2026-01-01T10:00:00Z", "type": "response_item"}, "line 12: /payload must be an object"),
        (entry("event_msg", type="thread_rolled_back", num_turns=9), "line 12: /payload/num_turns rolls back"),
    ],
)
def test_a_bad_codex_line_is_refused_with_its_field(bad, said):
    with pytest.raises(ImportRefused) as refused:
        rollouts_of(as_file(*codex(), bad, name="rollout-1.jsonl"))
    assert str(refused.value.errors[0]).startswith(f"rollout-1.jsonl, {said}")
    assert not Collection.objects.exists()
