"""Measure exporting and deleting a million rollouts on a real server: memory, speed and visible progress.

`python -m scripts.measure_endings [--rollouts 1000000] [--traced 0.2]` fills a PostgreSQL database
(scripts/fill_rollouts.py), starts `manage.py serve` with its worker, and requests an export of the largest collection
and then its deletion by the API. One JSON object per line; memory is that of the server and its children. The exit
status is 1 if memory grew by 150 MB or more, if no progress was visible, or if something was left behind.
"""

import sys
import time

from scripts.measured_server import Api, Memory
from scripts.measuring import ALLOWED_GROWTH_MB, Filled, Ground, filled_ground, parse_ground, say
from tests.gymweb.serving import Served, serving


def measure_endings(ground: Ground) -> bool:
    """Return True if memory stayed flat and nothing was left behind."""
    from apps.accounts.api_keys import create_api_key
    from apps.accounts.models import User

    key = create_api_key(user=User.objects.get(username="filler"), name="endings", scopes=["admin"])[1]
    with serving(ground.var, "--seats", "8", **ground.settings) as served:
        api = Api(served, key)
        time.sleep(5)  # until the worker has warmed up
        return all([_export(api, served, ground.filled), _delete(api, served, ground.filled)])


def _export(api: Api, served: Served, filled: Filled) -> bool:
    from apps.exports.models import Export

    asked = {"format": "nemo_gym_rollouts", "collection": filled.large, "filters": {"include_flagged": True}}
    with Memory(served) as memory:
        status, export = api.call("POST", "exports/", asked)
        assert status in {201, 202}, export
        states = api.wait(f"exports/{export['id']}/", {"queued", "writing"})
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
        states = api.wait(f"collection-deletions/{deletion['id']}/", {"queued", "deleting"})
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


def main() -> None:
    with filled_ground(**vars(parse_ground(__doc__, traced=0.2).parse_args())) as ground:
        within = measure_endings(ground)
    say("endings", within=within)
    sys.exit(not within)


if __name__ == "__main__":
    main()
