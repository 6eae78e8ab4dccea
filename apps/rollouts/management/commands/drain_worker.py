"""Ask workers to claim no more and to leave when what they run has ended."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.rollouts.models import Worker
from apps.rollouts.steering.controls import CannotSteer, drain_worker


class Command(BaseCommand):
    help = "Drain workers: they claim no more, end what they run and exit. Without a name, lists those that are alive."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("worker", type=int, nargs="*", metavar="ID", help="as listed here and on the page Workers")
        parser.add_argument("--host", help="every active worker on this machine")

    def handle(self, *args: Any, **options: Any) -> None:
        active = Worker.objects.filter(state=Worker.State.ACTIVE)
        if not options["worker"] and options["host"] is None:
            self.stdout.write("\n".join(map(_describe, active)) or "No worker is alive.")
            return
        for worker in _named(options["worker"]) if options["worker"] else list(active.filter(host=options["host"])):
            try:
                drain_worker(worker=worker)
            except CannotSteer as refusal:
                raise CommandError(str(refusal)) from refusal
            self.stdout.write(f"{worker} drains: it runs {worker.busy} rollouts to their end.")


def _named(numbers: list[int]) -> list[Worker]:
    """All of them, or none is touched."""
    found = Worker.objects.in_bulk(numbers)
    if missing := [str(number) for number in numbers if number not in found]:
        raise CommandError(
            f"There is no worker {', '.join(missing)}: manage.py drain_worker lists those that are alive."
        )
    return [found[number] for number in numbers]


def _describe(worker: Worker) -> str:
    group = f", group {worker.group}" if worker.group else ""
    return f"{worker.pk}: {worker.host}:{worker.pid}{group}, {worker.busy} of {worker.seats} seats busy"
