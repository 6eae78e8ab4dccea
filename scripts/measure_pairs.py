"""What pairs of a million rollouts cost: seconds and peak memory of a process that counts them, and that makes them.

`python scripts/measure_pairs.py [--rollouts 1000000]` fills a PostgreSQL of its own (scripts/fill_rollouts.py), every
rollout with its trace, and pairs the large collection by the default rule and by the most expensive one, each in a
process of its own. One JSON object a line. The exit status is 1 where memory grew beyond its budget, where a live
count took too long to answer, or where what was made is not what was counted.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.fill_rollouts import fill_rollouts, use_database  # noqa: E402 - found by the line above
from scripts.servers import postgres  # noqa: E402

BUDGET_MB = 100
"""Above what the process had before it began."""
LIVE_BUDGET_SECONDS = 3.0
RULES: dict[str, dict[str, Any]] = {
    "best_worst": {},
    "all_steps": {"mode": "all", "level": "step", "margin": 0.01, "include_truncated": True, "include_redacted": True},
}


def measure(work: str, rule_name: str, collection_id: int) -> dict[str, Any]:
    """One piece of work, in this process."""
    from apps.gym.pairs.pair_rule import read_rule
    from apps.pairs.pair_counts import LIVE_SECONDS, count_pairs
    from apps.pairs.pair_sets import PairOrder, build_pairs
    from apps.rollouts.models import Collection

    collection = Collection.objects.get(pk=collection_id)
    rule = read_rule(RULES[rule_name])
    before, began, cpu = _peak_mb(), time.perf_counter(), time.process_time()
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
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "grew_mb": round(_peak_mb() - before, 1),
    }


def _peak_mb() -> float:
    """Of this program: what `getrusage` tells would be that of the program that started it, where it was larger."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def _say_the_same_prompt() -> None:
    """The traces are those of forty attempts at other tasks: attempts at one task have to begin alike."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE rollouts_traceevent SET payload = (SELECT payload FROM rollouts_traceevent WHERE kind = 'prompt' "
            "ORDER BY rollout_id LIMIT 1) WHERE kind = 'prompt'"
        )


def measure_all(database: str, var: Path, collection_id: int) -> bool:
    """Whether everything kept its budget."""
    kept = True
    for rule_name in RULES:
        found: dict[str, dict[str, Any]] = {}
        for work in ("live", "count", "make"):
            words = ["--work", work, "--rule", rule_name, "--collection", str(collection_id)]
            words += ["--database", database, "--var", str(var)]
            done = subprocess.run([sys.executable, __file__, *words], check=True, text=True, stdout=subprocess.PIPE)
            found[work] = json.loads(done.stdout)
            within = found[work]["grew_mb"] <= BUDGET_MB
            if work == "live":
                within &= found[work]["seconds"] <= LIVE_BUDGET_SECONDS or os.getloadavg()[0] > (os.cpu_count() or 1)
            if work == "make":
                within &= (found["make"]["pairs"], found["make"]["whole"]) == (found["count"]["pairs"], True)
            kept &= within
            print(json.dumps({**found[work], "within": within, "load": round(os.getloadavg()[0], 1)}), flush=True)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--work", choices=["live", "count", "make"], help=argparse.SUPPRESS)
    parser.add_argument("--rule", choices=list(RULES), help=argparse.SUPPRESS)
    parser.add_argument("--collection", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--database", help=argparse.SUPPRESS)
    parser.add_argument("--var", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        use_database(given.database, given.var)
        print(json.dumps(measure(given.work, given.rule, given.collection)))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends as well
    with postgres() as server, tempfile.TemporaryDirectory(prefix="gymweb-pairs-") as var:
        use_database(server.url, Path(var))
        filled = fill_rollouts(rollouts=given.rollouts, traced=1.0)
        _say_the_same_prompt()
        print(json.dumps({"filled": filled.rollouts, "seconds": filled.seconds}), flush=True)
        kept = measure_all(server.url, Path(var), filled.large)
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
