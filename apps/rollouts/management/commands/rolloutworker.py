"""Start another worker process."""

import asyncio
import os
import signal
from argparse import SUPPRESS, ArgumentParser
from typing import Any

import uvloop
from channels.layers import get_channel_layer
from django.core.checks import Tags
from django.core.management.base import BaseCommand
from django.db import connection

from apps.accounts.telemetry.exporters import start_telemetry
from apps.rollouts.checks import PROCESS_STARTS, SEVERAL_PROCESSES, WORKER_STARTS
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.management.options import read_group, read_seats
from apps.rollouts.notifications import WORKER_CHANNEL


class Command(BaseCommand):
    help = "Claim and run queued rollouts until stopped. SIGTERM drains; a second signal ends at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--seats", type=read_seats, default=None, help="Rollouts in flight at once (GYMWEB_WORKER_SEATS)"
        )
        parser.add_argument(
            "--group",
            type=read_group,
            default="",
            metavar="NAME",
            help="run only rollouts whose models or environments belong to this group",
        )
        parser.add_argument(
            "--no-background-jobs",
            action="store_true",
            help="do not run uploads, exports and other background jobs; for workers that do not share "
            "GYMWEB_VAR with the web processes",
        )
        parser.add_argument("--no-chores", action="store_true", help=SUPPRESS)  # Name before 0.2.0.

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["skip_checks"]:
            self.check(tags=[PROCESS_STARTS], include_deployment_checks=True)  # First: others read the tables.
            tags = [Tags.database, WORKER_STARTS, SEVERAL_PROCESSES]
            self.check(tags=tags, databases=["default"], include_deployment_checks=True)
            connection.close()  # The worker's threads have their own connections.
        if options["no_chores"]:
            self.stderr.write("--no-chores is deprecated: use --no-background-jobs.")
            options["no_background_jobs"] = True
        # Files are private to this user, as with `serve`.
        os.umask(0o077)
        # Web processes send the metrics of all workers, from the database.
        start_telemetry("worker")
        uvloop.run(
            work_until_stopped(options["seats"], options["group"], background_jobs=not options["no_background_jobs"])
        )


async def work_until_stopped(seats: int | None, group: str, *, background_jobs: bool) -> None:
    worker = RolloutWorker(
        None, [WORKER_CHANNEL], get_channel_layer(), seats=seats, group=group, background_jobs=background_jobs
    )
    loop = asyncio.get_running_loop()

    def stop(signum: signal.Signals) -> None:
        loop.remove_signal_handler(signum)  # a second signal has its default effect
        worker.stop()

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop, signum)
    await worker.handle()
