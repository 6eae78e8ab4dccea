"""What it costs a real server to export a million rollouts and to delete them: memory, speed, and what can be seen.

`python scripts/measure_endings.py [--rollouts 1000000] [--traced 0.2]` fills a PostgreSQL (scripts/fill_rollouts.py),
starts `manage.py serve` with its worker on it, and asks over the API for an export of the largest collection and then
for its deletion. One JSON object a line; memory is that of the server with all its children. The exit status is 1 where
memory grew by 150 MB or more, where nothing could be seen meanwhile, or where something was left behind.
"""

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.fill_rollouts import Filled, fill_rollouts, find_filled, use_database  # noqa: E402 - found by the line above
from scripts.measured_server import ALLOWED_GROWTH_MB, Api, Memory, say  # noqa: E402
from scripts.servers import postgres  # noqa: E402
from tests.gymweb.serving import Served, serving  # noqa: E402

LOOK_SECONDS = 0.5


def measure_endings(*, database: str, var: Path, rollouts: int, traced: float) -> bool:
    """Says whether memory stayed flat, and nothing was left."""
    use_database(database, var)
    filled = find_filled() or fill_rollouts(rollouts=rollouts, traced=traced)
    settings = {"GYMWEB_DATABASE_URL": database, "DJANGO_SETTINGS_MODULE": "gymweb.settings"}
    with serving(var, "--seats", "8", **settings) as served:
        api = Api(served, _key())
        time.sleep(5)  # until the worker is warm
        return all([_export(api, served, filled), _delete(api, served, filled)])


def _key() -> str:
    from apps.accounts.api_keys import create_api_key
    from apps.accounts.models import User

    return create_api_key(user=User.objects.get(username="filler"), name="endings", scopes=["admin"])[1]


def _export(api: Api, served: Served, filled: Filled) -> bool:
    from apps.exports.models import Export

    asked = {"format": "nemo_gym_rollouts", "collection": filled.large, "filters": {"include_flagged": True}}
    with Memory(served) as memory:
        status, export = api.call("POST", "exports/", asked)
        assert status in {201, 202}, export
        states = _wait(api, f"exports/{export['id']}/", {"queued", "writing"})
    last = states[-1]
    considered = Export.objects.get(pk=export["id"]).manifest["counts"]["considered"]
    seen = len({state["rows"] for state in states})
    within = memory.growth_mb < ALLOWED_GROWTH_MB and last["state"] == "ready" and seen > 1
    say(
        "export", on="postgres", rollouts=considered, rows=last["rows"], mb=round(last["bytes"] / 1024**2),
        seconds=round(memory.seconds, 1), rollouts_per_s=round(considered / memory.seconds),
        rows_per_s=round(last["rows"] / memory.seconds), growth_mb=memory.growth_mb, state=last["state"],
        numbers_seen=seen, within=within,
    )  # fmt: skip
    status, told = api.call("DELETE", f"exports/{export['id']}/")
    assert status == 204, told
    return within


def _delete(api: Api, served: Served, filled: Filled) -> bool:
    from apps.rollouts.models import Collection, Rollout, TraceEvent

    before = TraceEvent.objects.count()
    with Memory(served) as memory:
        status, deletion = api.call("DELETE", f"collections/{filled.large}/")
        assert status == 202, deletion
        states = _wait(api, f"collection-deletions/{deletion['id']}/", {"queued", "deleting"})
    last = states[-1]
    left = Rollout.objects.filter(collection=filled.large).count() + Collection.objects.filter(pk=filled.large).count()
    seen = len({state["deleted"] for state in states})
    within = memory.growth_mb < ALLOWED_GROWTH_MB and last["state"] == "done" and seen > 1 and not left
    say(
        "deletion", on="postgres", rollouts=last["deleted"], events=before - TraceEvent.objects.count(),
        seconds=round(memory.seconds, 1), rollouts_per_s=round(last["deleted"] / memory.seconds),
        growth_mb=memory.growth_mb, state=last["state"], numbers_seen=seen, left=left, within=within,
    )  # fmt: skip
    return within


def _wait(api: Api, address: str, going: set[str]) -> list[dict[str, Any]]:
    """All that the address told until it was over."""
    states: list[dict[str, Any]] = []
    while not states or states[-1]["state"] in going:
        _, state = api.call("GET", address)
        states.append(state)
        time.sleep(LOOK_SECONDS)
    return states


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--traced", type=float, default=0.2, help="the share of rollouts with traces")
    parser.add_argument("--database", default="", help="one of yours, that is empty or was filled before")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end as well
    with contextlib.ExitStack() as stack:
        database = options.database or stack.enter_context(postgres()).url
        var = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gymweb-endings-")))
        within = measure_endings(database=database, var=var, rollouts=options.rollouts, traced=options.traced)
    print(json.dumps({"endings": "all", "within": within}))
    sys.exit(not within)


if __name__ == "__main__":
    main()
