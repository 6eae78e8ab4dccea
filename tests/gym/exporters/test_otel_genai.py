"""GenAI spans of lines and graphs: parents, times, usage, messages and rewards."""

import json

import orjson
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from apps.exports.trace_sends.otlp_requests import encode_request
from apps.gym.exporters.protocol import resolve_options
from apps.gym.exporters.registry import FORMATS
from apps.gym.traces.events import EnvironmentTurn, JudgeCall, ModelCall, SessionOpened, ToolResult, Verification
from apps.gym.traces.items import message
from tests.gym.exporters.attempts import attempt, paris
from tests.gym.exporters.test_atif import captured
from tests.gym.traces import call, said, thought, trace, turn
from tests.telemetry.otlp_receiver import read_spans

STORED_AT = 1_700_000_100.0
COLUMNS = {"rollout_id": 7, "collection_id": 2, "dataset": "weather@v1", "task_index": 0}
USAGE = {"input_tokens": 30, "output_tokens": 4, "cached_tokens": 10, "reasoning_tokens": 2}


def row_of(events, options=None, **given):
    format = FORMATS["otel_genai"]
    made = attempt(events, **{"columns": COLUMNS, "stored_at": STORED_AT, **given})
    [row] = format.rows(made, resolve_options(format, options or {}))
    return orjson.loads(orjson.dumps(row))


def spans_of(events, options=None, **given):
    """The spans by name, as a receiver decodes them."""
    request = ExportTraceServiceRequest.FromString(encode_request([row_of(events, options, **given)]))
    return list(read_spans(request))


def named(spans, name):
    [found] = [span for span in spans if span.name == name]
    return found


def timed(*events):
    """The events one second after another, each for a second."""
    for number, event in enumerate(events):
        event.at, event.duration = float(number), 1.0
    return list(events)


def weather():
    first = turn(thought("I should look."), call(), finish_reason="tool_calls")
    first.usage, first.sampling, first.version = USAGE, {"temperature": 0.5, "seed": 3, "stop": "END"}, "policy-1-step3"
    result = ToolResult(call_id="call_1", name="get_weather", output='{"temp": 22}')
    events = trace(first, result, turn(said("It is 22 °C.")))
    return timed(*events)


def test_a_rollout_is_one_trace_below_its_agent():
    spans = spans_of(weather())
    assert [span.name for span in spans] == [
        "invoke_agent simple_agent",
        "chat policy-1",
        "chat policy-1",
        "execute_tool get_weather",
        "verification",
    ]
    root, *children = spans
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == 5
    assert root.parent_id == ""
    assert {span.parent_id for span in children} == {root.span_id}
    assert (root.began + root.seconds, root.seconds) == (STORED_AT, 6.0)
    assert [span.began - root.began for span in children] == [2.0, 4.0, 3.0, 5.0]
    assert {span.seconds for span in children} == {1.0}


def test_a_model_call_has_model_usage_sampling_and_messages():
    first, second = (span for span in spans_of(weather()) if span.name == "chat policy-1")
    given = first.attributes
    assert given["gen_ai.operation.name"] == "chat"
    assert (given["gen_ai.request.model"], given["gen_ai.response.model"]) == ("policy-1", "policy-1-step3")
    assert given["gen_ai.response.id"] == "resp_9"
    assert given["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert (given["gen_ai.request.temperature"], given["gen_ai.request.seed"]) == (0.5, 3)
    assert given["gen_ai.request.stop_sequences"] == ["END"]
    assert (given["gen_ai.usage.input_tokens"], given["gen_ai.usage.output_tokens"]) == (30, 4)
    assert given["gen_ai.usage.cache_read.input_tokens"] == 10
    assert given["gen_ai.usage.reasoning.output_tokens"] == 2
    assert json.loads(given["gen_ai.tool.definitions"])[0]["name"] == "get_weather"
    assert json.loads(given["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "I should look."},
                {"type": "tool_call", "id": "call_1", "name": "get_weather", "arguments": {"city": "Paris"}},
            ],
            "finish_reason": "tool_call",
        }
    ]
    asked = json.loads(second.attributes["gen_ai.input.messages"])
    assert [one["role"] for one in asked] == ["user", "assistant", "tool"]
    assert asked[2]["parts"] == [{"type": "tool_call_response", "id": "call_1", "response": '{"temp": 22}'}]


def test_a_tool_call_has_arguments_and_result_or_its_error():
    events = weather()
    events[3].error = "timed_out"
    tool = named(spans_of(events), "execute_tool get_weather")
    assert (tool.failed, tool.attributes["error.type"]) == (True, "timed_out")
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"city": "Paris"}
    assert tool.attributes["gen_ai.tool.call.result"] == '{"temp": 22}'
    assert tool.attributes["gen_ai.tool.call.id"] == "call_1"


