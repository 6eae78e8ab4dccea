"""What each trainer's loader demands of a row, written from what the loaders do; each raises AssertionError."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from apps.exports.trace_sends.otlp_requests import encode_request
from apps.gym.exporters.dataset_columns import PAIR_FEATURES
from apps.gym.exporters.protocol import Feature, Options, Row
from tests.gym.exporters.atif_schema import check_trajectory

Check = Callable[[Row, Options], None]


def check_trace(row: Row, options: Options) -> None:
    """OpenTelemetry's own package reads the row, and each span but the first is below another one."""
    request = ExportTraceServiceRequest.FromString(encode_request([row]))
    spans = [span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]
    ids = [span.span_id for span in spans]
    assert len(set(ids)) == len(ids)
    assert {(len(span.trace_id), len(span.span_id)) for span in spans} == {(16, 8)}
    assert [span.parent_span_id in ids for span in spans] == [False, *[True] * (len(spans) - 1)]
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)


FORBIDDEN_COLUMNS = {"id", "source", "model", "system_prompt", "type", "message", "payload", "task_name"}


def fits_feature(value: Any, feature: Feature) -> bool:
    """Whether a value is of the type that the dataset card says, without any cast."""
    if feature.endswith("[]"):
        elements: dict[Feature, Feature] = {
            "json[]": "json",
            "int32[]": "int64",
            "float32[]": "float64",
            "image[]": "string",
            "turn[]": "json",
        }
        element = elements[feature]
        return isinstance(value, list) and all(fits_feature(one, element) for one in value)
    kinds: dict[str, type | tuple[type, ...]] = {
        "json": (dict, list, str, int, float, bool),
        "string": str,
        "bool": bool,
        "float64": float,
        "int64": int,
    }
    return isinstance(value, kinds[feature]) and not (feature == "int64" and isinstance(value, bool))


def check_messages(messages: list[dict[str, Any]], options: Options) -> None:
    """Roles, content as text, answers after their calls, arguments in the wording that was asked for."""
    open_calls: set[str] = set()
    for message in messages:
        role = message["role"]
        assert role in {"system", "user", "assistant", "tool"}
        assert isinstance(message["content"], str)
        if role == "assistant":
            assert set(message) <= {"role", "content", "reasoning_content", "tool_calls"}
            assert "reasoning_content" not in message or options.reasoning == "field"
            for call in message.get("tool_calls", ()):
                assert set(call) == {"id", "type", "function"}
                assert set(call["function"]) == {"name", "arguments"}
                arguments = call["function"]["arguments"]
                assert isinstance(arguments, str if options.arguments == "text" else dict)
                if isinstance(arguments, str) and options.malformed == "dropped":
                    assert isinstance(json.loads(arguments), dict)
                open_calls.add(call["id"])
        elif role == "tool":
            assert message["tool_call_id"] in open_calls
            assert isinstance(message["name"], str)
        else:
            assert set(message) == {"role", "content"}


def check_nested_tools(tools: Iterable[dict[str, Any]], *, parameters: type = dict) -> None:
    for tool in tools:
        assert set(tool) == {"type", "function"}
        assert tool["type"] == "function"
        assert set(tool["function"]) == {"name", "description", "parameters"}
        assert isinstance(tool["function"]["parameters"], parameters)


def check_tools_column(row: Row, options: Options) -> None:
    if options.tools == "column":
        check_nested_tools(row["tools"])
    elif options.tools == "text":
        check_nested_tools(json.loads(row["tools"]))
    else:
        assert "tools" not in row


def check_demonstration(row: Row, options: Options) -> None:
    check_messages(row["messages"], options)
    assert row["messages"][-1]["role"] == "assistant"


def check_messages_with_tools(row: Row, options: Options) -> None:
    check_demonstration(row, options)
    check_tools_column(row, options)


def check_prompt_completion(row: Row, options: Options) -> None:
    check_messages([*row["prompt"], *row["completion"]], options)
    assert row["completion"][0]["role"] == "assistant"
    assert row["completion"][-1]["role"] == "assistant"
    check_tools_column(row, options)


