"""Print the verdicts of NeMo Gym's health checks: health.py ROLLOUTS FOLDER, with NeMo Gym's Python."""

import json
import sys
from pathlib import Path

from nemo_gym.rollout_health import run_health_checks

if __name__ == "__main__":
    found = run_health_checks(Path(sys.argv[1]), output_dir=Path(sys.argv[2]), workers=1)
    print(json.dumps([[one.verdict, one.unobserved, [each.check for each in one.findings]] for one in found.rollouts]))
