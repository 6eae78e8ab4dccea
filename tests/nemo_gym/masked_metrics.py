"""Write golden/masked_metrics.json: rows with masked rollouts, and the metrics that NeMo Gym 0.7.0 computes for them.

    $(scripts/build_environment.py nemo)/bin/python tests/nemo_gym/masked_metrics.py

That Python needs `nemo-gym==0.7.0`. The seed is fixed, so the same version writes the same file. Each case has `rows`
(`verify_responses` of a request to `/aggregate_metrics`), and `aggregate`, the reply. `compute_metrics` is that of
NeMo Gym's own servers, so `agent_metrics` has pass@k and pass@1[avg-of-k]. They are percentages.

The rule, also for each task:

- A row counts only if `mask_sample` is falsy. `failure_kind` and `failure_reason` have no effect.
- `mean/reward` of all tasks is the mean over all counted rows, not the mean of the tasks' means.
- pass@k is the mean over tasks with at least k counted rows. If all rewards of a task are 0 or 1, its value is the
  unbiased estimate over its counted rows; otherwise it is the maximum of its first k counted rows.
- pass@1[avg-of-k] is the mean over tasks with a counted row, each with the mean of its first k counted rows.
- Tasks without a counted row have no metrics. `coverage/…` counts rows and tasks, and exists only if a row is masked.
- `num_repeats` counts the rollout indexes of all rows. `repeat_level_metrics` have one entry for each rollout index of
  a counted row, and none if there is only one.
"""

import json
import random
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nemo_gym.reward_profile import add_avg_sample_std_dev, compute_aggregate_metrics, compute_pass_majority_metrics

VERSION = "0.7.0"
SEED = 20261128
CASES = 20
KINDS = ("judge_failed", "provider_oom_killed", "session_lost", "agent_timeout", "lab:reset_failed")
SHARES = (0.1, 0.3, 0.6)
"""Shares of masked rows, by case."""
REPEAT_FIGURES = {"_ng_rollout_index", "sample_count", "missing_count", "mean/reward"}
FILE = Path(__file__).with_name("golden") / "masked_metrics.json"


def make_rows(rng: random.Random, *, rewards: str, masked: float) -> list[dict[str, Any]]:
    """Return rows of one to six tasks with one to eight rollouts each."""
    rows = []
    for task in range(rng.randint(1, 6)):
        fractional = rewards == "fractional" or (rewards == "mixed" and rng.random() < 0.5)
        for rollout in range(rng.randint(1, 8)):
            reward = round(rng.random(), 3) if fractional else float(rng.random() < 0.5)
            row = {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward}
            if rng.random() < masked:
                row["mask_sample"] = True
            elif rng.random() < 0.3:
                row["mask_sample"] = False
            if rng.random() < (0.7 if row.get("mask_sample") else 0.15):
                row |= {"failure_kind": rng.choice(KINDS), "failure_reason": "It broke."}
            rows.append(row)
    return rows


def measure(tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
    metrics, scores, names, most = compute_pass_majority_metrics(tasks)
    add_avg_sample_std_dev(metrics, scores, names, most)
    return metrics


def main() -> None:
    if version("nemo-gym") != VERSION:
        sys.exit(f"This Python has nemo-gym {version('nemo-gym')}. Use one with {VERSION}.")
    warnings.simplefilter("ignore")
    rng = random.Random(SEED)
    cases = []
    for number in range(CASES):
        rewards = ("binary", "fractional", "mixed")[number % 3]
        # The last case has no counted row.
        rows = make_rows(rng, rewards=rewards, masked=1.0 if number == CASES - 1 else SHARES[number // 3 % 3])
        aggregate = compute_aggregate_metrics(rows, compute_metrics_fn=measure).model_dump(exclude_none=True)
        for group in aggregate["group_level_metrics"]:
            # Copies of the rows.
            del group["rollout_infos"], group["sample"]
        aggregate["repeat_level_metrics"] = [
            {name: value for name, value in repeat.items() if name in REPEAT_FIGURES}
            for repeat in aggregate["repeat_level_metrics"]
        ]
        cases.append({"rewards": rewards, "rows": rows, "aggregate": aggregate})
    lines = ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False) for case in cases)
    FILE.write_text(f'{{"nemo_gym":"{VERSION}","seed":{SEED},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
