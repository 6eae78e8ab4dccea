"""NeMo Gym's `eval health-check` observes the rollouts of our served agent."""

import json
import subprocess
from pathlib import Path

from apps.gym.wires.protocol import Reply
from apps.gym.wires.scripted import ScriptedPolicy
from tests.gym.serving.test_agent import ROW, agent, post
from tests.nemo_gym.real.installed import PYTHON, needs_nemo_gym

pytestmark = needs_nemo_gym


class Silent(ScriptedPolicy):
    async def ask(self, ask):
        reply = await super().ask(ask)
        return Reply(items=[], finish_reason="stop", model="silent", usage={**reply.usage, "output_tokens": 0})


def verdicts(folder: Path, *policies):
    rows = [
        post(agent(policy=policy), "run", ROW | {"_ng_task_index": number})[1] for number, policy in enumerate(policies)
    ]
    file = folder / "rollouts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [PYTHON, Path(__file__).with_name("health.py"), file, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout.splitlines()[-1])


def test_rollouts_of_the_served_agent_are_observed(tmp_path: Path):
    found = verdicts(tmp_path, ScriptedPolicy(), ScriptedPolicy(mistake_rate=0.5), Silent())
    assert found[:2] == [["healthy", [], []]] * 2
    verdict, unobserved, checks = found[2]
    assert (verdict, unobserved) == ("unhealthy", [])
    assert {"agent_turn_hollow", "model_call_zero_completion_tokens"} <= set(checks)
