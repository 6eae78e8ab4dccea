"""The example datasets of NeMo Gym, row by row, against servers of their kinds."""

import asyncio
import json

import pytest

from apps.gym.traces.events import EnvironmentTurn, Prompt, ToolResult, Verification
from tests.nemo_gym import kinds, solving
from tests.nemo_gym.attempts import attempt, connect, loopback, needs_shared, read_rows, rows_of
from tests.nemo_gym.servers import serving

RIGHT = [
    (kinds.SINGLE_TOOL_CALL, solving.weather, 1.0),
    (kinds.SESSION_STATE, solving.count, 1.0),
    (kinds.MULTI_STEP, solving.synonyms, 1.0),
    (kinds.MULTIREWARD, solving.one_call, 2.0),  # the words after the call cost the format
    (kinds.MCQA, solving.letter, 1.0),
    (kinds.STRING_MATCH, solving.string, 1.0),
    (kinds.XLAM, solving.calls, 1.0),
    (kinds.CALENDAR, solving.calendar, 1.0),
    (kinds.REASONING, solving.reasoning, 1.0),
    (kinds.MATH, solving.box, 1.0),
    (kinds.MULTI_TURN, solving.follow_ups, 1.0),
    (kinds.blackjack("T6T8A9"), solving.stands, -1.0),  # 16, then 17 with an ace counted as one, against 18
    (kinds.blackjack("9TT6T"), solving.stands, 1.0),  # 19 stands, and the dealer draws to 26
]
WRONG = [
    (kinds.SESSION_STATE, solving.count_wrong, 0.0),
    (kinds.MULTI_STEP, solving.synonyms_wrong, 0.0),
    (kinds.MULTIREWARD, solving.one_call_wrong, 0.0),
    (kinds.MCQA, solving.letter_wrong, 0.0),
    (kinds.STRING_MATCH, solving.nothing, 0.0),
    (kinds.XLAM, solving.calls_wrong, 0.0),
    (kinds.CALENDAR, solving.calendar_wrong, 0.0),
    (kinds.REASONING, solving.nothing, 0.0),
    (kinds.MATH, solving.nothing, 0.0),
    (kinds.MULTI_TURN, solving.nothing, 0.0),
    (kinds.blackjack("T6T8T"), solving.stands, -1.0),  # 16 draws a ten and is bust
]


def attempt_all(kind, moves, *, own=False, **harness):
    """The traces of all rows, at once, and the server they were attempted at."""

    async def all_rows():
        outbound = loopback()
        try:
            async with serving(kind) as server:
                driven = connect(server, outbound)
                rows = rows_of(kind.name, own=own)
                return await asyncio.gather(*(attempt(driven, row, moves, **harness) for row in rows)), server
        finally:
            await outbound.close()

    return asyncio.run(all_rows())


def verdicts(traces):
    assert all(isinstance(trace[-1], Verification) for trace in traces)
    return [trace[-1] for trace in traces]


def name_of(value):
    return value.name if isinstance(value, kinds.Kind) else None


both = pytest.mark.parametrize("own", [True, pytest.param(False, marks=needs_shared)], ids=["own", "theirs"])


@both
@pytest.mark.parametrize(("kind", "moves", "reward"), RIGHT + WRONG, ids=name_of)
def test_every_row_has_the_reward_that_its_rule_gives(kind, moves, reward, own):
    traces, server = attempt_all(kind, moves, own=own, parallel_tool_calls=False)
    number = len(rows_of(kind.name, own=own))
    assert [verdict.reward for verdict in verdicts(traces)] == [reward] * number
    assert server.stale == 0
    assert len(server.sessions) == (0 if kind.name == "blackjack" else number)


@needs_shared
def test_seeding_gets_the_whole_row_and_verifying_the_row_and_the_response():
    _, server = attempt_all(kinds.XLAM, solving.calls)
    rows = read_rows("xlam_fc.example")
    seeds = [body for path, body in server.seen if path == "/seed_session"]
    asked = [body for path, body in server.seen if path == "/verify"]
    assert sorted(seeds, key=lambda row: row["id"]) == rows
    assert sorted((set(body) for body in asked), key=sorted) == [{*rows[0], "response"}] * 5


def test_components_are_named_beside_their_sum():
    traces, _ = attempt_all(kinds.MULTIREWARD, solving.one_call, own=True)
    parts = {"correctness": 1.0, "schema_valid": 1.0, "format": 0.0}
    assert [verdict.components for verdict in verdicts(traces)] == [parts]


