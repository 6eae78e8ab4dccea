"""A mock model whose replies have faults, in a process of its own: the right outcome of the rollouts for each."""

from pathlib import Path

import pytest
from asgiref.sync import async_to_sync

from apps.gym.traces.events import ModelCall
from apps.gym.traces.items import assistant_text
from apps.rollouts.models import Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from tests.factories import make_agent, make_dataset, make_policy_model, make_row
from tests.walk.processes import process

MOCK = Path(__file__).resolve().parents[2] / "scripts" / "mock_model.py"
ANSWER = "\\boxed{42}"
LARGE = 5 * 1024 * 1024
TOLD = {"input_tokens": 120, "output_tokens": 40, "calls_without_usage": 0}
UNTOLD = {"input_tokens": 0, "output_tokens": 0, "calls_without_usage": 1}
RIGHT = {"status": "completed", "reward": 1.0, "stop_reason": "answered", "error_kind": "", **TOLD}
CUT = {"reward": None, "stop_reason": "", "error_kind": "policy_error", "status": "failed"}
NOTHING = {"input_tokens": 0, "output_tokens": 0, "calls_without_usage": 0}

# By wire and fault: the rollout's row, tries after the first, its reason for ending in the server's word, characters.
OUTCOMES = {
    ("chat", "streamed"): (RIGHT, 0, "", len(ANSWER)),
    ("chat", "cut-once"): (RIGHT, 1, "", len(ANSWER)),
    ("chat", "cut"): ({**CUT, **NOTHING}, None, None, None),
    ("chat", "large"): (RIGHT, 0, "", LARGE),
    ("chat", "finish"): (RIGHT, 0, "eos_token", len(ANSWER)),
    ("chat", "usage"): ({**RIGHT, **UNTOLD}, 0, "", len(ANSWER)),
    ("chat", "fields"): (RIGHT, 0, "", len(ANSWER)),
    ("responses", "cut-once"): (RIGHT, 1, "", len(ANSWER)),
    ("responses", "cut"): ({**CUT, **NOTHING}, None, None, None),
    ("responses", "large"): (RIGHT, 0, "", LARGE),
    # A response that says itself that it is incomplete is a cut one, whatever it calls the reason.
    ("responses", "finish"): ({**RIGHT, "stop_reason": "max_output_tokens"}, 0, "max_tool_calls", len(ANSWER)),
    ("responses", "usage"): ({**RIGHT, **UNTOLD}, 0, "", len(ANSWER)),
    ("responses", "fields"): (RIGHT, 0, "", len(ANSWER)),
}

pytestmark = [pytest.mark.usefixtures("migrated"), pytest.mark.slow]


def told(rollout):
    """What OUTCOMES says of it."""
    row = {name: getattr(rollout, name) for name in OUTCOMES["chat", "usage"][0]}
    calls = [event for event in rollout.trace() if isinstance(event, ModelCall)]
    if not calls:
        return row, None, None, None
    (call,) = calls
    return row, call.retries, call.server_finish_reason, len(assistant_text(call.items))


def test_each_fault_of_a_reply_has_its_outcome_over_both_wires_and_none_is_a_crash(settings):
    settings.OUTBOUND_ALLOW, settings.WORKER_BACKGROUND_JOBS = ["127.0.0.1"], []
    dataset = make_dataset([make_row("What is 6 * 7?", "42")])
    agent, found = make_agent(), {}
    with process(MOCK, "--port", "PORT", "--tool-calls", "0", "--final", ANSWER) as port:
        for wire, fault in OUTCOMES:
            model = make_policy_model(
                provider="vllm",
                wire=wire,
                base_url=f"http://127.0.0.1:{port}/v1",
                model_name=f"mock-{fault}",
                max_tries=2,
            )
            planned = plan_collection(Plan(dataset=dataset, agent=agent, policy_model=model, max_attempts=1))
            async_to_sync(finish_collection)(planned, progress=lambda _: None)
            found[wire, fault] = told(Rollout.objects.get(collection=planned))
    assert found == OUTCOMES
    cut = Rollout.objects.filter(error_kind="policy_error").values_list("error_message", flat=True)
    assert [message.startswith("The policy model cannot be reached") for message in cut] == [True, True]
