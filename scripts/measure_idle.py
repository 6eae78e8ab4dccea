"""Measure what a server costs that has nothing to do, and one that only waits for a throttled model.

`python -m scripts.measure_idle [--seconds 60] [--rollouts 1000]` starts `manage.py serve` on a SQLite of its own. One
JSON object for each: `start` (CPU seconds and memory until it serves), `idle` and `throttled` (share of a core over the
given seconds, and memory). In `throttled` a collection waits for a model that answers every call with 429 and
`Retry-After: 1`.
"""

import argparse
import tempfile
import time
from pathlib import Path

from scripts.measured_server import Api, prepare
from scripts.measuring import MB, end_servers_when_stopped, in_own_process, say, use_database
from scripts.model_process import mock_model
from scripts.process_figures import cpu_seconds, processes, run_milliseconds
from scripts.servers import own_settings
from tests.gymweb.serving import Served, serving

SETTLE_SECONDS = 15.0


def _register(var: Path, base_url: str) -> int:
    use_database(var, GYMWEB_OUTBOUND_ALLOW="127.0.0.1")
    from apps.policies.models import PolicyModel, Provider
    from apps.policies.policy_model_changes import save_policy_model

    model = PolicyModel(slug="throttled", name="Throttled", provider=Provider.COMPATIBLE, base_url=base_url)
    model.model_name = "mock"
    return save_policy_model(policy_model=model, api_key="", user=None).pk


def _watch(served: Served, name: str, seconds: float) -> None:
    """Print the share of a core that the server and its children take."""
    time.sleep(SETTLE_SECONDS)
    pids = processes(served.process.pid)
    began, before = time.monotonic(), run_milliseconds(pids)
    time.sleep(seconds)
    share = (run_milliseconds(pids) - before) / 1000 / (time.monotonic() - began)
    say(name, percent_of_a_core=round(100 * share, 2), rss_mb=round(served.rss() / MB))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement; default: %(default)s")
    parser.add_argument("--rollouts", type=int, default=1000, help="of the waiting collection; default: %(default)s")
    options = parser.parse_args()
    end_servers_when_stopped()
    with (
        tempfile.TemporaryDirectory(prefix="gymweb-idle-") as folder,
        mock_model("--closed-for", 10**6, "--tool-calls", 0) as port,
    ):
        var = Path(folder)
        key = prepare(var)
        in_own_process(_register, var, f"http://127.0.0.1:{port}/v1")
        with serving(var, **own_settings(var, GYMWEB_OUTBOUND_ALLOW="127.0.0.1")) as served:
            say("start", cpu_seconds=round(cpu_seconds(served.process.pid), 2), rss_mb=round(served.rss() / MB))
            _watch(served, "idle", options.seconds)
            plan = {
                "dataset": "running",
                "agent": "default",
                "policy_model": "throttled",
                "repeats": max(1, options.rollouts // 1000),
            }
            status, reply = Api(served, key).call("POST", "collections/", plan)
            if status != 201:
                raise SystemExit(f"The collection was not planned: {reply}")
            _watch(served, "throttled", options.seconds)


if __name__ == "__main__":
    main()
