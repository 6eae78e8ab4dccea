"""Run workers in the actors of a Ray cluster."""

import argparse
import json
import math
import os
import signal
import threading
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection

from apps.rollouts.engine.worker_leases import drain_lease
from apps.rollouts.management.options import read_group, read_seats, whole_number
from apps.rollouts.metrics.fleet_gauges import count_unfinished
from apps.rollouts.models import Worker
from apps.rollouts.ray_fleet import RUNTIME, RayFleet, WorkerActor

LOOK_SECONDS = 1.0
MOST_WORKERS = 10_000


class Command(BaseCommand):
    help = "Keep --min to --max workers on a Ray cluster, one actor each, by the number of unfinished rollouts. "
    help += "SIGTERM drains all; a second signal ends at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        number = whole_number(0, MOST_WORKERS)
        parser.add_argument("--min", type=number, default=0, help="workers without rollouts (default: %(default)s)")
        parser.add_argument("--max", type=number, required=True, help="most workers")
        parser.add_argument("--group", type=read_group, default="", metavar="NAME", help="group of the workers")
        parser.add_argument("--seats", type=read_seats, help="rollouts in flight per worker (GYMWEB_WORKER_SEATS)")
        parser.add_argument("--cpus", type=float, default=1.0, help="CPUs that Ray reserves per worker (default: 1)")
        parser.add_argument(
            "--resources",
            type=read_resources,
            default={},
            metavar="JSON",
            help="""custom resources that Ray reserves per worker, for example '{"model_net": 1}'""",
        )
        parser.add_argument(
            "--idle-seconds",
            type=whole_number(0, 86_400),
            default=60,
            help="how long fewer workers must suffice before one drains (default: %(default)s)",
        )
        parser.add_argument("--no-background-jobs", action="store_true", help="as for rolloutworker")
        parser.add_argument(
            "--address", default="auto", help="of the Ray cluster (default: RAY_ADDRESS, or this machine)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["min"] > options["max"]:
            raise CommandError("--min must not be larger than --max.")
        ray = connect(options["address"])
        # After Ray has set its own handlers.
        stopping = threading.Event()

        def stop(number: int, frame: Any) -> None:
            signal.signal(number, signal.SIG_DFL)
            stopping.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        fleet = RayFleet(ray, start=make_start(ray, options), write=self.write)
        self.keep_size(fleet, options, stopping)
        self.write(f"Draining {len(fleet.members)} workers")
        fleet.drain()
        while fleet.members:
            time.sleep(0.2)
            fleet.look()

    def keep_size(self, fleet: RayFleet, options: dict[str, Any], stopping: threading.Event) -> None:
        """Start and drain workers until `stopping`. A surplus drains only after --idle-seconds."""
        seats = options["seats"] or settings.WORKER_SEATS
        needed_at = time.monotonic()
        while True:
            fleet.look()
            try:
                unfinished = count_unfinished(options["group"])
                wanted = min(max(math.ceil(unfinished / seats), options["min"]), options["max"])
                missing = wanted - len(fleet.active)
                if missing >= 0:
                    needed_at = time.monotonic()
                if missing > 0:
                    self.write(f"Starting {missing} workers, for {unfinished} rollouts")
                    fleet.grow(missing)
                elif missing < 0 and time.monotonic() - needed_at >= options["idle_seconds"]:
                    drain_surplus(fleet, -missing)
            except DatabaseError as problem:
                self.write(f"The database does not respond, so the number of workers stays: {problem}")
            finally:
                connection.close()  # A new one each time survives restarts of the database.
            if stopping.wait(LOOK_SECONDS):
                return

    def write(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def read_resources(text: str) -> dict[str, float]:
    try:
        resources = json.loads(text)
        return {str(name): float(amount) for name, amount in resources.items()}
    except (ValueError, TypeError, AttributeError):
        raise argparse.ArgumentTypeError(
            f"""{text!r} is not a JSON object of numbers, for example '{{"x": 1}}'"""
        ) from None


def connect(address: str) -> Any:
    """Return the `ray` module, connected to a running cluster."""
    try:
        import ray
    except ImportError:
        raise CommandError("Ray is not installed. In GymWeb's folder, run: pip install --editable '.[ray]'") from None
    try:
        ray.init(address=address)
    except ConnectionError as problem:
        raise CommandError(f"No Ray cluster found: {problem} Start one with `ray start`, or set --address.") from None
    return ray


def make_start(ray: Any, options: dict[str, Any]) -> Any:
    """Return a function that creates an actor."""
    arguments = [f"--seats={options['seats']}"] if options["seats"] else []
    arguments += [f"--group={options['group']}"] if options["group"] else []
    arguments += ["--no-background-jobs"] if options["no_background_jobs"] else []
    # An argument, not a runtime environment: Ray shows runtime environments, and this has passwords.
    environment = {name: value for name, value in os.environ.items() if name.startswith(("GYMWEB_", "DJANGO_"))}
    actor = ray.remote(WorkerActor).options(
        num_cpus=options["cpus"],
        resources=options["resources"],
        scheduling_strategy="SPREAD",
        max_restarts=0,
        runtime_env=RUNTIME,
    )
    return lambda: actor.remote(arguments, str(settings.BASE_DIR), environment)


def drain_surplus(fleet: RayFleet, count: int) -> None:
    """Cancel actors that Ray has not placed, then drain the least busy workers. Their rollouts finish first."""
    for member in [member for member in fleet.active if not member.pid][:count]:
        fleet.remove(member)
        count -= 1
    known = {(member.host, member.pid): member for member in fleet.active}
    rows = Worker.objects.filter(state=Worker.State.ACTIVE, pid__in=[pid for _, pid in known]).order_by("busy", "-pk")
    for worker in [worker for worker in rows if (worker.host, worker.pid) in known][:count]:
        drain_lease(worker_id=worker.pk)
        known[worker.host, worker.pid].is_draining = True
