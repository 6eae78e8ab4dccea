#!/bin/sh
# nemo-gym 0.7.0: masking an unsolved rollout of one task doubles pass@2.
#
# pass@k is the mean over tasks with at least k unmasked rollouts. A task with fewer rollouts leaves the denominator,
# even if all of its rollouts failed. Expected: the task still counts, with the rollouts that it has. Output seen:
#
#     pass@2 before 50.0, after 100.0; pass@1 before 25.0, after 25.0
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


rewards = [(0, 0, 1.0), (0, 1, 0.0), (1, 0, 0.0), (1, 1, 0.0)]
rows = [{"_ng_task_index": task, "_ng_rollout_index": number, "reward": reward} for task, number, reward in rewards]
before = measure(rows)
rows[-1]["mask_sample"] = True
after = measure(rows)
pairs = [(name, before[f"{name}/accuracy"], after[f"{name}/accuracy"]) for name in ("pass@2", "pass@1")]
seen = "; ".join(f"{name} before {old}, after {new}" for name, old, new in pairs)
print(seen)
assert seen == "pass@2 before 50.0, after 100.0; pass@1 before 25.0, after 25.0"
END
