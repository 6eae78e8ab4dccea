"""Set-up notices: servers that are set up wrongly, run by the engine, and right ones beside them.

Expected: a broken set-up ends as completed with reward 0, and collection, rollout, API and gate say why.
"""

import asyncio
import itertools
from datetime import timedelta

import pytest
from aiohttp import web
from asgiref.sync import async_to_sync, sync_to_async
from django.utils import timezone

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.rechecks.recheck_jobs import apply_recheck, continue_recheck, queue_recheck
from apps.gym.setup_notices import NOTICES, OF_ROLLOUTS, SetupSigns
from apps.gym.stored_rules import RULES
from apps.gym.traces.events import ModelCall, Prompt
from apps.gym.traces.items import message
from apps.gym.traces.tokens import capture_tokens, pack_tokens
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.metrics.figure_blocks import count_marked_blocks
from apps.rollouts.metrics.regression_gate import check_regression
from apps.rollouts.metrics.trainable_rollouts import read_setup_notices, read_trainability
from apps.rollouts.models import Collection, FigureMark
from apps.rollouts.search.filters.filter_sql import filter_rollouts
from apps.rollouts.steering.controls import resume_collection
from apps.rollouts.steering.local_worker import finish_collection
from tests.dashboard.pages import signed_in
from tests.factories import make_policy_model, make_row
from tests.rollouts.work import plan, serve_chat

ENGINE = pytest.mark.usefixtures("migrated")
TASKS = [make_row(f"What is {n} * 3?", str(n * 3)) for n in range(4)]
CALL = '{"name": "calculator", "arguments": {"expression": "2 * 3"}}'


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.OUTBOUND_ALLOW, settings.WORKER_BACKGROUND_JOBS = ["127.0.0.1"], []
    settings.WORKER_GRACE_SECONDS = 5