def test_repeated_ids_of_calls_belong_to_the_call_before():
    events = timed(
        *trace(
            turn(call('{"city": "Paris"}')),
            ToolResult(call_id="call_1", name="get_weather", output="22"),
            turn(call('{"city": "Rome"}')),
            ToolResult(call_id="call_1", name="get_weather", output="30"),
            turn(said("Done.")),
        )
    )
    tools = [span for span in spans_of(events) if span.name.startswith("execute_tool")]
    assert [json.loads(span.attributes["gen_ai.tool.call.arguments"])["city"] for span in tools] == ["Paris", "Rome"]
    assert len({span.span_id for span in tools}) == 2


def test_the_reward_and_its_components_are_evaluation_results():
    events = weather()
    events[-1].explanation = "The number is right."
    root = spans_of(events, reward=0.75, components={"right": 1.0, "short": 0.5})[0]
    assert [name for name, _ in root.events] == ["gen_ai.evaluation.result"] * 3
    scores = {given["gen_ai.evaluation.name"]: given for _, given in root.events}
    assert {name: given["gen_ai.evaluation.score.value"] for name, given in scores.items()} == {
        "reward": 0.75,
        "right": 1.0,
        "short": 0.5,
    }
    assert scores["reward"]["gen_ai.evaluation.explanation"] == "The number is right."
    assert root.attributes["gymweb.rollout.id"] == 7
    assert root.attributes["gymweb.stop_reason"] == "answered"


def test_the_ids_are_the_same_each_time_and_others_for_another_rollout():
    first, again = spans_of(weather()), spans_of(weather(), reward=0.0)
    assert [span.span_id for span in first] == [span.span_id for span in again]
    assert first[0].trace_id == again[0].trace_id
    other = spans_of(weather(), columns={**COLUMNS, "rollout_id": 8})
    assert other[0].trace_id != first[0].trace_id
    assert {span.span_id for span in other}.isdisjoint(span.span_id for span in first)


def test_without_messages_only_names_times_and_counts_remain():
    events = weather()
    events[-1].explanation = "Secret number"
    text = orjson.dumps(row_of(events, {"messages": "none"})).decode()
    assert "Paris" not in text and "22" not in text.replace("1700000", "") and "Secret" not in text
    assert named(spans_of(events, {"messages": "none"}), "verification").attributes["gymweb.verifier.reward"] == 1.0


def test_without_messages_reasons_and_problems_are_left_out():
    judged = JudgeCall(judge="judge-1", question="score", prompt=[message("user", "Rate")], problem="Secret reply")
    events = [*weather()[:-1], judged, weather()[-1]]
    whole = orjson.dumps(row_of(events, {"messages": "all"}, override={"reason": "Secret reason"})).decode()
    assert "Secret reply" in whole and "Secret reason" in whole
    text = orjson.dumps(row_of(events, {"messages": "none"}, override={"reason": "Secret reason"})).decode()
    assert "Secret" not in text
    assert any(span.failed for span in spans_of(events, {"messages": "none"})), "the judge call is still marked"


def test_with_new_messages_each_is_sent_once():
    events = timed(
        *trace(
            turn(call()),
            ToolResult(call_id="call_1", name="get_weather", output="22"),
            turn(said("More?")),
            EnvironmentTurn(items=[message("user", "And Rome?")]),
            turn(said("30.")),
        )
    )
    chats = [span for span in spans_of(events, {"messages": "new"}) if span.name.startswith("chat")]
    asked = [json.loads(span.attributes["gen_ai.input.messages"]) for span in chats]
    assert [[one["role"] for one in given] for given in asked] == [["user"], ["tool"], ["user"]]
    assert ["gen_ai.tool.definitions" in span.attributes for span in chats] == [True, False, False]


def subagent_events():
    """The main agent starts a subagent by a tool call; the subagent calls a tool and a subagent of its own."""
    result = {"type": "function_call_output", "call_id": "call_1", "output": "7"}
    inner = {"type": "function_call_output", "call_id": "call_2", "output": "3"}
    return timed(
        SessionOpened(environment="any"),
        captured(1, [message("user", "Count.")], call(name="delegate"), lineage=1, root_reason="first"),
        captured(2, [message("user", "Sub.")], call(call_id="call_2", name="ask"), lineage=2, root_reason="subagent",
                 spawned_by=1),
        captured(3, [message("user", "Deep.")], said("3"), lineage=3, root_reason="subagent", spawned_by=2),
        captured(4, [inner], said("7"), parent=2, kept=2, lineage=2),
        captured(5, [result], said("It is 7."), parent=1, kept=2, lineage=1),
        captured(6, [message("user", "Title?")], said("Counting"), lineage=4, root_reason="auxiliary"),
        Verification(reward=1.0),
    )  # fmt: skip


