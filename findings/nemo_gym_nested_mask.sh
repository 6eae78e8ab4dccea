#!/bin/sh
# nemo-gym 0.7.0: metrics count rollouts that its own server masks in instance_config.
#
# The server conversational_tool_use_simulation masks a rollout with instance_config.mask_sample. The metrics read only
# mask_sample at the top level. So 2 of the 5 rollouts that the package ships are masked, and all 5 count.
# Expected: a mean over 3 rollouts, as for a mask at the top level. Output seen:
#
#     masked 2 of 5, mean over all 0.4, mean over unmasked 0.667, reported 0.4, coverage {}
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet pandas==3.1.1 scipy==1.18.1 wandb==0.31.0 openai==2.44.0 hydra-core==1.3.8 \
    orjson==3.13.0 pydantic==2.14.4 rich==15.0.0
# The package asks for a patch release of Python that few machines have, and for servers that are not needed here.
"$folder/bin/pip" install --quiet --no-deps --ignore-requires-python nemo-gym==0.7.0 ray==2.60.0
"$folder/bin/python" -W ignore - <<'END'
import json
from pathlib import Path

import nemo_gym
from nemo_gym.reward_profile import compute_aggregate_metrics

data = Path(nemo_gym.__file__).parents[1] / "resources_servers/conversational_tool_use_simulation/data"
rows = [json.loads(line) for line in (data / "example_rollouts.jsonl").read_text().splitlines()]
for number, row in enumerate(rows):
    row |= {"_ng_task_index": number, "_ng_rollout_index": 0}
unmasked = [row["reward"] for row in rows if not row["instance_config"]["mask_sample"]]
every = [row["reward"] for row in rows]
metrics = compute_aggregate_metrics(rows).agent_metrics
coverage = {name: value for name, value in metrics.items() if name.startswith("coverage/")}
seen = (
    f"masked {len(every) - len(unmasked)} of {len(every)}, mean over all {sum(every) / len(every)}, "
    f"mean over unmasked {sum(unmasked) / len(unmasked):.3f}, reported {metrics['mean/reward']}, coverage {coverage}"
)
print(seen)
assert seen == "masked 2 of 5, mean over all 0.4, mean over unmasked 0.667, reported 0.4, coverage {}"
END
