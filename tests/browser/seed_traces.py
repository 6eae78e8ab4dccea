"""Rollouts for the browser tests of the trace page: prints their numbers as JSON."""

import base64
import json
from typing import Any

import django

django.setup()

from apps.accounts.models import User  # noqa: E402
from apps.gym.traces.events import (  # noqa: E402
    EnvironmentTurn,
    ErrorRaised,
    JudgeCall,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
    Verification,
)
from apps.gym.traces.items import message  # noqa: E402
from apps.reviews.models import Comment  # noqa: E402
from apps.rollouts.models import Rollout, TraceEvent  # noqa: E402
from tests.browser.payloads import PAYLOADS  # noqa: E402
from tests.factories import make_collection, make_dataset, make_policy_model, make_rollout, make_row  # noqa: E402
from tests.gym.captured_calls import Recorder, answered  # noqa: E402
from tests.gym.traces import with_tokens  # noqa: E402

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
MARKDOWN = "## Found\n\nIt was **here**:\n\n```python\nprint('x')\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
ANSI = "\x1b[31mFAILED\x1b[0m one\nok"
TOOLS = ["bash", *(f"tool_{number}" for number in range(20))]
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new\n"


def call(name: str, arguments: Any, call_id: str) -> dict[str, Any]:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": given}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def picture(address: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": address}


def readable() -> list[TraceUnion]:
    """Every kind of step, each form of text, two calls at once, one of which failed."""
    return [
        SessionOpened(environment="shell", tools=[{"type": "function", "name": name} for name in TOOLS]),
        Prompt(items=[message("system", "Be careful."), message("user", "Mend the \u202e**test**.")]),
        ModelCall(
            seen=2,
            items=[thought("Let me see. " * 100), call("bash", {"command": "pytest"}, "a"), call("bash", {}, "b")],
            usage={"input_tokens": 412, "output_tokens": 86},
            duration=2.0,
            finish_reason="tool_calls",
        ),
        ToolResult(call_id="b", name="bash", output=DIFF),
        ToolResult(call_id="a", name="bash", output=ANSI, error="exit 1"),
        EnvironmentTurn(items=[{"role": "user", "content": [picture(f"data:image/png;base64,{PIXEL}")]}]),
        ModelCall(seen=6, items=[message("assistant", MARKDOWN)], usage={"input_tokens": 9, "output_tokens": 5}),
        JudgeCall(judge="critic", question="grade", prompt=[message("user", "?")], verdict={"score": 1}),
        Verification(reward=1.0, explanation="right", stop_reason="answered"),
    ]


def long(steps: int) -> list[TraceUnion]:
    events: list[TraceUnion] = [Prompt(items=[message("user", "Go on.")])]
    for number in range(steps):
        events.append(ModelCall(seen=1, items=[call("count", {"n": number}, f"c{number}")], finish_reason="tool_calls"))
        failed = "exit 1" if number == steps - 40 else ""
        output = "needle in the haystack" if number == steps - 20 else f"counted {number}"
        events.append(ToolResult(call_id=f"c{number}", name="count", output=output, error=failed))
    return [*events, Verification(reward=0.0, stop_reason="max_steps")]


def captured() -> list[TraceUnion]:
    """An agent that starts a subagent, whose first call is repeated."""
    recorder = Recorder()
    prompt = "Look for cats in the garden."
    spawn = call("delegate", {"prompt": prompt}, "a")
    main = [message("system", "You lead."), message("user", "Where are the cats?")]
    subagent = [message("system", "You look for cats."), message("user", prompt)]
    look = call("look", {"where": "garden"}, "a")
    recorder.call(main, [spawn], model="policy")
    recorder.call(subagent, [message("assistant", "lost")], served=False)
    recorder.call(subagent, [look], model="policy")
    recorder.call(
        [*subagent, look, answered("a", "Tom and Kit sit in the garden.")], [message("assistant", "Two cats.")]
    )
    recorder.call([*main, spawn, answered("a", "There are two cats.")], [message("assistant", "In the garden.")])
    return [*recorder.events, Verification(reward=1.0, stop_reason="answered")]


