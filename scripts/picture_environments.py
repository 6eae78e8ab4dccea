"""Take the pictures of docs/use/environments/: one trace of a solved task of each built-in environment.

Fills its own site with a real collection per environment, whose policy model is the kit's solver behind an endpoint.
`python -m scripts.picture_environments [NAME …]` prints one JSON object per line; the exit status is that of
take_screenshots.
"""

import argparse
import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

from apps.gym.environments.kits import KITS
from apps.gym.environments.task_generation import generate_tasks
from apps.gym.loop.trials.players import PlayedPolicy
from apps.gym.serving.own_port import serve_port
from apps.gym.serving.served_model import ServedModel
from apps.gym.traces.items import input_items, text_of
from apps.gym.wires.protocol import Ask, Reply
from scripts.measured_pages import open_site, sign_in_link
from scripts.take_screenshots import Picture, take

ROOT = Path(__file__).resolve().parent.parent
INTO = ROOT / "docs" / "images" / "environments"


class Solver:
    """A policy model that solves the first task of each environment, which it recognises by its prompt."""

    def __init__(self, names: list[str]) -> None:
        self._attempts: dict[str, PlayedPolicy] = {}
        for name in names:
            row = next(generate_tasks(KITS[name], count=1, difficulty="easy"))
            self._attempts[text_of(input_items(row)[-1])] = PlayedPolicy(row, KITS[name].solve)

    async def ask(self, ask: Ask) -> Reply:
        prompt = next(text_of(item) for item in ask.items if item.get("role") == "user")
        return await self._attempts[prompt].ask(ask)


def serve_solver(names: list[str]) -> int:
    """Return the port of an endpoint that runs until this process ends."""
    port: list[int] = []
    begun = threading.Event()

    def started(number: int) -> None:
        port.append(number)
        begun.set()

    async def serve() -> None:
        model = ServedModel(name="solver", policy=Solver(names), sampling={})
        await serve_port(
            model,
            host="127.0.0.1",
            port=0,
            max_body=2**22,
            seconds=30.0,
            stop=asyncio.Event(),
            started=started,
        )

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    assert begun.wait(30.0)
    return port[0]


def fill(names: list[str]) -> tuple[str, dict[str, Any]]:
    """Return a sign-in link, and a completed rollout of each environment."""
    from asgiref.sync import async_to_sync
    from django.core.management import call_command

    from apps.agents.models import Agent
    from apps.policies.models import PolicyModel, Provider
    from apps.rollouts.models import Rollout
    from apps.rollouts.plans.plan_spec import Plan
    from apps.rollouts.plans.planning import plan_collection
    from apps.rollouts.steering.local_worker import finish_collection
    from apps.tasks.models import Dataset
    from gymweb.management.commands.demo import find_person

    person = find_person()
    model = PolicyModel.objects.create(
        slug="solver",
        name="Solver",
        provider=Provider.COMPATIBLE,
        model_name="solver",
        base_url=f"http://127.0.0.1:{serve_solver(names)}/v1",
    )
    agent = Agent.objects.create(slug="patient", name="Patient", max_steps=100)
    found: dict[str, Any] = {}
    for name in names:
        slug = name.replace("_", "-")
        call_command("generate_tasks", name, count=1, difficulty="easy", dataset=slug, stdout=sys.stderr)
        dataset = Dataset.objects.get(slug=slug)
        collection = plan_collection(
            Plan(dataset=dataset, agent=agent, policy_model=model, repeats=1, seed=1, name=name), user=person
        )
        async_to_sync(finish_collection)(collection, progress=lambda _: None)
        rollout = Rollout.objects.get(collection=collection)
        found[name] = {"rollout": rollout.pk, "status": rollout.status, "reward": rollout.reward}
    return sign_in_link(person), found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=sorted(KITS), metavar="NAME")
    names = parser.parse_args().names
    with open_site(lambda: fill(names), GYMWEB_OUTBOUND_ALLOW="127.0.0.1") as site:
        link, found = site.made
        print(json.dumps(found))
        wanted = [
            Picture(name, f"/rollouts/{one['rollout']}/", ("j", "j", "j"), shown="#inspected dl")
            for name, one in found.items()
        ]
        unsolved = [name for name, one in found.items() if one["reward"] != 1.0]
        return take(site, link, wanted, INTO) or int(bool(unsolved))


if __name__ == "__main__":
    sys.exit(main())
