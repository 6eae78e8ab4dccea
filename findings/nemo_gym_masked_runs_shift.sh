#!/bin/sh
# nemo-gym 0.7.0: after a masked rollout, deviations across runs mix runs.
#
# pass@1[avg-of-k]/…/std_dev_across_runs compares run 1, run 2 and so on. Runs are positions among the unmasked rows: run
# 2 of a task counts as run 1 if its run 1 is masked. repeat_level_metrics, in the same reply, uses _ng_rollout_index.
# Expected: the same runs in both. They agree if no row is masked. Output seen:
#
#     runs by position [50.0, 0.0], by rollout index [100.0, 0.0]
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

rewards = [(0, 0, 1.0), (0, 1, 0.0), (1, 0, 1.0), (1, 1, 0.0)]
rows = [{"_ng_task_index": task, "_ng_rollout_index": number, "reward": reward} for task, number, reward in rewards]
rows[0]["mask_sample"] = True
reply = compute_aggregate_metrics(rows, compute_metrics_fn=lambda tasks: compute_pass_majority_metrics(tasks)[0])
positions = reply.agent_metrics["per_sample_aggregate"]["accuracy"]
indexes = [100 * repeat["mean/reward"] for repeat in reply.repeat_level_metrics]
seen = f"runs by position {positions}, by rollout index {indexes}"
print(seen)
assert seen == "runs by position [50.0, 0.0], by rollout index [100.0, 0.0]"
END
