"""`manage.py ray_workers` on a local Ray cluster of three nodes, one of which is killed and one preempted."""

import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.installation import Installation, size, wait_until
from tests.faults.judging import judge

cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed: pip install ray")
pytestmark = pytest.mark.slow
ACTIVE = "SELECT count(*) FROM rollouts_worker WHERE state = 'active' AND lease_expires_at > now()"


@pytest.fixture
def three_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Three nodes with two CPUs each, so that two nodes can replace the workers of the third."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # A dead node is noticed in seconds instead of half a minute.
    noticing = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3, "health_check_initial_delay_ms": 0}
    head = {"num_cpus": 2, "_system_config": noticing, "include_dashboard": False}
    nodes = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=2)
        yield nodes
    finally:
        started = [
            info.process for node in nodes.list_all_nodes() for infos in node.all_processes.values() for info in infos
        ]
        nodes.shutdown()
        for process in started:
            process.wait(30)  # Ray does not, and Python warns later, in another test.


def test_every_rollout_ends_once_though_nodes_are_killed_and_preempted(
    cluster: Installation, three_nodes: Any, show
) -> None:
    rollouts = size(300, 2_000)
    _, tools = cluster.tools("--tool-ms", 20, "--verify-ms", 100)
    model = cluster.model("--latency-ms", 300, "--jitter-ms", 100)
    collection = cluster.plan(
        models={"mock": {"base_url": model, "worker_group": "ray"}},
        environments={"weather": {"base_url": tools}},
        collections={
            "all": {"faults": [""] * 100, "model": "mock", "environment": "weather", "repeats": rollouts // 100}
        },
    )["all"]
    options = ["--min", 1, "--max", 3, "--group", "ray", "--seats", 32, "--idle-seconds", 2, "--no-background-jobs"]
    began = time.monotonic()
    fleet = cluster.start("ray_workers", "manage.py", "ray_workers", "--address", three_nodes.address, *options)
    cluster.wait_ended(rollouts // 10, collection, seconds=60)
    killed = end_node(three_nodes, active_pids(cluster), preempt=False)
    assert len(killed) == 1, "SPREAD places one of three workers on each node"
    cluster.wait_ended(rollouts // 2, collection, seconds=60)
    preempted = end_node(three_nodes, active_pids(cluster) - killed, preempt=True)
    assert preempted
    cluster.wait_finished(collection, seconds=150)
    seconds = time.monotonic() - began
    figures = judge(cluster, collection)
    assert (figures["completed"], figures["lost"] > 0) == (rollouts, True)
    # Until the lease of the killed worker has expired, its row looks active.
    wait_until(lambda: "Lost a worker" in fleet.said, 30, fleet.said)
    wait_until(lambda: cluster.number(ACTIVE) == 1, 60, lambda: f"the surplus has drained; {cluster.tell()}")
    fleet.signal(signal.SIGTERM)
    assert fleet.wait(30) == 0, fleet.said[-3000:]
    ended = dict(cluster.rows("SELECT pid, state FROM rollouts_worker"))
    assert {ended[pid] for pid in preempted} == {"stopped"}
    states = dict(cluster.rows("SELECT state, count(*) FROM rollouts_worker GROUP BY state"))
    assert (states.pop("lost"), set(states)) == (1, {"stopped"})
    show(**figures, workers=sum(states.values()) + 1, seconds=round(seconds, 1))


def test_workers_drain_if_the_command_is_killed(cluster: Installation, three_nodes: Any, show) -> None:
    options = ["--address", three_nodes.address, "--min", 3, "--max", 3, "--no-background-jobs"]
    fleet = cluster.start("ray_workers", "manage.py", "ray_workers", *options)
    wait_until(lambda: cluster.number(ACTIVE) == 3, 60, cluster.tell)
    fleet.kill()
    stopped = "SELECT count(*) FROM rollouts_worker WHERE state = 'stopped'"
    seconds = wait_until(lambda: cluster.number(stopped) == 3, 20, cluster.tell)
    show(drained_s=round(seconds, 1))


def active_pids(cluster: Installation) -> set[int]:
    return {pid for (pid,) in cluster.rows("SELECT pid FROM rollouts_worker WHERE state = 'active'")}


def end_node(nodes: Any, workers: set[int], *, preempt: bool) -> set[int]:
    """End a node that runs workers, and return their pids.

    Preempted, Ray's processes get SIGTERM. Otherwise all processes of the node are killed, as when the machine fails.
    """
    for node in nodes.worker_nodes:
        [raylet] = node.all_processes["raylet"]
        below = descendants(raylet.process.pid)
        if workers & below:
            for pid in [] if preempt else [raylet.process.pid, *below]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            nodes.remove_node(node, allow_graceful=preempt)
            return workers & below
    raise AssertionError(f"only the head node runs workers of {workers}")


def descendants(pid: int) -> set[int]:
    children = defaultdict(set)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children[int(path.read_text().rpartition(")")[2].split()[1])].add(int(path.parent.name))
    found, new = set(), {pid}
    while new:
        new = {child for parent in new for child in children[parent]}
        found |= new
    return found
