"""Two collections of one dataset, of which the second is worse."""

import json

from apps.accounts.api_keys import create_api_key
from apps.gym.traces.events import ModelCall, Prompt, SessionOpened, ToolResult, TraceUnion, Verification
from apps.gym.traces.items import message
from apps.rollouts.models import Collection
from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_user

QUESTION = "What is 17 * 23?"


def trace(expression: str, output: str, answer: str, reward: float) -> list[TraceUnion]:
    call = {
        "type": "function_call",
        "call_id": "call_1",
        "name": "calculator",
        "arguments": json.dumps({"expression": expression}),
    }
    return [
        SessionOpened(environment="calculator"),
        Prompt(items=[message("user", QUESTION)]),
        ModelCall(seen=1, items=[call], model="scripted", finish_reason="tool_calls"),
        ToolResult(call_id="call_1", name="calculator", output=output),
        ModelCall(seen=3, items=[message("assistant", answer)], model="scripted", finish_reason="stop"),
        Verification(reward=reward, components={"correct": reward}, explanation=f"{answer} is compared with 391"),
    ]


def seed_regression() -> tuple[Collection, Collection]:
    """Eight tasks: of the last two, the second collection's agent adds where it should multiply."""
    dataset = make_dataset([make_row(f"{QUESTION} ({number})", "391") for number in range(8)], slug="products")
    one, other = (
        make_collection(dataset=dataset, name=name, state=Collection.State.COMPLETED, total=8, completed=8, rewarded=8)
        for name in ("Before", "After")
    )
    for task in dataset.tasks.order_by("index"):
        make_rollout(one, task=task, reward=1.0, trace=trace("17 * 23", "391", "391", 1.0))
        if task.index < 6:
            make_rollout(other, task=task, reward=1.0, trace=trace("17 * 23", "391", "391", 1.0))
        else:
            make_rollout(other, task=task, reward=0.0, trace=trace("17 + 23", "40", "40", 0.0))
    return one, other


def main() -> None:
    """Print, as JSON, the ids of the collections and a key that reads."""
    one, other = seed_regression()
    _, key = create_api_key(user=make_user("engineer", username="coder"), name="agent", scopes=["rollouts:read"])
    print(json.dumps({"collections": [one.pk, other.pk], "key": key}))
