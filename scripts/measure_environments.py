#!/usr/bin/env python
"""Measure the built-in environments: rewards of a solver and of players that know nothing, and the cost of calls.

One JSON object per line for each environment and difficulty. Fails if the solver has less than 0.99, or any other
player more than 0.1. `guess` knows the form of an answer; for instruction_following, it is the best fixed text found by
a search. `--tasks 500` sets the number of tasks; names select environments.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from apps.gym.environments.kits import KITS
from apps.gym.environments.task_generation import DIFFICULTIES, Difficulty, Player, generate_tasks
from apps.gym.loop.trials.players import KNOW_NOTHING, play_attempt, reward_of
from apps.gym.resources.inprocess import InProcessServer

LEAST, MOST = 0.99, 0.1


async def measure(name: str, difficulty: Difficulty, *, tasks: int, played: int) -> dict[str, Any]:
    """Generate `tasks` tasks, of which each player plays the first `played`."""
    kit = KITS[name]
    began = time.perf_counter()
    rows = list(generate_tasks(kit, count=tasks, seed=1, difficulty=difficulty))
    generating = time.perf_counter() - began
    prompts = {
        json.dumps([row["responses_create_params"], *(row.get(one) for one in kit.identity_fields)]) for row in rows
    }
    players: dict[str, Player] = {"oracle": kit.solve, **KNOW_NOTHING}
    if kit.guess is not None:
        players["guess"] = kit.guess
    server = InProcessServer(name, name=name)
    scores: dict[str, float] = {}
    for player, play in players.items():
        began = time.perf_counter()
        rewards = [
            reward_of(await play_attempt(server, row, play, seed=seed, max_steps=kit.max_steps))
            for seed, row in enumerate(rows[:played])
        ]
        scores[player] = round(statistics.mean(reward or 0.0 for reward in rewards), 4)
        if player == "oracle":
            attempt = (time.perf_counter() - began) / len(rewards)
    return {
        "environment": name,
        "difficulty": difficulty,
        "tasks": len(prompts),
        "validation": sum(row["split"] == "validation" for row in rows),
        "played": min(played, len(rows)),
        **scores,
        "ms_a_task": round(1000 * generating / len(rows), 2),
        "ms_an_attempt": round(1000 * attempt, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ENVIRONMENT", help=f"of {', '.join(sorted(KITS))}")
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--played", type=int, default=500)
    options = parser.parse_args()
    failed = False
    for name in options.names or sorted(KITS):
        for difficulty in DIFFICULTIES:
            found = asyncio.run(measure(name, difficulty, tasks=options.tasks, played=options.played))
            print(json.dumps(found), flush=True)
            knowing = [found[player] for player in (*KNOW_NOTHING, "guess") if player in found]
            failed = failed or found["oracle"] < LEAST or max(knowing) > MOST or found["tasks"] < options.tasks
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
