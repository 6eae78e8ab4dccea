"""NeMo Gym's own mcqa gives the rewards that the table of multiple-choice replies records for it."""

import json
import subprocess
from pathlib import Path

from tests.gym.verifiers.choice_forms import read_forms
from tests.nemo_gym.real.installed import PYTHON, needs_nemo_gym

pytestmark = needs_nemo_gym


def test_the_table_records_the_rewards_of_nemo_gym():
    command = [PYTHON, Path(__file__).with_name("mcqa_rewards.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    forms = read_forms()
    wrong = [
        (form, reward) for form, reward in zip(forms, json.loads(done.stdout), strict=True) if reward != form.nemo_gym
    ]
    assert wrong == []
