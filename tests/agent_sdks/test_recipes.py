"""The programs of examples/agents/recipes/ with a scripted model: each trace has the right conversation and turns.

A package that is not installed is skipped by name.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gymweb_client import AsyncGymWeb

from apps.gym.traces.authorship import Authors
from apps.gym.traces.events import AgentEnd, decode_event
from apps.gym.traces.graph import TraceGraph
from scripts.agent_recipes import PROGRAMS, RECIPES, Recipe
from tests.agent_sdks.recipe_cases import CASES, TASK, Case
from tests.agent_sdks.scripted_model import plan, scripted_model
from tests.capture.test_external_agents import ended
from tests.clients.site import Site

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "examples" / "agents" / "run_program.py"
pytestmark = pytest.mark.slow


def skip_if_missing(recipe: Recipe) -> list[pytest.MarkDecorator]:
    reason = recipe.problem.strip() or "not installed: python -m scripts.agent_recipes"
    return [pytest.mark.skipif(not recipe.is_installed, reason=f"SKIPPED by name: {recipe.packages[0]}: {reason}")]


@pytest.mark.parametrize("recipe", [pytest.param(one, id=one.name, marks=skip_if_missing(one)) for one in RECIPES])
def test_a_recipe_has_the_right_trace(site: Site, recipe: Recipe) -> None:
    asyncio.run(run_recipe(site, recipe, CASES[recipe.name]))


async def run_recipe(site: Site, recipe: Recipe, case: Case) -> None:
    name = recipe.name.replace("_", "-")
    async with AsyncGymWeb(site.base, site.key) as gym, scripted_model(case.replies, case.aside) as model:
        collection = await plan(gym, name, model.url, TASK, "500")
        done = await asyncio.to_thread(run_program, site, recipe, collection)
        assert done.returncode == 0, done.stderr[-3000:]
        (rollout,) = (await gym.request("GET", f"rollouts/?collection={collection}"))["results"]
        row = await ended(gym, rollout["id"])
        events = [decode_event(msgspec.json.encode(one["event"])) for one in await gym.trace(row["id"])]
        order = {"collection": collection, "format": "trl_sft_turns", "options": {"branches": "conversation"}}
        preview = await gym.request("POST", "exports/preview/", {**order, "filters": {"min_reward": None}})
    graph = TraceGraph(events)
    assert (row["status"], row["reward"], row["ambiguous_path"]) == ("completed", 1.0, False), (row, events[-2:])
    assert describe(graph, row, preview) == expect(recipe, case)
    unanswered = [msgspec.structs.replace(one, answer="") if isinstance(one, AgentEnd) else one for one in events]
    assert TraceGraph(unanswered).main_leaf == graph.main_leaf


def run_program(site: Site, recipe: Recipe, collection: int) -> subprocess.CompletedProcess[str]:
    """Run a recipe for the only rollout of a collection, from the environment of its packages."""
    bin_folder = recipe.folder / ("node_modules/.bin" if recipe.npm else "bin")
    program = PROGRAMS / recipe.program
    if program.suffix == ".mjs":
        # Node.js looks for packages in the folders above the program.
        program = Path(shutil.copy(program, recipe.folder))
    interpreter = {".py": bin_folder / "python", ".mjs": "node", ".sh": "sh"}[program.suffix]
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "clients" / "python"),
        "GYMWEB_URL": site.base,
        "GYMWEB_KEY": site.key,
    }
    return subprocess.run(
        [sys.executable, RUNNER, "--wait", "1", "--at-once", "1", str(collection), interpreter, program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def describe(graph: TraceGraph, row: dict[str, Any], preview: dict[str, Any]) -> dict[str, Any]:
    calls = list(graph.calls.values())
    authors = Authors(graph.calls).of(graph.request(graph.main_leaf), graph.main_leaf)
    return {
        "parents": tuple(call.parent for call in calls),
        "lineages": tuple(call.lineage for call in calls),
        "reasons": tuple(graph.reason_of(call.call) for call in calls),
        "spawned": {call.call: call.spawned_by for call in calls if call.spawned_by},
        "path": tuple(graph.path(graph.main_leaf)),
        "why": graph.main_path.reason,
        "edited": {call.call: call.edited for call in calls if call.edited},
        "authors": dict(Counter(author for author in authors if author)),
        "tool_calls": row["tool_calls"],
        "rows": preview["trainability"]["rows"],
        "wires": {call.wire for call in calls},
    }


def expect(recipe: Recipe, case: Case) -> dict[str, Any]:
    fields = ("parents", "lineages", "reasons", "spawned", "path", "why", "edited", "authors", "tool_calls", "rows")
    return {**{name: getattr(case, name) for name in fields}, "wires": {recipe.wire}}
