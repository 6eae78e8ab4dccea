"""The agent loop, step by step, with a policy that replays turns and an environment that answers them."""

import asyncio
import gc

import pytest

from apps.gym.errors import EnvironmentFault, PolicyError
from apps.gym.loop.agent_loop import Attempt, Harness, compose_prompt
from apps.gym.resources.protocol import Session, ToolOutput
from apps.gym.rewards import Reward
from apps.gym.traces.events import ModelCall, conversation
from apps.gym.traces.items import message
from apps.gym.traces.messages import offered_tools
from apps.gym.trainability import Dropped
from apps.gym.wires.protocol import Reply

ROW = {"responses_create_params": {"input": "What is 2 + 2?"}, "expected_answer": "4"}


def call(name="add", arguments='{"a": 2, "b": 2}', call_id="c1"):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def says(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def thinks():
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": "2 + 2"}]}


def turn(*items, finish="stop"):
    return Reply(items=list(items), finish_reason=finish, model="replay", usage={"input_tokens": 3, "output_tokens": 2})


class Replay:
    """Answers with the given turns, then repeats the last; keeps what it saw."""

    def __init__(self, *turns):
        self.turns = list(turns)
        self.seen = []

    async def ask(self, ask):
        self.seen.append(list(ask.items))
        reply = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        if isinstance(reply, Exception):
            raise reply
        return reply


class Adder(Session):
    """An environment that adds; `turns` are its observations."""

    name = "adder"

    def __init__(self, *turns, fault=None):
        self.turns, self.fault = list(turns), fault
        self.verified = None
        self.closed = 0

    async def seed_session(self, row, *, seed):
        return self

    async def list_tools(self):
        return [{"type": "function", "name": "add", "parameters": {"type": "object"}}]

    async def call_tool(self, name, arguments):
        if self.fault:
            raise self.fault
        await asyncio.sleep(arguments.get("delay", 0))
        return ToolOutput(text=str(arguments["a"] + arguments["b"]))

    async def respond(self, items):
        return self.turns.pop(0) if self.turns else None

    async def verify(self, response):
        self.verified = response
        return Reward(value=1.0, explanation="fine")

    async def close(self):
        self.closed += 1


def attempt(policy, environment, **harness):
    ticks = iter(range(10_000))
    run = Attempt(
        row=harness.pop("row", ROW),
        server=environment,
        policy=policy,
        harness=Harness(**harness),
        seed=7,
        elapsed=lambda: next(ticks) * 0.1,
    )

    async def collect():
        return [event async for event in run.events()]

    return asyncio.run(collect())


def kinds(events):
    return [type(event).__name__ for event in events]


def test_calls_are_answered_and_the_attempt_is_verified():
    policy, environment = Replay(turn(call()), turn(says("4"))), Adder()
    events = attempt(policy, environment)
    assert kinds(events) == ["SessionOpened", "Prompt", "ModelCall", "ToolResult", "ModelCall", "Verification"]
    assert (events[3].output, events[-1].stop_reason, events[-1].reward) == ("4", "answered", 1.0)
    assert environment.closed == 1


@pytest.mark.parametrize(("strict_tools", "strict"), [("declared", [True]), ("never", [])])
def test_tools_are_offered_as_declared_or_never_strict(strict_tools, strict):
    class Strict(Adder):
        async def list_tools(self):
            return [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}]

    class Asked(Replay):
        async def ask(self, ask):
            self.asks = [*getattr(self, "asks", []), ask]
            return await super().ask(ask)

    policy = Asked(turn(says("4")))
    events = attempt(policy, Strict(), strict_tools=strict_tools)
    [ask] = policy.asks
    assert [tool["strict"] for tool in ask.tools if "strict" in tool] == strict
    assert ask.strict is (strict_tools == "declared")
    assert events[0].tools == ask.tools


def test_a_schema_that_changes_midway_is_offered_and_recorded():
    old = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    new = {**old, "parameters": {"type": "object", "required": ["a", "b"]}}

    class Changing(Adder):
        tools = [old]

        async def list_tools(self):
            return self.tools

        async def call_tool(self, name, arguments):
            self.tools[:] = [new]
            return await super().call_tool(name, arguments)

    offered = []

    class Asked(Replay):
        async def ask(self, ask):
            offered.append(ask.tools)
            return await super().ask(ask)

    environment = Changing()
    events = attempt(Asked(turn(call()), turn(call(call_id="c2")), turn(says("4"))), environment)
    assert offered == [[old], [new], [new]]
    assert offered[1] is offered[2]
    assert events[0].tools == [old]
    assert [event.tools_in for event in events if isinstance(event, ModelCall)] == [None, [new], None]
    assert environment.verified["tools"] == [new]
    with pytest.raises(Dropped, match="tools_changed"):
        offered_tools(events, ROW)