def test_arguments_that_the_server_refuses_are_read_by_the_model_and_the_attempt_goes_on():
    traces, _ = attempt_all(kinds.MULTIREWARD, solving.one_call_wrong, own=True)
    refused = [event for trace in traces for event in trace if isinstance(event, ToolResult)]
    assert [event.error for event in refused] == ["http_422"]
    assert json.loads(refused[0].output)["detail"][0]["loc"] == ["body", "city"]
    assert {verdict.stop_reason for verdict in verdicts(traces)} == {"answered"}


def test_declared_tools_without_a_server_are_not_found():
    traces, _ = attempt_all(kinds.XLAM, solving.calls, own=True)
    outputs = {(event.output, event.error) for trace in traces for event in trace if isinstance(event, ToolResult)}
    assert outputs == {('{"detail": "Not Found"}', "http_404")}


def test_observations_are_user_messages_the_first_of_them_after_the_prompt():
    traces, server = attempt_all(kinds.blackjack("232T5TT"), solving.stands, own=True)
    prompt = next(event for event in traces[0] if isinstance(event, Prompt))
    turns = [event for event in traces[0] if isinstance(event, EnvironmentTurn)]
    assert prompt.items[-1]["role"] == "user"
    assert prompt.items[-1]["content"].startswith("Your hand: [2, 3] = 5\nDealer shows: 2\n")
    assert [turn.items[0]["content"].partition("\n")[0] for turn in turns] == [
        "Your hand: [2, 3, 5] = 10",
        "Your hand: [2, 3, 5, 10] = 20",
    ]
    assert [path for path, _ in server.seen].count("/close") == 2


def test_the_last_message_of_a_game_is_kept():
    traces, _ = attempt_all(kinds.blackjack("9TT6T"), solving.stands, own=True)
    verdict = verdicts(traces)[0]
    assert verdict.stop_reason == "environment_done"
    assert verdict.details == {
        "terminated": True,
        "truncated": False,
        "step_rewards": [1.0],
        "info": {
            "result": "win",
            "player": "[9, 10]",
            "player_value": 19,
            "dealer": "[10, 6, 10]",
            "dealer_value": 26,
        },
    }


@needs_shared
def test_the_workplace_replays_recorded_calls():
    recorded, moves = _recorded("workplace_assistant.example_rollouts")
    rows = [
        {**row, "responses_create_params": rollout["responses_create_params"]}
        for row, rollout in zip(read_rows("workplace_assistant.example"), moves, strict=False)
    ]

    def replay(row, said, prompt):
        turns = moves[rows.index(row)]["turns"]
        return turns[sum(item.get("type") == "function_call_output" for item in said)]

    async def all_rows():
        outbound = loopback()
        try:
            async with serving(kinds.workplace(recorded)) as server:
                driven = connect(server, outbound)
                return await asyncio.gather(*(attempt(driven, row, replay) for row in rows)), server
        finally:
            await outbound.close()

    traces, server = asyncio.run(all_rows())
    for trace, rollout in zip(traces, moves, strict=False):
        outputs = [event.output for event in trace if isinstance(event, ToolResult)]
        assert [json.loads(output) for output in outputs] == [json.loads(output) for output in rollout["outputs"]]
        assert trace[-1].stop_reason == "answered"
    assert (len(traces), len(server.sessions), server.stale) == (5, 5, 0)


def test_a_dispatcher_is_driven_in_the_session_that_was_seeded():
    asked = {"name": "kim"}
    recorded = {("company_directory_find_email_address", json.dumps(asked)): '{"output": ["kim@example.org"]}'}

    def moves(row, said, prompt):
        done = solving.outputs(said)
        if done:
            return [solving.says(done[0]["output"][0])]
        return [solving.call("company_directory_find_email_address", asked)]

    traces, _ = attempt_all(kinds.workplace(recorded), moves, own=True)
    assert [event.output for event in traces[0] if isinstance(event, ToolResult)] == ['{"output": ["kim@example.org"]}']


def _recorded(name):
    """What each recorded call gave, and the recorded rollouts as turns of the model; nulls are no parameters."""
    known, found = {}, []
    for rollout in read_rows(name):
        output, turns, outputs, calls = rollout["response"]["output"], [], [], {}
        for item in output:
            if item["type"] == "function_call":
                calls[item["call_id"]] = (item["name"], json.dumps(json.loads(item["arguments"]), sort_keys=True))
            if item["type"] == "function_call_output":
                known[calls[item["call_id"]]] = item["output"]
                outputs.append(item["output"])
            else:
                turns.append([item])
        params = {key: value for key, value in rollout["responses_create_params"].items() if value is not None}
        found.append({"turns": turns, "outputs": outputs, "responses_create_params": params})
    return known, found