def check_one_turn(row: Row, options: Options) -> None:
    check_prompt_completion(row, options)
    assert len(row["completion"]) == 1


def check_tokens(row: Row, options: Options) -> None:
    assert len(row["input_ids"]) == len(row["labels"]) > 0
    assert all(label in (-100, one) for one, label in zip(row["input_ids"], row["labels"], strict=True))


def check_trl_pair(row: Row, options: Options) -> None:
    prompt = row.get("prompt", [])
    assert ("prompt" in row) == (options.prompt == "explicit")
    for side in ("chosen", "rejected"):
        check_messages([*prompt, *row[side]], options)
        assert row[side][-1]["role"] == "assistant"
    if options.level == "step" and options.prompt == "explicit":
        assert len(row["chosen"]) == len(row["rejected"]) == 1
    assert row["chosen"] != row["rejected"]
    check_tools_column(row, options)


def check_nemo_rl_pair(row: Row, options: Options) -> None:
    assert [one["rank"] for one in row["completions"]] == [0, 1]
    for one in row["completions"]:
        check_messages([*row["context"], *one["completion"]], options)
        assert [message["role"] for message in one["completion"]] == ["assistant"]
    assert "tools" not in row


def check_openrlhf_pair(row: Row, options: Options) -> None:
    for side in ("chosen_messages", "rejected_messages"):
        check_messages([*row["context_messages"], *row[side]], options)
        assert row[side][0]["role"] == row[side][-1]["role"] == "assistant"
    assert not {"prompt", "chosen", "rejected", "tools"} & set(row)


def check_axolotl(row: Row, options: Options) -> None:
    check_demonstration(row, options)
    if options.tools == "column":
        check_nested_tools(row["tools"], parameters=str)
        for tool in row["tools"]:
            assert isinstance(json.loads(tool["function"]["parameters"]), dict)


def check_text_pair(row: Row, options: Options) -> None:
    assert set(row) - set(PAIR_FEATURES) == {"prompt", "chosen", "rejected"}
    assert row["prompt"].endswith("<|im_start|>assistant\n")
    for side in ("chosen", "rejected"):
        assert row[side].endswith("<|im_end|>")
        assert not row[side].startswith("<|im_start|>")


def check_sharegpt(row: Row, options: Options) -> None:
    asking = {"human", "observation"}
    turns = row["conversations"]
    for place, turn in enumerate(turns):
        assert set(turn) == {"from", "value"}
        assert (turn["from"] in asking) == (place % 2 == 0)
        assert turn["from"] in {"human", "observation", "gpt", "function_call"}
        assert isinstance(turn["value"], str)
        if turn["from"] == "function_call":
            check_call_text(turn["value"])
    assert isinstance(row["system"], str)
    assert row["tools"] == "" or all({"name", "parameters"} <= set(one) for one in json.loads(row["tools"]))