def test_a_task_with_tools_keeps_them():
    class Growing(Adder):
        async def list_tools(self):
            return [{"type": "function", "name": f"add_{id(object())}"}]

    own = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
    row = {"responses_create_params": {"input": "What is 2 + 2?", "tools": own}}
    events = attempt(Replay(turn(call()), turn(says("4"))), Growing(), row=row)
    assert events[0].tools == own
    assert [event.tools_in for event in events if isinstance(event, ModelCall)] == [None, None]


def test_a_call_with_a_grammar_is_marked():
    constrained = turn(call())
    constrained.grammar = True
    events = attempt(Replay(constrained, turn(says("4"))), Adder())
    assert [event.grammar for event in events if type(event).__name__ == "ModelCall"] == [True, False]


def test_the_environment_can_give_the_prompt():
    class Asking(Adder):
        opening = [message("user", "What is 2 + 2?")]

    class Silent(Adder):
        opening = []

    promptless = {**ROW, "responses_create_params": {"input": []}}
    events = attempt(Replay(turn(says("4"))), Asking(), row=promptless)
    assert events[1].items == Asking.opening
    with pytest.raises(EnvironmentFault, match="no prompt"):
        attempt(Replay(turn(says("4"))), Silent(), row=promptless)


def test_every_model_call_saw_exactly_the_prefix_it_names():
    policy = Replay(turn(call()), turn(says("4")))
    events = attempt(policy, Adder(), system_prompt="Be brief.", examples=[message("user", "hi"), says("ho")])
    whole = conversation(events)
    calls = [event for event in events if type(event).__name__ == "ModelCall"]
    assert policy.seen == [whole[: event.seen] for event in calls]
    assert [item.get("role") for item in policy.seen[0]] == ["system", "user", "assistant", "user"]


def test_a_running_attempt_keeps_no_model_calls():
    class Counting(Replay):
        async def ask(self, ask):
            found = [one for one in gc.get_objects() if type(one) is ModelCall]
            self.kept = [*getattr(self, "kept", []), len(found)]
            return await super().ask(ask)

    async def work(run):
        async for _ in run.events():
            pass

    gc.collect()
    policy = Counting(turn(call()), turn(call()), turn(says("4")))
    run = Attempt(row=ROW, server=Adder(), policy=policy, harness=Harness(), seed=7, elapsed=lambda: 0.0)
    asyncio.run(work(run))
    assert len(set(policy.kept)) == 1


def test_the_verifier_gets_every_item_after_the_prompt():
    environment = Adder()
    attempt(Replay(turn(call()), turn(says("4"))), environment)
    types = [item["type"] for item in environment.verified["output"]]
    assert types == ["function_call", "function_call_output", "message"]
    assert environment.verified["usage"]["total_tokens"] == 10


@pytest.mark.parametrize(
    ("turns", "harness", "reason"),
    [
        ([turn(call())], {"max_steps": 3}, "max_steps"),
        ([turn(call())], {"time_limit": 2.0, "max_steps": 100}, "time_limit"),
        ([turn(says("4 is"), finish="max_output_tokens")], {}, "max_output_tokens"),
        ([turn(call(arguments='{"a"'), finish="max_output_tokens")], {}, "max_output_tokens"),
        ([turn(finish="context_length")], {}, "context_length"),
        ([turn(says("I"), finish="content_filter")], {}, "content_filter"),
        ([turn()], {}, "empty_reply"),
        ([turn()], {"retry_empty_replies": True, "max_steps": 4}, "max_steps"),
        ([turn(thinks()), turn(thinks()), turn(thinks()), turn(says("4"))], {"retry_empty_replies": True}, "answered"),
        ([turn(thinks()), turn(thinks()), turn(says("4"))], {}, "empty_reply"),
        ([turn(), turn(says("4"))], {}, "answered"),
    ],
)
def test_every_end_has_its_name_and_is_verified(turns, harness, reason):
    events = attempt(Replay(*turns), Adder(), **harness)
    assert (events[-1].stop_reason, events[-1].reward) == (reason, 1.0)


