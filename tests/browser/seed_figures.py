"""Two collections with results for the browser tests of the figures: prints their numbers as JSON."""

import json

import django

django.setup()

from apps.accounts.models import User  # noqa: E402
from apps.exports.models import Export  # noqa: E402
from apps.gym.traces.events import ModelCall, Prompt, ToolResult, TraceUnion, Verification  # noqa: E402
from apps.gym.traces.items import message  # noqa: E402
from tests.factories import (  # noqa: E402
    make_agent,
    make_collection,
    make_dataset,
    make_environment,
    make_policy_model,
    make_rollout,
    make_row,
)

REWARDS = ((1.0, 0.0, 0.5, 1.0), (0.0, 0.25, 0.0, 1.0))


def trace(expression: str, answer: str, reward: float) -> list[TraceUnion]:
    called = {"type": "function_call", "call_id": "c", "name": "run", "arguments": json.dumps({"code": expression})}
    return [
        Prompt(items=[message("user", "What is 2 + 2?")]),
        ModelCall(seen=1, items=[called], model="m"),
        ToolResult(call_id="c", name="run", output=answer, error="" if reward else "failed"),
        ModelCall(seen=3, items=[message("assistant", f"It is {answer}.")], model="m"),
        Verification(reward=reward, components={"exact": reward}, explanation="compared"),
    ]


def main() -> None:
    dataset = make_dataset([make_row(f"No {number}") for number in range(4)], slug="figures")
    dataset.tasks.update(split="train", tags_text="\nhard\n", prompt_excerpt="What is 2 + 2?")
    agent, model = make_agent(), make_policy_model()
    made = []
    for side, rewards in enumerate(REWARDS):
        collection = make_collection(
            dataset=dataset,
            agent=agent,
            policy_model=model,
            name=f"Figures {side}",
            state="completed",
            snapshot={"sampling": {"temperature": side}},
            total=9,
            completed=8,
            failed=1,
            rewarded=8,
            reward_sum=2 * sum(rewards) - (side == 0),
        )
        for task, mostly in zip(dataset.tasks.order_by("index"), rewards, strict=True):
            for repeat in range(2):
                # The first task of the first collection is solved once in two.
                reward = 0.0 if (side, task.index, repeat) == (0, 0, 1) else mostly
                make_rollout(
                    collection,
                    task=task,
                    repeat=repeat,
                    reward=reward,
                    output_tokens=100 * (repeat + 1) + 20 * task.index,
                    components={"exact": reward},
                    tools={"run": [1, int(reward == 0), 0.25]},
                    duration=2.0,
                    model_time=1.5,
                    tool_time=0.25,
                    verify_time=0.1,
                    trace=trace("2+2", f"{4 - reward:g}", reward),
                )
        make_rollout(
            collection,
            task=dataset.tasks.first(),
            repeat=2,
            reward=None,
            status="failed",
            stop_reason="",
            error_kind="timed_out",
            trace=[],
        )
        made.append(collection)
    make_environment(slug="ill", health="unhealthy", health_message="connection refused")
    # Waits for a worker that would never find its pairs: shown, and never done while the tests look.
    Export.objects.create(format="trl_sft", collection=made[0], state="writing", created_by=User.objects.first())
    task = dataset.tasks.order_by("index")[0]
    rollouts = list(made[0].rollouts.filter(task=task).order_by("repeat").values_list("pk", flat=True))
    print(json.dumps({"a": made[0].pk, "b": made[1].pk, "task": task.pk, "rollouts": rollouts}))


main()
