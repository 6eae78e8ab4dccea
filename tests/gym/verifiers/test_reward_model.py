"""Reward models over a real socket, with replies that vLLM 0.32 gave for a classifier of two classes and of one."""

import asyncio
import json

import pytest
from aiohttp import web

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.errors import JudgeError, VerifierError
from apps.gym.traces.items import message
from apps.gym.verifiers.parameters_reader import VerifierMisconfigured
from apps.gym.verifiers.registry import asks_judge, find_problems, read_verifier
from apps.gym.verifiers.verification import verify_attempt
from apps.gym.wires.scripted import ScriptedPolicy
from tests.gym.judging.judges import make_judge
from tests.gym.verifiers.cases import MISCONFIGURED, REFUSED
from tests.gym.verifiers.replies import attempt, calls, returns, says
from tests.plain_policies import plain_policy

USAGE = {
    "prompt_tokens": 17,
    "total_tokens": 17,
    "completion_tokens": 0,
    "prompt_tokens_details": None,
    "completion_tokens_details": None,
}
PROMPT = "What is 3 * 4?"
ANSWER = attempt(says("12"))
TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 400 tokens. However, your prompt contains at least 401 "
        "input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
        "prompt. (parameter=input_tokens, value=401)",
        "type": "BadRequestError",
        "param": "input_tokens",
        "code": 400,
    }
}


def listed(**result):
    return {"id": "x-1", "object": "list", "created": 1, "model": "rm", "data": [result], "usage": USAGE}


def probs(*numbers, label="LABEL_0"):
    return listed(index=0, label=label, probs=list(numbers), num_classes=len(numbers))


def pooled(data):
    return listed(index=0, object="pooling", data=data)


def scored(number):
    return listed(index=0, object="score", score=number)


def said(text):
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "r", "object": "chat.completion", "model": "rm", "choices": [choice], "usage": USAGE}


TWO = probs(0.5055497884750366, 0.4944501519203186)
LOGITS = probs(-0.2305276095867157, -0.252727746963501)
SIGMOID, POOLING = {"calibration": "sigmoid"}, {"endpoint": "pooling"}
MINMAX = {"endpoint": "pooling", "calibration": "minmax", "low": -5.0, "high": 5.0}
CHAT = {"endpoint": "chat", "calibration": "minmax", "low": -10.0, "high": 10.0}

CASES = [
    ({"index": 1}, TWO, 0.4944501519203186),
    ({"index": 0}, TWO, 0.5055497884750366),
    ({}, probs(1.0), 1.0),
    ({}, probs(0.0), 0.0),
    ({"index": 1, **SIGMOID}, LOGITS, 0.4371522219),
    ({**SIGMOID, "slope": 2.0, "intercept": -1.0}, probs(0.5), 0.5),
    (SIGMOID, probs(-4_000.0), 0.0),
    (SIGMOID, probs(4_000.0), 1.0),
    ({"endpoint": "score"}, scored(0.25), 0.25),
    ({**POOLING, "index": 1}, pooled([0.25, 0.75]), 0.75),
    (POOLING, pooled([[0.1], [0.9], [0.5]]), 0.5),
    (MINMAX, pooled([2.5]), 0.75),
    (MINMAX, pooled([7.5]), 1.0),
    (MINMAX, pooled([-7.5]), 0.0),
    (CHAT, said("reward:-6.90625"), 0.1546875),
    (CHAT, said(" 5 "), 0.75),
    ({}, TWO, REFUSED),
    ({"index": 2}, TWO, REFUSED),
    ({}, probs(1.5), REFUSED),
    (MINMAX, pooled([None]), REFUSED),
    (MINMAX, "NaN", REFUSED),
    ({"index": 1, **SIGMOID}, TWO, REFUSED),
    (POOLING, pooled([0.1] * 5_000), REFUSED),
    (POOLING, pooled([]), REFUSED),
    (POOLING, TWO, REFUSED),
    (CHAT, said("I give it 5 of 10."), REFUSED),
    (CHAT, said("helpful:3.1,correct:0"), REFUSED),
    ({}, (400, TOO_LONG), REFUSED),
    ({}, (404, {"detail": "Not Found"}), REFUSED),
    ({"calibration": "minmax", "low": 1.0, "high": 1.0}, TWO, MISCONFIGURED),
]


class Server:
    """Answers every path with one reply, and keeps what was requested."""

    def __init__(self, reply, seconds=0.0):
        self.reply, self.asked, self.seconds = reply, [], seconds

    async def answer(self, request):
        self.asked.append((request.path, await request.json()))
        await asyncio.sleep(self.seconds)
        status, reply = self.reply if isinstance(self.reply, tuple) else (200, self.reply)
        text = json.dumps(pooled([float("nan")])) if reply == "NaN" else json.dumps(reply)
        return web.Response(text=text, status=status, content_type="application/json")


