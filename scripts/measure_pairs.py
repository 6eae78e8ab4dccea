"""Measure pairs of a million rollouts: seconds and peak memory of counting and building them.

`python -m scripts.measure_pairs [--rollouts 1000000]` fills its own PostgreSQL (scripts/fill_rollouts.py), every
rollout with a trace, and pairs the large collection by the default rule and by the most expensive one, each in a
process of its own. One JSON object per line. The exit status is 1 if memory grew beyond its budget, if a live count
took too long, or if counts and built pairs differ.
"""

import sys
import time
from typing import Any

from scripts.measured_server import Memory
from scripts.measuring import filled_ground, in_own_process, is_busy, machine_load, parse_sizes, say

BUDGET_MB = 100
"""Budget above the process's memory at the start."""
LIVE_BUDGET_SECONDS = 3.0
RULES: dict[str, dict[str, Any]] = {
    "best_worst": {},
    "all_steps": {"mode": "all", "level": "step", "margin": 0.01, "include_truncated": True, "include_redacted": True},
}


def measure(work: str, rule_name: str, collection_id: int) -> dict[str, Any]:
    """Do one piece of work in this process."""
    import django

    django.setup()
    from apps.gym.pairs.pair_rule import read_rule
    from apps.pairs.pair_counts import LIVE_SECONDS, count_pairs
    from apps.pairs.pair_sets import PairOrder, build_pairs
    from apps.rollouts.models import Collection

    collection = Collection.objects.get(pk=collection_id)
    rule = read_rule(RULES[rule_name])
    cpu = time.process_time()
    with Memory() as memory:
        if work == "make":
            made = build_pairs(PairOrder(collection=collection, rule=rule))
            found = {"pairs": made.pair_count, "considered": made.considered, "whole": made.state == "ready"}
        else:
            counts = count_pairs([collection], rule, seconds=LIVE_SECONDS if work == "live" else None).counts
            found = {"pairs": counts.pairs, "considered": counts.considered, "whole": counts.whole}
    return {
        "work": work,
        "rule": rule_name,
        **found,
        "seconds": round(memory.seconds, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "grew_mb": memory.growth_mb,
    }


def _say_the_same_prompt() -> None:
    """Make attempts at one task start with the same prompt.

    Their traces are copies of forty attempts at different tasks.
    """
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE rollouts_traceevent SET payload = (SELECT payload FROM rollouts_traceevent WHERE kind = 'prompt' "
            "ORDER BY rollout_id LIMIT 1) WHERE kind = 'prompt'"
        )


def measure_all(collection_id: int) -> bool:
    """Return True if everything kept its budget."""
    kept = True
    for rule_name in RULES:
        counted = 0
        for work in ("live", "count", "make"):
            found = in_own_process(measure, work, rule_name, collection_id)
            within = found["grew_mb"] <= BUDGET_MB
            if work == "live":
                within &= found["seconds"] <= LIVE_BUDGET_SECONDS or is_busy()
            elif work == "count":
                counted = found["pairs"]
            else:
                within &= (found["pairs"], found["whole"]) == (counted, True)
            kept &= within
            say("pairs", **found, within=within, load=machine_load())
    return kept


def main() -> None:
    options = parse_sizes(__doc__, rollouts=1_000_000).parse_args()
    with filled_ground(rollouts=options.rollouts, traced=1.0) as ground:
        _say_the_same_prompt()
        kept = measure_all(ground.filled.large)
    sys.exit(not kept)


if __name__ == "__main__":
    main()