def hostile() -> list[TraceUnion]:
    """Every payload in every place of a trace."""
    events: list[TraceUnion] = []
    for number, bad in enumerate(PAYLOADS):
        calls = [
            call(bad, {bad: bad, "code": f"{bad}\nmore lines than one"}, f"{number}a"),
            call(bad, bad, f"{number}b"),
        ]
        items = [message("system", bad), message("user", bad), {"role": bad, "content": bad}, {"type": bad, bad: bad}]
        table = json.dumps([{bad: bad, "n": 1}, {bad: bad, "n": 2}])
        events += [
            SessionOpened(environment=bad, tools=[{"type": "function", "name": bad, "description": bad}]),
            Prompt(items=[*items, {"role": "user", "content": [picture(bad), {"type": bad, "text": bad}]}]),
            ModelCall(
                seen=1,
                items=[thought(bad), message("assistant", bad), *calls],
                model=bad,
                version=bad,
                finish_reason=bad,
                sampling={bad: bad},
                response_id=bad,
            ),
            ToolResult(call_id=f"{number}a", name=bad, output=table, error=bad),
            ToolResult(call_id=f"{number}b", name=bad, output=f"\x1b[1m{bad}\x1b[0m"),
            ToolResult(call_id="nobody", name=bad, output=f"--- {bad}\n+++ {bad}\n@@ -1 +1 @@\n-{bad}\n+{bad}\n"),
            EnvironmentTurn(items=[message("user", bad)]),
            JudgeCall(judge=bad, question=bad, prompt=[message("user", bad)], verdict={bad: bad}, problem=bad),
            Verification(reward=0.5, components={bad: 0.5}, explanation=bad, details={bad: bad}, stop_reason=bad),
            ErrorRaised(kind=bad, message=bad),
        ]
    return events


def main() -> None:
    every = " ".join(PAYLOADS)
    collection = make_collection(policy_model=make_policy_model(slug="read", name="Read", input_price=1.0))
    dataset = make_dataset([make_row()], name=every[:190])
    named = make_collection(name=every[:190], dataset=dataset, policy_model=make_policy_model(name=every[:90]))
    made = {
        "readable": make_rollout(collection, trace=readable()),
        "captured": make_rollout(collection, trace=captured()),
        "long": make_rollout(collection, trace=long(200), turns=200, tool_calls=200),
        "tokens": make_rollout(collection, trace=with_tokens(long(2), ([1, 2], [3, 4]), ([1, 2, 3, 9], [5, 6, 7]))),
        "hostile": make_rollout(
            named, trace=hostile(), components=dict.fromkeys(PAYLOADS[:20], 0.5), model_version=every[:190]
        ),
    }
    odd = made["hostile"]
    TraceEvent.objects.bulk_create(
        TraceEvent(rollout=odd, attempt=1, seq=100_000 + number, kind=bad[:30], payload=json.dumps({bad: bad}))
        for number, bad in enumerate(PAYLOADS)
    )
    reader = User.objects.get(username="erika")
    Comment.objects.bulk_create(Comment(rollout=odd, author=reader, text=bad, seq=1) for bad in PAYLOADS)
    failed = {"status": "failed", "reward": None, "stop_reason": "", "error_kind": "policy_error"}
    for number, bad in enumerate(PAYLOADS[:3]):
        made[f"failed{number}"] = make_rollout(named, trace=[], error_message=bad, **failed)
    Rollout.objects.filter(pk=odd.pk).update(redactions=dict.fromkeys(PAYLOADS[:10], 1))
    print(json.dumps({name: rollout.pk for name, rollout in made.items()}))


assert base64.b64decode(PIXEL).startswith(b"\x89PNG")
main()
