"""The pictures of docs/environments/: one trace of each built-in environment, from attempts that solve a task.

A site of its own is filled by a real collection for each, whose policy model is the kit's solver behind an endpoint.
`python scripts/picture_environments.py [NAME …]`; one JSON object a line, and the exit status as of take_screenshots.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import sync_playwright  # noqa: E402 - found by the line above

from apps.gym.environments.kits import KITS  # noqa: E402
from apps.gym.environments.task_generation import generate_tasks  # noqa: E402
from apps.gym.loop.trials.players import PlayedPolicy  # noqa: E402
from apps.gym.serving.own_port import serve_port  # noqa: E402
from apps.gym.serving.served_model import ServedModel  # noqa: E402
from apps.gym.traces.items import input_items, text_of  # noqa: E402
from apps.gym.wires.protocol import Ask, Reply  # noqa: E402
from scripts.servers import own_settings  # noqa: E402
from scripts.take_screenshots import CHROMIUM, LARGEST, Picture, take  # noqa: E402
from tests.gymweb.serving import serving  # noqa: E402

INTO = ROOT / "docs" / "images" / "environments"


class Solver:
    """A policy model that solves the first task of each environment; it knows the task by its prompt."""

    def __init__(self, names: list[str]) -> None:
        self._attempts: dict[str, PlayedPolicy] = {}
        for name in names:
            row = next(generate_tasks(KITS[name], count=1, difficulty="easy"))
            self._attempts[text_of(input_items(row)[-1])] = PlayedPolicy(row, KITS[name].solve)

    async def ask(self, ask: Ask) -> Reply:
        prompt = next(text_of(item) for item in ask.items if item.get("role") == "user")
        return await self._attempts[prompt].ask(ask)


def serve_solver(names: list[str]) -> int:
    """The port of an endpoint that answers until this process ends."""
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


def fill(names: list[str]) -> None:
    """Prints the rollout of each environment that was completed, and a link to sign in by."""
    import django
    from asgiref.sync import async_to_sync

    django.setup()
    from django.core.management import call_command

    from apps.accounts.sign_in import create_sign_in_link
    from apps.agents.models import Agent
    from apps.policies.models import PolicyModel, Provider
    from apps.rollouts.models import Rollout
    from apps.rollouts.plans.plan_spec import Plan
    from apps.rollouts.plans.planning import plan_collection
    from apps.rollouts.steering.local_worker import finish_collection
    from apps.tasks.models import Dataset
    from gymweb.management.commands.demo import find_person

    call_command("migrate", verbosity=0)
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
    print(json.dumps({"found": found, "link": f"/sign-in/{create_sign_in_link(user=person)}/"}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=sorted(KITS), metavar="NAME")
    parser.add_argument("--fill", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        fill(options.names)
        return 0
    INTO.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        var = Path(folder)
        given = own_settings(var, GYMWEB_OUTBOUND_ALLOW="127.0.0.1")
        words = [sys.executable, str(Path(__file__)), "--fill", *options.names]
        made = subprocess.run(words, env={**os.environ, **given}, check=True, text=True, stdout=subprocess.PIPE)
        told: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
        print(json.dumps(told["found"]))
        unsolved = [name for name, one in told["found"].items() if one["reward"] != 1.0]
        wanted = [
            Picture(name, f"/rollouts/{one['rollout']}/", ("j", "j", "j"), shown="#inspected dl")
            for name, one in told["found"].items()
        ]
        with serving(var, **given) as served, sync_playwright() as playwright:
            path = CHROMIUM if CHROMIUM.exists() else None
            browser = playwright.chromium.launch(args=["--no-sandbox"], executable_path=path)
            wrong = take(browser, f"http://127.0.0.1:{served.port}", told["link"], wanted, INTO)
            browser.close()
    size = sum(each.stat().st_size for each in INTO.glob("*.webp"))
    print(json.dumps({"bytes": size, "most": LARGEST, "wrong": wrong, "unsolved": unsolved}))
    return int(size > LARGEST or bool(wrong or unsolved))


if __name__ == "__main__":
    sys.exit(main())
