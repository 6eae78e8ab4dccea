"""Rows in tau2's shape: what the criteria demand, and which rows are refused."""

import asyncio
from copy import deepcopy

import pytest

from apps.gym.environments.simulated_user.environment import SimulatedUser
from apps.gym.environments.simulated_user.kit import KIT
from apps.gym.environments.task_generation import Call, Move, say
from apps.gym.errors import JudgeError, VerifierError
from apps.gym.loop.trials.gold_attempts import score_by_environment
from apps.gym.loop.trials.players import play_attempt
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.traces.events import JudgeCall
from apps.gym.wires.protocol import Reply
from tests.gym.judging.judges import Answers, make_judge, said, verdict

TAU2 = {
    "id": "renew-1",
    "description": {"purpose": "Renew a loan", "relevant_policies": None, "notes": None},
    "user_scenario": {"persona": None, "instructions": "You want to renew the loan L-1. Your card number is M-104."},
    "ticket": None,
    "initial_state": {
        "initialization_data": {
            "agent_data": {"loans": {"L-1": {"member": "M-104", "book": "B-01", "due": "2026-05-10", "renewals": 0}}},
            "user_data": {"at_home": ["The Salt Road"]},
        },
        "initialization_actions": [
            {"env_type": "user", "func_name": "set_reminders", "arguments": {"state": "on"}},
        ],
        "message_history": None,
    },
    "evaluation_criteria": {
        "actions": [
            {
                "action_id": "a",
                "requestor": "assistant",
                "name": "renew_loan",
                "arguments": {"loan": "L-1"},
                "info": None,
                "compare_args": None,
            }
        ],
        "env_assertions": [
            {
                "env_type": "user",
                "func_name": "assert_reminders",
                "arguments": {"state": "off"},
                "assert_value": False,
                "message": None,
            }
        ],
        "communicate_info": ["2026-05-31"],
        "nl_assertions": ["The assistant is polite."],
        "reward_basis": ["DB", "COMMUNICATE"],
    },
    "user_tools": ["set_reminders"],
    "responses_create_params": {"input": "Hello."},
}
RENEW = Move(calls=[Call("renew_loan", {"loan": "L-1"})])
TELL = Move(text="It is due on 2026-05-31. Anything else?")


def changed(**criteria):
    row = deepcopy(TAU2)
    row["evaluation_criteria"] |= criteria
    return row


def score(row, *moves, judge=None):
    server = InProcessServer("simulated_user", name="library", judge=judge)
    return asyncio.run(play_attempt(server, row, say(*moves)))


def test_the_default_is_the_final_state_and_what_is_communicated():
    row = changed()
    del row["evaluation_criteria"]["reward_basis"]
    assert score(row, RENEW, TELL)[-1].components == {"db": 1.0, "communicate": 1.0}
    assert score(row, RENEW, TELL)[-1].reward == 1.0
    assert score(row, TELL)[-1].components == {"db": 0.0, "communicate": 1.0}
    assert score(row, TELL)[-1].reward == 0.0
    assert score(row, RENEW, Move(text="Anything else?"))[-1].components == {"db": 1.0, "communicate": 0.0}


@pytest.mark.parametrize(
    ("criteria", "moves", "reward"),
    [
        ({"reward_basis": ["ACTION"]}, [RENEW, TELL], 1.0),
        ({"reward_basis": ["ACTION"]}, [TELL], 0.0),
        ({"reward_basis": ["ENV_ASSERTION"]}, [TELL], 1.0),
        (
            {
                "reward_basis": ["ENV_ASSERTION"],
                "env_assertions": [{"func_name": "assert_loan_count", "arguments": {"member": "M-104", "count": 0}}],
            },
            [RENEW, TELL],
            0.0,
        ),
        ({"reward_basis": ["COMMUNICATE"], "communicate_info": ["1,200"]}, [Move(text="1200. Anything else?")], 1.0),
        ({"reward_basis": ["COMMUNICATE"]}, [RENEW, Move(text="Anything else?")], 0.0),
    ],
)
def test_the_reward_is_the_product_of_the_reward_basis(criteria, moves, reward):
    assert score(changed(**criteria), *moves)[-1].reward == reward


@pytest.mark.parametrize(("compared", "reward"), [(None, 0.0), ([], 1.0), (["member"], 1.0), (["email"], 0.0)])
def test_an_action_compares_the_listed_arguments(compared, reward):
    action = {"name": "set_email", "arguments": {"member": "M-104", "email": "a@b.example"}, "compare_args": compared}
    other = Move(calls=[Call("set_email", {"member": "M-104", "email": "x@b.example"})])
    assert score(changed(actions=[action], reward_basis=["ACTION"]), other, TELL)[-1].reward == reward