def test_a_reply_that_is_only_reasoning_is_part_of_the_next_request():
    policy = Replay(turn(thinks()), turn(says("4")))
    attempt(policy, Adder(), retry_empty_replies=True)
    assert policy.seen[1] == [*policy.seen[0], thinks()]


def test_max_steps_counts_turns_and_runs_the_last_ones_tools():
    events = attempt(Replay(turn(call())), Adder(), max_steps=2)
    assert kinds(events).count("ModelCall") == kinds(events).count("ToolResult") == 2


@pytest.mark.parametrize("arguments", ["{oops", "[1]", '"text"', "NaN", '{"a": NaN, "b": 1}', '{"a": "\\ud800"}'])
def test_arguments_that_are_no_object_are_fed_back_and_the_attempt_goes_on(arguments):
    events = attempt(Replay(turn(call(arguments=arguments)), turn(says("4"))), Adder())
    assert events[3].error == "invalid_arguments"
    assert events[3].output.startswith('{"error": "Invalid tool call arguments: ')
    assert events[-1].stop_reason == "answered"


@pytest.mark.parametrize("parallel", [True, False])
def test_outputs_keep_the_order_of_the_calls(parallel):
    slow = call(arguments='{"a": 1, "b": 1, "delay": 0.02}', call_id="slow")
    fast = call(arguments='{"a": 2, "b": 2}', call_id="fast")
    events = attempt(Replay(turn(slow, fast), turn(says("4"))), Adder(), parallel_tool_calls=parallel)
    assert [(event.call_id, event.output) for event in events[3:5]] == [("slow", "2"), ("fast", "4")]


def test_the_environment_speaks_until_it_is_done():
    events = attempt(Replay(turn(says("a")), turn(says("b"))), Adder([message("user", "and then?")]))
    assert kinds(events)[3:] == ["EnvironmentTurn", "ModelCall", "Verification"]
    assert events[-1].stop_reason == "environment_done"


@pytest.mark.parametrize(
    ("policy", "environment", "error"),
    [
        (Replay(PolicyError("401")), Adder(), PolicyError),
        (Replay(turn(call())), Adder(fault=EnvironmentFault("gone")), EnvironmentFault),
        (Replay(turn(call(), call(call_id="c2"))), Adder(fault=EnvironmentFault("gone")), EnvironmentFault),
    ],
)
def test_a_fault_outside_the_attempt_raises_and_the_session_is_closed(policy, environment, error):
    with pytest.raises(error):
        attempt(policy, environment)
    assert (environment.closed, environment.verified) == (1, None)


def test_the_row_declares_its_tools_and_sampling_over_every_default():
    row = {"responses_create_params": {"input": "hi", "tools": [{"type": "function", "name": "own"}], "temperature": 0}}
    events = attempt(Replay(turn(says("4"))), Adder(), row=row, sampling={"temperature": 1.0, "top_p": 0.9})
    assert [tool["name"] for tool in events[0].tools] == ["own"]
    assert events[2].sampling == {"seed": 7, "temperature": 0, "top_p": 0.9}


def test_a_seed_of_the_defaults_does_not_make_repeats_the_same():
    events = attempt(Replay(turn(says("4"))), Adder(), sampling={"seed": 99, "temperature": 1})
    assert events[2].sampling == {"seed": 7, "temperature": 1}


def test_an_empty_reply_is_asked_for_again_under_another_seed():
    events = attempt(Replay(turn(), turn(says("4"))), Adder())
    first, second = (event.sampling["seed"] for event in events if type(event).__name__ == "ModelCall")
    assert (first, second != 7) == (7, True)


def test_a_call_tells_the_sampling_that_its_reply_was_asked_for_with():
    reply = turn(says("4"))
    reply.sampling = {"seed": 12}
    assert attempt(Replay(reply), Adder())[2].sampling == {"seed": 12}


def test_the_rows_instructions_become_a_system_message():
    row = {"responses_create_params": {"input": "hi", "instructions": "Rhyme."}}
    assert compose_prompt(row, Harness(system_prompt="Be brief.")) == [
        message("system", "Be brief."),
        message("system", "Rhyme."),
        message("user", "hi"),
    ]