def score(given, reply, *responses, judgements=None, seconds=0.0, row=None):
    """The rewards of the responses, verified at once, with the server and the judgements."""
    verifier = read_verifier({"type": "reward_model", **given})
    row = row or {"responses_create_params": {"input": PROMPT}}

    async def run():
        server = Server(reply, seconds)
        app = web.Application()
        app.router.add_post("/{path:.*}", server.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        policy = plain_policy(outbound, base_urls=[url], model_name="rm", wire="chat", max_tries=1)
        judge = make_judge(policy)
        opened = [judge.open_judgement(seed=1) for _ in responses]
        try:
            pairs = zip(responses, opened, strict=True)
            found = [verify_attempt(verifier, row, one, judgement=judgement) for one, judgement in pairs]
            return await asyncio.gather(*found, return_exceptions=True), server, opened
        finally:
            await outbound.close()
            await runner.cleanup()

    return asyncio.run(run())


def refusal(given, reply, response=ANSWER):
    ([error], _, _) = score(given, reply, response)
    assert isinstance(error, JudgeError)
    return str(error)


@pytest.mark.parametrize(("given", "reply", "reward"), CASES)
def test_reward_model(given, reply, reward):
    if reward == MISCONFIGURED:
        with pytest.raises(VerifierMisconfigured):
            read_verifier({"type": "reward_model", **given})
        return
    if reward == REFUSED:
        assert refusal(given, reply)
        return
    ([found], _, [judgement]) = score(given, reply, ANSWER)
    assert found.value == pytest.approx(reward, abs=1e-8)
    assert found.components["reward_model"] == found.value
    [call] = judgement.calls
    assert (call.question, call.verdict["raw_score"]) == ("reward", found.components["raw_score"])


def test_a_classifier_reads_the_conversation_without_reasoning_and_gives_scores_before_the_softmax():
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "secret"}]}
    response = attempt(thought, calls("multiply", {"a": 3}), returns("12"), says("12"))
    row = {"responses_create_params": {"input": PROMPT, "instructions": "Be brief."}}
    ([reward], server, [judgement]) = score({"index": 1, **SIGMOID}, LOGITS, response, row=row)
    [(path, body)] = server.asked
    assert (path, body["model"], body["use_activation"], "input" in body) == ("/classify", "rm", False, False)
    assert [one["role"] for one in body["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert "secret" not in json.dumps(body)
    assert reward.components["raw_score"] == -0.252727746963501
    assert reward.explanation == "score -0.252728, class LABEL_0"
    assert judgement.calls[0].usage["input_tokens"] == 17


@pytest.mark.parametrize(
    ("given", "reply", "path", "sent"),
    [
        ({"reads": "answer", "index": 0}, TWO, "/classify", {"use_activation": True, "input": "12"}),
        ({**POOLING, "reads": "answer", "index": 0}, pooled([0.1, 0.9]), "/pooling", {"input": "12"}),
        ({"endpoint": "score"}, scored(0.5), "/score", {"text_1": PROMPT, "text_2": "12"}),
        (CHAT, said("1"), "/v1/chat/completions", {"temperature": 0}),
    ],
)
def test_each_endpoint_has_its_path_and_its_body(given, reply, path, sent):
    (_, server, _) = score(given, reply, ANSWER)
    [(asked, body)] = server.asked
    assert (asked, {name: body[name] for name in sent}) == (path, sent)


@pytest.mark.parametrize(
    ("given", "reply", "told"),
    [
        ({}, (400, TOO_LONG), "context_length"),
        ({}, TWO, "Set `index`"),
        ({"index": 2}, TWO, "2 scores, none at 2"),
        ({"index": 1, **SIGMOID}, TWO, "use_activation"),
        (POOLING, pooled([1.5]), "sigmoid or minmax"),
        (POOLING, pooled([0.1] * 5_000), "embedding model"),
    ],
)
def test_a_failure_is_named(given, reply, told):
    assert told in refusal(given, reply)


def test_equal_texts_need_one_call_and_others_their_own():
    other = attempt(says("13"))
    rewards, server, judgements = score({"index": 1}, TWO, ANSWER, ANSWER, other, ANSWER, seconds=0.05)
    assert {reward.value for reward in rewards} == {0.4944501519203186}
    assert sorted(body["messages"][1]["content"] for _, body in server.asked) == ["12", "13"]
    called = sorted((one.calls[0].question, one.calls[0].usage["input_tokens"]) for one in judgements)
    assert called == [("reward", 17), ("reward", 17), ("reward, cached", 0), ("reward, cached", 0)]


def test_a_failed_call_is_not_kept():
    rewards, server, _ = score({}, (400, TOO_LONG), ANSWER, ANSWER)
    assert [type(reward) for reward in rewards] == [JudgeError, JudgeError]
    assert len(server.asked) == 2


def test_parts_of_a_hybrid_with_different_classes_share_one_call():
    parts = [{"name": f"p{n}", "verifier": {"type": "reward_model", "index": n}} for n in range(2)]
    hybrid = {"type": "hybrid", "components": parts}
    assert asks_judge(hybrid)
    ([reward], server, _) = score(hybrid, TWO, ANSWER)
    assert reward.value == pytest.approx(0.5)
    assert reward.components["p1.raw_score"] == 0.4944501519203186
    assert len(server.asked) == 1


def test_a_scripted_model_and_a_missing_judge_give_no_reward():
    verifier = read_verifier({"type": "reward_model"})
    row = {"responses_create_params": {"input": [message("user", PROMPT)]}}
    judgement = make_judge(ScriptedPolicy()).open_judgement(seed=1)
    with pytest.raises(JudgeError, match="no scores"):
        asyncio.run(verify_attempt(verifier, row, ANSWER, judgement=judgement))
    with pytest.raises(VerifierError, match="no judge model"):
        asyncio.run(verify_attempt(verifier, row, ANSWER))


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"calibration": "minmax", "low": 2.0, "high": 1.0}, "/high"),
        ({"slope": 2.0}, "/slope"),
        ({"calibration": "sigmoid", "slope": 0.0}, "/slope"),
        ({"calibration": "sigmoid", "low": -1.0}, "/low"),
        ({"endpoint": "score", "index": 1}, "/index"),
    ],
)
def test_parameters_without_use_are_refused(given, pointer):
    assert [place for place, _ in find_problems({"type": "reward_model", **given})] == [pointer]