def test_a_call_of_the_agent_is_no_action_of_the_user():
    action = {"name": "set_reminders", "arguments": {"state": "on"}, "requestor": "user"}
    row = changed(actions=[action], reward_basis=["ACTION"])
    assert score(row, Move(calls=[Call("set_reminders", {"state": "on"})]), TELL)[-1].reward == 0.0
    row["user_scenario"] = {
        "instructions": {
            "domain": "library",
            "reason_for_call": "No reminders.",
            "task_instructions": 'When asked to switch reminders, call set_reminders({"state": "on"}).',
        }
    }
    assert score(row, Move(text="Please switch reminders."), TELL)[-1].reward == 1.0


@pytest.mark.parametrize(("answers", "reward"), [(["met"], 1.0), (["not met"], 0.0)])
def test_a_judge_decides_about_assertions_in_words(answers, reward):
    row = changed(reward_basis=["DB", "NL_ASSERTION"])
    judge = Answers(*(verdict(verdict=one) for one in answers))
    events = score(row, RENEW, TELL, judge=make_judge(WritesStop(judge)))
    assert events[-1].components == {"db": 1.0, "nl_assertion": reward}
    assert events[-1].reward == reward
    assert [(event.role, event.question) for event in events if isinstance(event, JudgeCall)] == [
        ("user", "next message"),
        ("judge", "assertion"),
    ]


class WritesStop:
    """A model that ends the conversation at once, and otherwise judges."""

    def __init__(self, judge):
        self.judge = judge

    async def ask(self, ask):
        if "text" in ask.sampling:
            return await self.judge.ask(ask)
        return Reply(items=said("Thanks. ###STOP###"), finish_reason="stop")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"evaluation_criteria": {"reward_basis": ["LUCK"]}}, "LUCK"),
        ({"evaluation_criteria": {"actions": [{"name": "burn_books"}]}}, "burn_books"),
        ({"evaluation_criteria": {"env_assertions": [{"func_name": "assert_luck"}]}}, "assert_luck"),
        ({"evaluation_criteria": {"env_assertions": [{"func_name": "assert_at_home"}]}}, "assert_at_home"),
        ({"user_scenario": {"persona": "A teacher."}}, "instructions"),
        ({"evaluation_criteria": {"reward_basis": []}}, "length >= 1"),
        ({"initial_state": {**TAU2["initial_state"], "message_history": [{"role": "user"}]}}, "message_history"),
        ({"initial_state": {"initialization_data": {"agent_data": {"loans": {"L-1": {}}}}}}, "loans L-1"),
        ({"initial_state": {"initialization_data": {"agent_data": {"loans": []}}}}, "loans must be an object"),
    ],
)
def test_a_row_that_could_not_be_scored_is_refused(change, told):
    row = {**TAU2, **change}
    with pytest.raises(VerifierError, match=told):
        SimulatedUser.check_row(row, has_judge=False)
    with pytest.raises(VerifierError, match=told):
        score(row, TELL)


def test_an_assertion_in_words_needs_a_judge():
    row = changed(reward_basis=["NL_ASSERTION"])
    with pytest.raises(JudgeError, match="choose a user model"):
        score(row, TELL)
    SimulatedUser.check_row(row, has_judge=True)


def test_the_user_has_only_the_tools_of_its_row():
    assert [tool["name"] for tool in SimulatedUser(TAU2).user_tools] == ["set_reminders"]
    assert len(SimulatedUser({**TAU2, "user_tools": None}).user_tools) == 4


def test_an_unknown_tool_of_the_user_is_refused():
    with pytest.raises(VerifierError, match="set_reminder"):
        SimulatedUser({**TAU2, "user_tools": ["set_reminder"]})


@pytest.mark.parametrize(("told", "outcome"), [("", "unknown"), ("When asked to do it, call read_card().", "full")])
def test_the_gold_attempt_is_unknown_where_a_script_cannot_play_the_user(told, outcome):
    actions = [*TAU2["evaluation_criteria"]["actions"], {"name": "read_card", "arguments": {}, "requestor": "user"}]
    row = changed(actions=actions, reward_basis=["DB", "ACTION"])
    row |= {"user_tools": None, "user_scenario": {"instructions": {"task_instructions": told}}}
    server = InProcessServer("simulated_user", name="library")
    assert asyncio.run(score_by_environment(server, KIT, row)).outcome == outcome