def read_function_turn(value: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the text before the calls, and the calls, as FunctionFormatter of LLaMA-Factory 0.9.5 reads them."""
    if block := re.search(r"<tool_call>(.*?)</tool_call>", value, re.DOTALL):
        before, called = value.replace(block[0], ""), block[1]
    elif thought := re.search(r"<think>\n(.*?)\n</think>\n\n", value, re.DOTALL):
        before, called = thought[0], value.replace(thought[0], "")
    else:
        before, called = "", value
    calls = json.loads(called)
    return before, calls if isinstance(calls, list) else [calls]


def check_call_text(value: str) -> None:
    for call in read_function_turn(value)[1]:
        assert set(call) == {"name", "arguments"}
        assert isinstance(call["arguments"], dict)


def check_sharegpt_whole(row: Row, options: Options) -> None:
    check_sharegpt(row, options)
    assert len(row["conversations"]) % 2 == 0


def check_sharegpt_pair(row: Row, options: Options) -> None:
    check_sharegpt(row, options)
    assert len(row["conversations"]) % 2 == 1
    for side in ("chosen", "rejected"):
        assert set(row[side]) == {"from", "value"}
        assert row[side]["from"] in {"gpt", "function_call"}


def check_openai_messages(messages: list[dict[str, Any]]) -> None:
    for message in messages:
        assert "reasoning_content" not in message
        assert "name" not in message
        assert message.get("content") is not None or message["tool_calls"]
        for call in message.get("tool_calls", ()):
            assert isinstance(call["function"]["arguments"], str)
        assert message["role"] != "tool" or message["tool_call_id"]


def check_openai(row: Row, options: Options) -> None:
    assert set(row) in ({"messages"}, {"messages", "tools", "parallel_tool_calls"})
    check_openai_messages(row["messages"])
    assert row["messages"][-1]["role"] == "assistant"


def check_openai_pair(row: Row, options: Options) -> None:
    assert set(row) == {"input", "preferred_output", "non_preferred_output"}
    check_openai_messages(row["input"]["messages"])
    for side in ("preferred_output", "non_preferred_output"):
        assert [message["role"] for message in row[side]] == ["assistant"]
        check_openai_messages(row[side])


def check_verl(row: Row, options: Options) -> None:
    messages = json.loads(row["messages"])
    check_messages(messages, options)
    assert messages[-1]["role"] == "assistant"
    check_nested_tools(json.loads(row["tools"]))


def check_kto(row: Row, options: Options) -> None:
    check_prompt_completion(row, options)
    assert isinstance(row["label"], bool)


def check_sharegpt_label(row: Row, options: Options) -> None:
    check_sharegpt_whole(row, options)
    assert isinstance(row["kto_tag"], bool)


def check_scored(row: Row, options: Options) -> None:
    check_messages([*row["prompt"], *row["completion"]], options)
    assert len(row["input_ids"]) == len(row["loss_mask"]) == len(row["logprobs"])
    assert isinstance(row["zero_variance"], bool)
    marked = [0] * len(row["loss_mask"])
    for one in row["sampled"]:
        assert set(one) - {"temperature", "grammar"} == {"version", "call", "start", "end"}
        marked[one["start"] : one["end"]] = [1] * (one["end"] - one["start"])
    assert marked == row["loss_mask"]
    assert 0 <= row["captured_calls"] <= row["calls"]


def check_art(row: Row, options: Options) -> None:
    """The fields of art.Trajectory: messages, tools, numbers as metrics, scalars as metadata."""
    check_messages(row["messages_and_choices"], options)
    assert set(row) - {"tools"} == {"messages_and_choices", "reward", "metrics", "metadata", "logs"}
    assert row.get("tools") != []
    assert all(isinstance(value, float) for value in row["metrics"].values())
    assert all(isinstance(value, str | int | float | bool) for value in row["metadata"].values())
    assert isinstance(row["metadata"]["task_id"], int)


CHECKS: dict[str, Check] = {
    "art_trajectories": check_art,
    "atif": check_trajectory,
    "otel_genai": check_trace,
    "trl_sft": check_messages_with_tools,
    "trl_sft_completion": check_prompt_completion,
    "trl_sft_turns": check_one_turn,
    "trl_sft_tokens": check_tokens,
    "trl_dpo": check_trl_pair,
    "trl_orpo": check_text_pair,
    "trl_reward": check_trl_pair,
    "trl_kto": check_kto,
    "nemo_rl_sft": check_messages_with_tools,
    "nemo_rl_dpo": check_nemo_rl_pair,
    "verl_sft": check_verl,
    "openrlhf_sft": check_demonstration,
    "openrlhf_dpo": check_openrlhf_pair,
    "axolotl_sft": check_axolotl,
    "axolotl_dpo": check_text_pair,
    "llama_factory_sft": check_sharegpt_whole,
    "llama_factory_dpo": check_sharegpt_pair,
    "llama_factory_kto": check_sharegpt_label,
    "unsloth_sft": check_prompt_completion,
    "openai_sft": check_openai,
    "openai_dpo": check_openai_pair,
    "scored_rollouts": check_scored,
}
