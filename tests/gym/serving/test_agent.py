import asyncio
import json

import pytest
from openai.types.responses import Response

from apps.gym.errors import EnvironmentFault
from apps.gym.loop.agent_loop import Harness
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.own_verifier import UnverifiedServer
from apps.gym.serving.served_agent import ServedAgent
from apps.gym.serving.served_request import IncomingRequest, answer_always
from apps.gym.tasks.rollout_keys import own_task
from apps.gym.traces.tokens import capture_tokens
from apps.gym.wires.protocol import Reply
from apps.gym.wires.scripted import ScriptedPolicy

ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "What is (3 + 4) * 12? Box it."}]},
    "expected_answer": "84",
    "_ng_task_index": 3,
    "_ng_rollout_index": 0,
}


def agent(*, policy=None, server=None, seconds=120.0, seats=4, **harness):
    return ServedAgent(
        name="ours",
        harness=Harness(**harness),
        policy=policy or ScriptedPolicy(),
        server=server or InProcessServer("calculator", name="calculator"),
        seats=seats,
        seconds=seconds,
    )


def post(served, path, body):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = asyncio.run(answer_always(served, IncomingRequest(method="POST", path=path, body=raw), seconds=120))
    return answer.status, json.loads(answer.body)


def test_a_run_answers_with_the_verify_reply():
    status, reply = post(agent(system_prompt="Use the tool."), "run", ROW)
    assert (status, reply["reward"]) == (200, 1.0)
    assert (reply["expected_answer"], reply["_ng_task_index"]) == ("84", 3)
    kinds = [item["type"] for item in reply["response"]["output"]]
    assert {"function_call", "function_call_output", "message"} <= set(kinds)
    assert [item.type for item in Response.model_validate(reply["response"]).output] == kinds
    asked = reply["responses_create_params"]
    assert [item["role"] for item in asked["input"]] == ["system", "user"]
    assert [tool["name"] for tool in asked["tools"]] == ["calculator"]
    assert reply["gymweb"]["stop_reason"] == "answered"
    assert "extracted_answer" in reply["_gymweb_details"]
    assert own_task(reply) == {"responses_create_params": asked, "expected_answer": "84"}


def test_a_run_has_the_trajectory_that_nemo_gym_checks():
    told = post(agent(), "run", ROW)[1]["ng_trajectory"]
    assert (told["task_id"], told["rollout_id"], told["gaps"]) == ("3", "3-0", [])
    assert [turn["turn_no"] for turn in told["turns"]] == [1, 2]
    assert [turn["answer"][-1]["type"] for turn in told["turns"]] == ["function_call", "message"]
    used = [[reference["model_call_id"] for reference in turn["model_calls"]] for turn in told["turns"]]
    assert used == [[call["model_call_id"]] for call in told["model_calls"]]
    assert all(call["token_stats"]["completion_tokens"] > 0 for call in told["model_calls"])
    (tool,) = told["tool_calls"]
    assert (tool["tool_name"], tool["status"]) == ("calculator", "completed")


def test_rollouts_of_one_task_differ_and_come_out_the_same_again():
    served = agent(policy=ScriptedPolicy(mistake_rate=0.5))
    rewards = [[post(served, "run", ROW | {"_ng_rollout_index": n})[1]["reward"] for n in range(12)] for _ in range(2)]
    assert rewards[0] == rewards[1]
    assert set(rewards[0]) == {0.0, 1.0}


def test_a_prompt_alone_is_attempted_without_a_verdict():
    status, response = post(agent(), "v1/responses", ROW["responses_create_params"])
    assert (status, response["object"], "reward" in response) == (200, "response", False)
    assert "84" in Response.model_validate(response).output_text


class OneReply:
    async def ask(self, ask):
        said = {"type": "message", "role": "assistant", "content": "\\boxed{84}"}
        return Reply(items=[said], finish_reason="stop", tokens=capture_tokens([1, 2], [3], [-0.5]))


def test_captured_tokens_are_on_the_items_that_trainers_read():
    item = post(agent(policy=OneReply()), "run", ROW)[1]["response"]["output"][-1]
    wanted = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    assert {key: item[key] for key in wanted} == wanted


def test_without_a_verifier_the_reward_says_that_it_is_none():
    server = UnverifiedServer(InProcessServer("calculator", name="calculator"))
    reply = post(agent(server=server), "run", ROW)[1]
    assert (reply["reward"], reply["verification_skipped"]) == (0.0, True)


def test_a_judge_that_failed_is_no_score():
    reply = post(agent(server=InProcessServer("judged", name="judged")), "run", ROW)
    assert (reply[0], reply[1]["_ng_failure_class"], reply[1]["reward"]) == (200, "judge_failed", 0.0)


def test_a_failure_inside_is_a_500_with_its_text():
    class Gone:
        name = "gone"

        async def seed_session(self, row, *, seed):
            raise EnvironmentFault("nobody is there")

    assert post(agent(server=Gone()), "run", ROW) == (500, "EnvironmentFault: nobody is there")


def test_an_attempt_that_takes_too_long_is_told_so():
    class Slow:
        async def ask(self, ask):
            await asyncio.sleep(30)

    status, said = post(agent(policy=Slow(), seconds=0.05), "run", ROW)
    assert (status, said) == (500, "TimedOut: ours: the attempt took longer than 0.05 s")


def test_no_more_attempts_are_in_flight_than_there_are_seats():
    class Counting:
        now = most = 0

        async def ask(self, ask):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.01)
            self.now -= 1
            return await OneReply().ask(ask)

    policy = Counting()
    served = agent(policy=policy, seats=2)

    async def run():
        asked = IncomingRequest(method="POST", path="run", body=json.dumps(ROW).encode())
        return await asyncio.gather(*(served.answer(asked) for _ in range(6)))

    assert [answer.status for answer in asyncio.run(run())] == [200] * 6
    assert policy.most == 2


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("run", b"{oops", 422),
        ("run", {}, 422),
        ("v1/responses", {}, 422),
        ("v1/responses", {"input": "x", "stream": True}, 422),
        ("nope", {}, 404),
    ],
)
def test_bad_input_gets_a_clear_error(path, body, status):
    answered, said = post(agent(), path, body)
    assert (answered, bool(said["detail"])) == (status, True)


def test_metrics_are_aggregated_as_environments_do():
    reply = post(agent(), "aggregate_metrics", {"verify_responses": [{"reward": 1.0}]})[1]
    assert reply["key_metrics"] == {"mean/reward": 1.0}
