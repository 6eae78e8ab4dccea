#!/usr/bin/env python
"""Store rollouts and start a scan of them, in a process of its own: scan_plan.py BASE_URL NUMBER. Prints the scan's id.

The tool of every third rollout failed.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["DJANGO_SETTINGS_MODULE"] = "gymweb.settings"


def main(base_url: str, number: int) -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import transaction

    from apps.gym.traces.events import ModelCall, Prompt
    from apps.gym.traces.items import message
    from apps.policies.models import Wire
    from apps.rollouts.scans.scan_controls import create_scan, start_scan
    from apps.rollouts.scans.scan_spec import ScanSpec
    from tests.factories import make_collection, make_policy_model, make_rollout

    call_command("migrate", verbosity=0)
    collection = make_collection(state="completed")
    with transaction.atomic():
        for place in range(number):
            text = "the tool failed" if place % 3 == 0 else "all is well"
            trace = [
                Prompt(items=[message("user", f"Question {place}.")]),
                ModelCall(seen=1, items=[message("assistant", f"Answer {place}: {text}.")]),
            ]
            make_rollout(collection, trace=trace)
    judge = make_policy_model(
        provider="custom",
        wire=Wire.CHAT,
        base_url=base_url,
        model_name="judge",
        concurrency=32,
        input_price=1.0,
        output_price=10.0,
    )
    spec = ScanSpec(name="Failures", question="Did a tool fail?", judge_model=judge, budget=1_000.0)
    print(start_scan(scan=create_scan(spec)).pk)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
