#!/usr/bin/env python
"""Workers in one process, with the real code of leases, heartbeats, claims and recording. Only the rollouts are
simulated: each sleeps, stores one event and ends.

Writes a line per start and end of an attempt, "start|end <rollout> <attempt> <seconds of the system's clock>", so that
it is complete after SIGKILL. Ends at SIGTERM.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["DJANGO_SETTINGS_MODULE"] = "gymweb.settings"


async def work(options: argparse.Namespace) -> None:
    from channels.layers import get_channel_layer

    from apps.gym.traces.events import Verification
    from apps.rollouts.engine import rollout_spans, worker
    from apps.rollouts.engine.recording import End
    from apps.rollouts.notifications import WORKER_CHANNEL
    from scripts.queue_work import completed_end

    steps = options.steps.open("a", buffering=1)

    def write(what: str, claim: Any) -> None:
        steps.write(f"{what} {claim.rollout_id} {claim.attempt} {time.monotonic()}\n")

    async def run_rollout(*, claim: Any, listener: Any, **rest: Any) -> End:
        write("start", claim)
        try:
            await asyncio.sleep(random.uniform(options.shortest, options.longest))
            listener.add_event(claim, Verification(reward=1.0))
        finally:
            write("end", claim)
        return completed_end(claim)

    with mock.patch.multiple(rollout_spans, run_rollout=run_rollout):
        workers = [
            worker.RolloutWorker(
                None, [WORKER_CHANNEL], get_channel_layer(), seats=options.seats, background_jobs=False
            )
            for _ in range(options.workers)
        ]

    def leave() -> None:
        for one in workers:
            one.stop()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)
    await asyncio.gather(*(one.handle() for one in workers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--seats", type=int, required=True, help="of each worker")
    parser.add_argument("--shortest", type=float, required=True, help="seconds of a rollout")
    parser.add_argument("--longest", type=float, required=True, help="seconds of a rollout")
    parser.add_argument("--steps", type=Path, required=True, help="the file to append to")
    options = parser.parse_args()
    import django

    django.setup()
    asyncio.run(work(options))


if __name__ == "__main__":
    main()
