#!/bin/sh
# nemo-gym 0.7.0: pass@k of fractional rewards depends on the order of the rows.
#
# With rewards of 0 and 1, pass@k is estimated from all rollouts of a task. With other rewards it is the maximum of the
# first k rows in the order of the request, so pass@1 is the reward of the first row. _ng_rollout_index has no effect.
# Expected: the mean for pass@1, and the same result for the same rollouts. Output seen:
#
#     mean 50.0: pass@1 10.0, reversed 90.0
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet pandas==3.1.1 scipy==1.18.1 wandb==0.31.0 openai==2.44.0 hydra-core==1.3.8 \
    orjson==3.13.0 pydantic==2.14.4 rich==15.0.0
# The package asks for a patch release of Python that few machines have, and for servers that are not needed here.
"$folder/bin/pip" install --quiet --no-deps --ignore-requires-python nemo-gym==0.7.0 ray==2.60.0
"$folder/bin/python" -W ignore - <<'END'
from nemo_gym.reward_profile import compute_aggregate_metrics, compute_pass_majority_metrics


def measure(rows):
    reply = compute_aggregate_metrics(rows, compute_metrics_fn=lambda tasks: compute_pass_majority_metrics(tasks)[0])
    return reply.agent_metrics


rewards = (0.1, 0.5, 0.9)
rows = [{"_ng_task_index": 0, "_ng_rollout_index": n, "reward": reward} for n, reward in enumerate(rewards)]
first, reverse = measure(rows), measure(rows[::-1])
seen = f"mean {100 * first['mean/reward']}: pass@1 {first['pass@1/accuracy']}, reversed {reverse['pass@1/accuracy']}"
print(seen)
assert seen == "mean 50.0: pass@1 10.0, reversed 90.0"
END