def reply(text="\\boxed{77}", *, finish="stop", tokens=5, ids=None, **fields):
    """A chat completion. `ids` are the ids of prompt and reply."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **fields}, "finish_reason": finish}
    usage = {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens}
    body = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    if ids:
        prompt, generated = ids
        body["prompt_token_ids"], choice["token_ids"] = prompt, generated
        usage["prompt_tokens"] = len(prompt)
        logprobs = [
            {"token": f"token_id:{one}", "logprob": -0.5, "bytes": None, "top_logprobs": []} for one in generated
        ]
        choice["logprobs"] = {"content": logprobs}
    return body


def collect(
    answer, *, rows=TASKS, repeats=1, environment="calculator", model=None, seconds=0.0, **fields
) -> Collection:
    """Run a collection with a server that answers `answer(request body)`, until it ends or pauses.

    A reply takes `seconds`.
    """
    given = {"provider": "compatible", "model_name": "m", **(model or {})}

    async def serve(request: web.Request) -> web.Response:
        await asyncio.sleep(seconds)
        return web.json_response(answer(await request.json()))

    def prepare(port: int) -> Collection:
        policy = make_policy_model(base_url=f"http://127.0.0.1:{port}/v1", **given)
        return plan(rows, model=policy, repeats=repeats, environment=environment, **fields)

    async def run() -> Collection:
        runner, port = await serve_chat(serve)
        try:
            collection = await sync_to_async(prepare)(port)
            return await finish_collection(collection, progress=lambda _: None)
        finally:
            await runner.cleanup()

    return async_to_sync(run)()


def shown(collection):
    """The notices of a collection: number of rollouts by kind."""
    return {notice.kind: notice.rollouts for notice in read_setup_notices(collection)}


def always(*given, **fields):
    return lambda _: reply(*given, **fields)


TEXT_CALLS = {
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "after a sentence": f"I will compute it.\n<tool_call>{CALL}</tool_call>",
    "mistral": f"[TOOL_CALLS][{CALL}]",
    "mistral by name": '[TOOL_CALLS]calculator{"expression": "2 * 3"}',
    "llama": f"<|python_tag|>{CALL}",
    "llama function": '<function=calculator>{"expression": "2 * 3"}</function>',
    "qwen coder": "<tool_call>\n<function=calculator>\n<parameter=expression>\n2 * 3\n</parameter>\n</function>",
    "glm": "<tool_call>calculator\n<arg_key>expression</arg_key>\n<arg_value>2 * 3</arg_value>\n</tool_call>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.calculator:0<|tool_call_argument_begin|>{}",
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>calculator",
    "gpt-oss": "<|channel|>commentary to=functions.calculator <|constrain|>json<|message|>{}",
    "bare": CALL,
    "bare list": f"[{CALL}]",
    "fenced": f"```json\n{CALL}\n```",
    "bare with parameters": '{"type": "function", "function": {"name": "calculator", "parameters": {}}}',
    "python": '[calculator(expression="2 * 3")]',
    "python without arguments": "[calculator()]",
    "tool code": '```tool_code\nprint(calculator(expression="2 * 3"))\n```',
    "tool code after a sentence": 'I compute it.\n```tool_code\ncalculator(expression="2 * 3")\n```',
    "python objects": "{'name': 'calculator', 'arguments': {'expression': '2 * 3'}}",
    "tool and args": '{"tool": "calculator", "args": {"expression": "2 * 3"}}',
    "tool and input": '{"tool_name": "calculator", "tool_input": {"expression": "2 * 3"}}',
    "calls in tags": f"<function_calls>\n[{CALL}]\n</function_calls>",
    "waves": f"~~~json\n{CALL}\n~~~",
    "several": f"{CALL}\n{CALL}",
    "several with semicolons": f"{CALL}; {CALL}",
    "after a sentence, bare": f"I will compute it.\n\n{CALL}",
    "after a sentence, fenced": f"I will compute it.\n\n```json\n{CALL}\n```",
    "several fenced": f"```json\n{CALL}\n```\n\n```json\n{CALL}\n```",
    "pretty": '{\n  "name": "calculator",\n  "arguments": {\n    "expression": "2 * 3"\n  }\n}',
    "react": 'Thought: I compute it.\nAction: calculator\nAction Input: {"expression": "2 * 3"}',
    "react in bold": '**Action:** `calculator`\n**Action Input:** {"expression": "2 * 3"}',
    "mistral without marks": 'calculator{"expression": "2 * 3"}',
    "mistral with arguments": 'calculator[ARGS]{"expression": "2 * 3"}',
    "kimi without marks": 'functions.calculator:0{"expression": "2 * 3"}',
    "llama built-in": '<|python_tag|>calculator.call(expression="2 * 3")',
    "gpt-oss without marks": 'commentary to=functions.calculator json{"expression": "2 * 3"}',
}
NO_CALLS = {
    "the syntax of a function": "<function=calculator> is the syntax.",
    "the syntax of an invocation": 'The mark <invoke name="calculator"> belongs to another API.',
    "the syntax at the start": '<invoke name="calculator"> belongs to another API',
    "example between waves": f"Write this:\n~~~\n<tool_call>{CALL}</tool_call>\n~~~\n",
    "example in indented code": f"Write this:\n\n    <tool_call>{CALL}</tool_call>\n",
    "object in indented code": f"Write this:\n\n    {CALL}\n",
    "tool and result": '{"tool": "calculator", "args": 3}',
    "code with a variable": "calculator(x)",
    "python with another tool": '[search(query="calculator")]',
    "nested code": "-" * 15_000 + "calculator()",
    "prose": "Such models write `<tool_call>` before they use the calculator. The answer is 77.",
    "prose without quotation marks": "The mark <tool_call> begins a call.",
    "example": f"Write this:\n```xml\n<tool_call>{CALL}</tool_call>\n```\nThen wait.",
    "another tool": '{"name": "search", "arguments": {}}',
    "an answer in JSON": '{"name": "calculator", "price": 5}',
    "malformed": '<tool_call>{"name": "calculator", "arguments": {"expression": "2</tool_call>',
    "a word of the tool": "The calculator (a tool) says 77.",
    "list": "[1, 2, 3]",
    "call before more text": f"Such a call is\n{CALL}\nand the server runs it.",
    "fenced call before more text": f"Write\n```json\n{CALL}\n```\nto use the calculator.",
    "several, one of another tool": f'{CALL}\n{{"name": "search", "arguments": {{}}}}',
    "an action in prose": "My Action: calculator work. The Action Input was wrong.",
    "react with another tool": 'Action: search\nAction Input: "calculator"',
    "result in JSON": '{"tool": "calculator", "result": 6}',
    "a set": "calculator{6}",
    "code": "```python\ncalculator = {}\n```",
    "mark deep in a code block": f"```\nfirst line\n<tool_call>{CALL}</tool_call>\n```\n",
    "a mark in a sentence": "Models write <tool_call> around a call of the calculator.",
    "a definition": '{"name": "calculator", "parameters": {"type": "object", "properties": {}}}',
    "definitions": '[{"name": "calculator", "description": "Computes.", "parameters": {"type": "object"}}]',
    "a number of parameters": '{"name": "calculator", "parameters": 3}',
    "code with parentheses": "calculator(x) takes O(n) (amortised)",
    "a sum of calls in code": "calculator(2, 3) + len(calculator(4))",
    "react in a sentence": "Action: calculator\nAction Input is the next line.",
    "nested too deeply": "<tool_call>" + "[" * 200_000 + "calculator",
    "bare and nested too deeply": "[" * 200_000 + "calculator",
}
THOUGHTS = {
    "whole": "<think>\nFirst.\n</think>\n\n77",
    "unfinished": "<think>\nFirst.",
    "lone end": "First.\n</think>\n\n77",
    "empty": "</think>\n\n77",
    "seed": "<seed:think>First.</seed:think>77",
    "mistral": "[THINK]First.[/THINK]77",
    "kimi": "◁think▷First.◁/think▷77",
    "command": "<|START_THINKING|>First.<|END_THINKING|>77",
}
NO_THOUGHTS = {
    "quoted": "The tag `</think>` ends a thought. 77",
    "later": "I write <think> and </think> around thoughts. 77",
    "word": "I think 77",
    "in a sentence": "The </think> tag ends a thought, <think> begins it.",
    "at the end of a sentence": "A thought ends with </think>.",
}


def signs_of(*events, tools=("calculator",)):
    signs = SetupSigns(tools=list(tools))
    for event in events:
        if isinstance(event, Prompt):
            signs.prompts.append(event.items)
        else:
            signs.add(event)
    return signs.names()


def said(text, **fields):
    given = {"finish_reason": "stop", "sampling": {}, **fields}
    return ModelCall(seen=1, items=[message("assistant", text)], **given)


@pytest.mark.parametrize("text", TEXT_CALLS.values(), ids=TEXT_CALLS)
def test_a_tool_call_in_the_text_is_found(text):
    assert signs_of(said(text)) == "text_calls"
    assert signs_of(said(text), tools=()) == ""
    assert signs_of(said(text, sampling={"tool_choice": "none"})) == ""
    # A call that the limit cut off is no call.
    assert signs_of(said(text, finish_reason="max_output_tokens")) == ""
    call = {"type": "function_call", "name": "calculator", "arguments": "{}", "call_id": "1"}
    # The server reads calls.
    assert signs_of(ModelCall(seen=1, items=[call], finish_reason="tool_calls"), said(text)) == ""


def test_a_text_call_names_a_tool_of_its_call():
    text = TEXT_CALLS[next(iter(TEXT_CALLS))]
    given, none = [{"type": "function", "name": "calculator"}], []
    assert signs_of(said("Hm.", tools_in=given), said(text), tools=()) == "text_calls"
    assert signs_of(said("Hm.", tools_in=none), said(text)) == ""


@pytest.mark.parametrize("text", NO_CALLS.values(), ids=NO_CALLS)
def test_text_about_tool_calls_is_no_call(text):
    assert signs_of(said(text)) == ""


@pytest.mark.parametrize("text", THOUGHTS.values(), ids=THOUGHTS)
def test_thinking_tags_in_the_answer_are_found(text):
    assert signs_of(said(text), tools=()) == "thinking_in_answer"


@pytest.mark.parametrize("text", NO_THOUGHTS.values(), ids=NO_THOUGHTS)
def test_text_about_thinking_tags_is_no_thought(text):
    assert signs_of(said(text)) == ""


def test_marks_that_the_prompt_asks_for_are_no_notice():
    asked = Prompt(items=[message("system", "Think in <think> and </think>. Call tools in <tool_call>.")])
    assert signs_of(asked, said(THOUGHTS["whole"])) == ""
    assert signs_of(asked, said(THOUGHTS["lone end"])) == ""
    assert signs_of(asked, said(TEXT_CALLS["hermes"])) == ""
    assert signs_of(asked, said(TEXT_CALLS["mistral"])) == "text_calls"
    listed = Prompt(items=[message("system", "Answer with the XML elements thought and answer.")])
    thought = said("<thought>Hm.</thought><answer>77</answer>")
    assert (signs_of(listed, thought), signs_of(thought)) == ("", "thinking_in_answer")
    react = Prompt(items=[message("system", "Write Action: and Action Input: to call a tool.")])
    assert signs_of(react, said(TEXT_CALLS["react"])) == ""


@pytest.mark.parametrize("reason", ["repetition", "repetition_truncation"])
@ENGINE
def test_replies_that_the_server_cut_as_repetition_are_named(reason):
    collection = collect(always("4 4 4 4", finish=reason), rows=TASKS[:2])
    assert set(collection.rollouts.values_list("stop_reason", "notices")) == {("max_output_tokens", "repetition")}
    assert shown(collection) == {"repetition": 2}
    assert [(one.reason, one.count) for one in read_trainability(collection).left_out] == [("setup_notice", 2)]
    assert filter_rollouts(collection.rollouts.all(), "notice:repetition").count() == 2
    page = signed_in().get(f"/rollouts/{collection.rollouts.first().pk}/").text
    assert 'data-notice="repetition"' in page
    assert shown(collect(always("4 4 4 4", finish="length"), rows=TASKS[:2])) == {}


def test_a_captured_call_is_judged_by_the_tools_that_its_own_request_offers():
    text, tool = TEXT_CALLS["hermes"], {"type": "function", "name": "search"}
    assert signs_of(said(text, call=1, tools_in=[])) == ""
    assert signs_of(said("no", call=1, tools_in=[]), said(text, call=2, parent=1)) == ""
    searching = '<tool_call>{"name": "search", "arguments": {}}</tool_call>'
    assert signs_of(said("no", call=1, tools_in=[tool]), said(searching, call=2, parent=1)) == "text_calls"


@ENGINE
def test_tool_calls_that_stay_text_are_shown_everywhere(tmp_path, settings):
    settings.EXPORTS_DIR = tmp_path
    collection = collect(always(TEXT_CALLS["hermes"]))
    assert collection.state == "completed"
    assert (
        list(collection.rollouts.values_list("reward", "stop_reason", "notices"))
        == [(0.0, "answered", "text_calls")] * 4
    )
    [notice] = read_setup_notices(collection)
    first = collection.rollouts.order_by("pk").first()
    assert (notice.kind, notice.rollouts, notice.example) == ("text_calls", 4, first.pk)
    assert notice.filter == "notice:text_calls"

    client = signed_in()
    page = client.get(f"/collections/{collection.pk}/").text
    assert 'data-notice="text_calls"' in page
    assert "--tool-call-parser" in page
    assert f"/rollouts/{first.pk}/" in page
    assert 'data-notice="text_calls"' in client.get(f"/rollouts/{first.pk}/").text
    listed = client.get(f"/rollouts/?q=notice:text_calls+collection:{collection.pk}").text
    assert listed.count('data-notices="text_calls"') == 4
    metrics = client.get(f"/api/v1/collections/{collection.pk}/metrics/").json()
    assert [(one["kind"], one["rollouts"], one["example"]) for one in metrics["notices"]] == [
        ("text_calls", 4, first.pk)
    ]
    assert client.get(f"/api/v1/rollouts/{first.pk}/").json()["notices"] == ["text_calls"]

    ledger = read_trainability(collection)
    assert (ledger.used, [(one.reason, one.count) for one in ledger.left_out]) == (0, [("setup_notice", 4)])
    assert filter_rollouts(collection.rollouts.all(), ledger.left_out[0].filter).count() == 4

    def export(**filters):
        order = ExportOrder(format="openai_sft", collection=collection, filters={"min_reward": None, **filters})
        return write_export(export=queue_export(order))

    assert (export().rows, export().manifest["counts"]["dropped"]) == (0, {"setup_notice": 4})
    assert export(include_noticed=True).rows == 4


@ENGINE
def test_calls_that_the_server_reads_give_no_notice():
    call = {"id": "1", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "6"}'}}

    def answer(body):
        has_result = body["messages"][-1]["role"] == "tool"
        return reply("6") if has_result else reply(None, finish="tool_calls", tool_calls=[call])

    assert shown(collect(answer)) == {}
    # Without tools, the same text is an answer like any other.
    assert shown(collect(always(TEXT_CALLS["hermes"]), environment="exact_match")) == {}


@ENGINE
def test_an_answer_that_lies_in_the_reasoning_is_named():
    collection = collect(always(None, reasoning_content="\\boxed{77}"))
    assert set(collection.rollouts.values_list("reward", "stop_reason", "notices")) == {
        (0.0, "empty_reply", "answer_in_reasoning")
    }
    assert shown(collection) == {"answer_in_reasoning": 4}
    # The newer name of the field, and an empty text beside it.
    assert shown(collect(always("\n", reasoning="\\boxed{77}"))) == {"answer_in_reasoning": 4}


@ENGINE
def test_reasoning_beside_an_answer_or_before_a_cut_gives_no_notice():
    assert shown(collect(always("77", reasoning_content="Hm."))) == {}
    assert shown(collect(always(None, reasoning_content="Hm.", finish="length"))) == {}
    # Once empty, then answered.
    turns = itertools.count()
    odd = collect(lambda _: reply("77" if next(turns) % 2 else None, reasoning_content="Hm."), concurrency=1)
    assert shown(odd) == {}


@ENGINE
def test_thinking_tags_that_stay_in_the_answer_are_named_unless_the_model_reads_them_there():
    text = THOUGHTS["whole"]
    assert shown(collect(always(text))) == {"thinking_in_answer": 4}
    assert shown(collect(always(THOUGHTS["lone end"]))) == {"thinking_in_answer": 4}
    assert shown(collect(always(text), model={"reasoning": "text"})) == {}


@ENGINE
def test_equal_attempts_are_named_if_the_model_should_vary():
    def long(body):
        return reply(body["messages"][-1]["content"] + " So the answer is 77.", tokens=40)

    collection = collect(long, repeats=4, sampling={"temperature": 1.0})
    assert shown(collection) == {"equal_attempts": 16}
    [notice] = read_setup_notices(collection)
    assert (notice.filter, notice.example) == ("", collection.rollouts.order_by("pk").first().pk)
    # The sibling: the server ignores the seed and the temperature is its own default.
    assert shown(collect(long, repeats=4)) == {"equal_attempts": 16}


@ENGINE
def test_attempts_that_vary_are_short_or_greedy_give_no_notice():
    numbers = itertools.count()
    assert shown(collect(lambda _: reply(f"The answer is {next(numbers)}.", tokens=40), repeats=4)) == {}
    assert shown(collect(always("77", tokens=40), repeats=4, sampling={"temperature": 0})) == {}
    assert shown(collect(always("77", tokens=3), repeats=4)) == {}
    assert shown(collect(always("77", tokens=40), repeats=1)) == {}


LIMITED = {"sampling": {"max_output_tokens": 8}}


@ENGINE
def test_a_server_that_ignores_the_token_limit_is_named():
    assert shown(collect(always("77", tokens=9), **LIMITED)) == {"limit_exceeded": 4}
    assert shown(collect(always("77", tokens=7), **LIMITED)) == {}
    # Without a limit, no length is too long.
    assert shown(collect(always("77", tokens=9))) == {}


@ENGINE
@pytest.mark.parametrize(
    ("wire", "name"),
    [("chat", "max_completion_tokens"), ("responses", "max_output_tokens"), ("messages", "max_tokens")],
)
def test_the_remedy_of_an_ignored_limit_names_the_field_of_the_wire(wire, name):
    def answer(body):
        assert body[name] == 8
        text = {"type": "output_text", "text": "77", "annotations": []}
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
        usage = {"input_tokens": 3, "output_tokens": 9}
        if wire == "responses":
            return {"id": "r", "object": "response", "status": "completed", "output": [said], "usage": usage}
        if wire == "messages":
            return {"id": "m", "content": [{"type": "text", "text": "77"}], "stop_reason": "end_turn", "usage": usage}
        return reply("77", tokens=9)

    provider = "anthropic" if wire == "messages" else "compatible"
    collection = collect(answer, model={"wire": wire, "provider": provider}, **LIMITED)
    [notice] = read_setup_notices(collection)
    assert f"rename `{name}`" in notice.remedy
    page = signed_in().get(f"/rollouts/{notice.example}/").text
    assert (f"<code>{name}</code>" in page, "{limit}" in page) == (True, False)


@ENGINE
def test_a_cut_reply_reported_as_complete_is_named_by_its_missing_end_token():
    capturing = {"provider": "vllm", "capture_tokens": True}
    # 2 ends the turns of the prompt.
    prompt, text, end = [1, 5, 2, 1], [7, 8, 9, 10, 11, 12, 13], 2
    cut = collect(always("77", tokens=8, ids=(prompt, [*text, 14])), rows=TASKS[:2], model=capturing, **LIMITED)
    assert set(cut.rollouts.values_list("stop_reason", "notices")) == {("answered", "cut_unreported")}
    assert shown(cut) == {"cut_unreported": 2}
    whole = collect(always("77", tokens=8, ids=(prompt, [*text, end])), rows=TASKS[:2], model=capturing, **LIMITED)
    assert shown(whole) == {}


@ENGINE
def test_the_end_token_is_read_from_other_replies_if_the_prompt_lacks_it():
    """Templates like those of Mistral and gpt-oss: the turns of the prompt do not end with the end token 2."""
    capturing = {"provider": "vllm", "capture_tokens": True}
    prompt, text = [1, 5, 6], [7, 8, 9, 10, 11, 12, 13]
    rows = [make_row(f"What is {n} * 3?", str(n * 3)) for n in range(6)]

    def run(last):
        def answer(body):
            is_long = any(f"What is {n} " in body["messages"][-1]["content"] for n in (4, 5))
            return reply("77", tokens=8 if is_long else 3, ids=(prompt, [*text, last] if is_long else [7, 8, 2]))

        collection = collect(answer, rows=rows, model=capturing, concurrency=1, **LIMITED)
        return collection, shown(collection)

    whole, notices = run(2)
    assert (notices, whole.completed) == ({}, 6)
    assert run(14)[1] == {"cut_unreported": 2}
    # 5 is a word of the prompt, and 7 of the reply: neither ends a reply.
    assert run(5)[1] == {"cut_unreported": 2}
    cut, notices = run(7)
    assert notices == {"cut_unreported": 2}

    # A recheck learns the same.
    for collection, changed in ((whole, 0), (cut, 2)):
        collection.rollouts.update(notices="")
        recheck = queue_recheck(collection=collection)
        while continue_recheck():
            pass
        recheck.refresh_from_db()
        assert recheck.changed == changed


def test_a_repeated_last_token_is_no_end_token():
    def at_limit(*ids):
        capture = capture_tokens([1, 5], list(ids), [-0.5] * len(ids))
        fields = {"sampling": {"max_output_tokens": 4}, "usage": {"output_tokens": 4}}
        return said("77", tokens=pack_tokens(capture, before=b""), **fields)

    assert signs_of(at_limit(7, 5, 8, 5)) == "cut_unreported"
    assert signs_of(at_limit(7, 9, 8, 5)) == ""


@ENGINE
def test_without_token_ids_several_replies_exactly_at_the_limit_are_the_sign():
    assert shown(collect(always("77", tokens=8), **LIMITED)) == {"cut_unreported": 4}
    assert shown(collect(always("77", tokens=8), rows=TASKS[:1], **LIMITED)) == {}

    def mixed(body):
        return reply("77", tokens=8, finish="length" if "3 * 3" in body["messages"][-1]["content"] else "stop")

    # A server that reports one cut reports all.
    assert shown(collect(mixed, **LIMITED)) == {}


MANY = [make_row(f"What is {n} * 3?", str(n * 3)) for n in range(60)]


@ENGINE
def test_a_collection_pauses_if_its_first_rollouts_all_show_the_same_notice():
    broken, slow = always(TEXT_CALLS["hermes"]), {"rows": MANY, "concurrency": 4, "seconds": 0.1}
    paused = collect(broken, **slow, pause_on_notice=True)
    assert (paused.state, paused.pause_reason) == ("paused", "notice")
    assert 20 <= paused.completed < 40
    page = signed_in().get(f"/collections/{paused.pk}/").text
    assert ("Tool calls left as text" in page, "change the set-up" in page) == (True, True)
    assert resume_collection(collection=paused).state == "running"
    # Off by default.
    off = collect(broken, **slow)
    assert (off.state, off.completed) == ("completed", 60)
    turns = itertools.count()
    mixed = collect(lambda _: reply("77" if next(turns) == 5 else TEXT_CALLS["hermes"]), **slow, pause_on_notice=True)
    assert (mixed.state, shown(mixed)) == ("completed", {"text_calls": 59})


@ENGINE
def test_a_collection_also_pauses_if_all_attempts_are_equal():
    slow = {"repeats": 5, "concurrency": 4, "seconds": 0.1, "pause_on_notice": True}
    paused = collect(always("The answer is 77.", tokens=40), rows=MANY[:12], **slow)
    assert (paused.state, paused.pause_reason) == ("paused", "notice")


@ENGINE
def test_the_gate_names_the_notices_of_both_collections():
    rows = [make_row(f"What is {n} * 3?", str(n * 3)) for n in range(6)]
    baseline = collect(always("77"), rows=rows)
    candidate = collect(always(TEXT_CALLS["hermes"]), rows=rows)
    found = check_regression(candidate, candidate, max_drop=0.0, alpha=0.05)
    assert [(one.kind, one.rollouts) for one in found.notices] == [("text_calls", 6)]
    assert found.verdict == "pass"
    assert check_regression(baseline, baseline, max_drop=0.0, alpha=0.05).baseline_notices == []


@ENGINE
def test_counted_blocks_and_rechecks_give_the_same_notices():
    collection = collect(always(THOUGHTS["whole"]))
    mark_changed((collection.pk, task) for task in collection.version.tasks.values_list("pk", flat=True))
    FigureMark.objects.update(marked_at=timezone.now() - timedelta(hours=1))
    assert count_marked_blocks()
    assert shown(collection) == {"thinking_in_answer": 4}

    # Stored by an earlier version.
    collection.rollouts.update(notices="")
    Collection.objects.filter(pk=collection.pk).update(rules_version=2)
    recheck = queue_recheck(collection=collection)
    while continue_recheck():
        pass
    recheck.refresh_from_db()
    assert recheck.changed == 4
    apply_recheck(recheck=recheck)
    while continue_recheck():
        pass
    collection.refresh_from_db()
    assert collection.rules_version == RULES
    assert shown(collection) == {"thinking_in_answer": 4}


def test_each_kind_is_declared_with_all_that_is_shown():
    assert set(OF_ROLLOUTS) == set(NOTICES) - {"equal_attempts"}
    for name, notice in NOTICES.items():
        assert notice.title and notice.sentence.endswith(".") and notice.remedy.endswith("."), name
        # The filter finds names by parts of the stored text.
        assert not any(name in other for other in NOTICES if other != name)
    assert len(" ".join(OF_ROLLOUTS)) <= 120