def test_subagents_are_below_the_tool_call_that_started_them():
    spans = spans_of(subagent_events())
    by_id = {span.span_id: span for span in spans}
    root = named(spans, "invoke_agent simple_agent")
    delegate, ask = named(spans, "execute_tool delegate"), named(spans, "execute_tool ask")
    first, second = (span for span in spans if span.name == "invoke_agent subagent")
    assert by_id[first.parent_id] is delegate
    assert by_id[second.parent_id] is ask
    assert delegate.parent_id == root.span_id
    assert ask.parent_id == first.span_id
    chats = {span.attributes["gymweb.call"]: span for span in spans if "gymweb.call" in span.attributes}
    assert {number: span.parent_id for number, span in chats.items()} == {
        1: root.span_id,
        2: first.span_id,
        3: second.span_id,
        4: first.span_id,
        5: root.span_id,
        6: root.span_id,
    }
    # A tool of a captured agent ran between the reply that calls it and the next request.
    assert (ask.began - root.began, ask.seconds) == (3.0, 1.0)
    for span in spans:
        assert span is root or span.parent_id in by_id
        assert root.began <= span.began <= span.began + span.seconds <= root.began + root.seconds


def test_a_compacted_subagent_stays_below_its_agent():
    events = subagent_events()
    compacted = captured(7, [message("user", "Summary")], said("go on"), lineage=2, root_reason="compaction")
    compacted.at, compacted.duration = 4.5, 0.2
    events.insert(5, compacted)
    spans = spans_of(events)
    agents = [span for span in spans if span.name == "invoke_agent subagent"]
    [chat] = [span for span in spans if span.attributes.get("gymweb.call") == 7]
    assert chat.parent_id == agents[0].span_id


def test_a_subagent_without_a_known_caller_is_below_the_main_agent():
    events = [
        SessionOpened(environment="any"),
        captured(1, [message("user", "Count.")], said("1"), lineage=1, root_reason="first"),
        captured(2, [message("user", "Sub.")], said("7"), lineage=2, root_reason="subagent"),
    ]
    spans = spans_of(events)
    assert named(spans, "invoke_agent subagent").parent_id == spans[0].span_id


def test_judge_calls_are_below_the_verification_and_simulated_users_below_the_agent():
    judge = JudgeCall(judge="grader", question="right", prompt=[message("user", "Is it?")], items=[said("yes")])
    user = JudgeCall(judge="user", question="", prompt=[message("user", "Hi")], items=[said("Hello")], role="user")
    events = weather()
    events[-1:-1] = [user, judge]
    spans = spans_of(events)
    verification = named(spans, "verification")
    by_agent = {span.attributes.get("gen_ai.agent.name"): span.parent_id for span in spans}
    assert (by_agent["grader"], by_agent["user"]) == (verification.span_id, spans[0].span_id)


@pytest.mark.parametrize("events", [trace(), trace(turn()), paris()], ids=["no call", "empty reply", "paris"])
def test_any_trace_is_valid(events):
    assert spans_of(events)[0].name == "invoke_agent simple_agent"


def test_images_are_blobs_and_links():
    parts = [
        {"type": "input_text", "text": "Look."},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBOR"},
        {"type": "input_image", "image_url": "https://example.com/a.png"},
    ]
    events = trace(turn(said("A cat.")), prompt=[{"type": "message", "role": "user", "content": parts}])
    [asked] = json.loads(named(spans_of(events), "chat policy-1").attributes["gen_ai.input.messages"])
    assert asked["parts"] == [
        {"type": "text", "content": "Look."},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "iVBOR"},
        {"type": "uri", "modality": "image", "uri": "https://example.com/a.png"},
    ]


def test_unusual_numbers_and_texts_are_written():
    events = weather()
    assert isinstance(events[2], ModelCall)
    events[2].sampling = {"seed": 2**70, "temperature": float("inf"), "top_p": "high"}
    given = spans_of(events)[1].attributes
    assert given["gen_ai.request.seed"] == str(2**70)
    assert given["gen_ai.request.temperature"] == "inf"
    assert "gen_ai.request.top_p" not in given


@pytest.mark.parametrize(
    ("provider", "name"), [("anthropic", "anthropic"), ("azure", "azure.ai.openai"), ("compatible", "openai")]
)
def test_spans_name_the_provider_of_the_policy_model(provider, name):
    spans = spans_of(weather(), provider=provider)
    named_by = [span.attributes["gen_ai.provider.name"] for span in spans if "gen_ai.provider.name" in span.attributes]
    assert named_by == [name] * 3
