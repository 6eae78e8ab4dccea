"""The Slurm job of deploy/slurm/, run by a fake `sbatch`: it drains before its time limit and loses nothing."""

import sys
import time
from pathlib import Path

import pytest

from tests.faults.installation import ROOT, Installation, Program, patient, size, wait_until
from tests.faults.judging import judge

pytestmark = pytest.mark.slow
SCRIPT = ROOT / "deploy" / "slurm" / "worker.sbatch"
SBATCH = r"""#!/bin/bash
# Run a job script as Slurm does. The tasks of an array end at a time limit: when the file $TIME_LIMIT exists.
set -euo pipefail
option() { sed -nE "s/^#SBATCH --$1=(.*)$/\1/p" "$2"; }
job=$1
unknown=$(grep '^#SBATCH' "$job" | grep -vE -- '--(job-name|array|cpus-per-task|mem|time|signal)=|--requeue$' || true)
[ -z "$unknown" ] || { echo "sbatch: error: unrecognized option $unknown" >&2; exit 1; }
[[ $(option time "$job") =~ ^[0-9]{2}:[0-9]{2}:[0-9]{2}$ ]] || { echo "sbatch: error: no time limit" >&2; exit 1; }
[[ $(option array "$job") =~ ^1-[0-9]+$ ]] || { echo "sbatch: error: no array" >&2; exit 1; }
[[ $(option signal "$job") =~ ^B:TERM@([0-9]+)$ ]] || { echo "sbatch: error: no signal" >&2; exit 1; }
ahead=${BASH_REMATCH[1]}
pids=()
for task in 1 2; do
  # Slurm runs a copy of the script.
  cp "$job" "$SPOOL/script-$task"
  SLURM_JOB_ID=$((100 + task)) SLURM_ARRAY_TASK_ID=$task SLURM_TMPDIR=$SPOOL \
    setpriv --pdeathsig KILL bash "$SPOOL/script-$task" >"$SPOOL/out-$task" 2>&1 </dev/null &
  pids+=($!)
done
until [ -e "$TIME_LIMIT" ]; do sleep 0.1; done
# B: means only the batch shell. At the time limit Slurm kills the processes that are left.
kill -TERM "${pids[@]}"
while [ -n "$(jobs -rp)" ] && ((ahead-- > 0)); do sleep 1; done
kill -KILL "${pids[@]}" 2>/dev/null || true
for pid in "${pids[@]}"; do
  code=0; wait "$pid" || code=$?
  echo "$pid $code"
done
"""


def test_a_job_drains_before_its_time_limit_and_loses_nothing(cluster: Installation, tmp_path: Path, show) -> None:
    rollouts = size(200, 2_000)
    _, tools = cluster.tools("--tool-ms", 20, "--verify-ms", 50)
    model = cluster.model("--latency-ms", 300, "--jitter-ms", 200)
    collection = cluster.plan(
        models={"mock": {"base_url": model, "worker_group": "cluster"}},
        environments={"weather": {"base_url": tools, "concurrency": rollouts // 20}},
        collections={
            "all": {"faults": [""] * 50, "model": "mock", "environment": "weather", "repeats": rollouts // 50}
        },
    )["all"]
    limit = tmp_path / "time-limit"
    job = submit(cluster, tmp_path, limit)
    cluster.wait_ended(rollouts // 10, collection, seconds=60)
    workers = dict(
        cluster.rows("SELECT pid, seats FROM rollouts_worker WHERE state = 'active' AND \"group\" = 'cluster'")
    )
    assert list(workers.values()) == [512, 512]
    running = "SELECT count(*) FROM rollouts_rollout WHERE status = 'running'"
    wait_until(lambda: cluster.number(running) > 0, 10, "rollouts are in flight at the time limit")
    limit.touch()
    began = time.monotonic()
    assert job.wait(patient(60)) == 0
    drained = time.monotonic() - began
    ended = [line.split() for line in (tmp_path / "sbatch.log").read_text().splitlines()]
    assert {int(pid): code for pid, code in ended} == dict.fromkeys(workers, "0")
    states = cluster.rows("SELECT state FROM rollouts_worker ORDER BY id")
    assert (states, cluster.number(running)) == ([("stopped",)] * 2, 0)
    assert cluster.number("SELECT coalesce(sum(lost), 0) FROM rollouts_rollout") == 0
    stored = cluster.ended(collection)
    assert rollouts // 10 <= stored < rollouts

    requeued = cluster.start("worker", "manage.py", "rolloutworker", "--seats", 64, "--group", "cluster")
    cluster.wait_finished(collection, seconds=150)
    figures = judge(cluster, collection)
    assert (figures["completed"], figures["lost"]) == (rollouts, 0)
    assert cluster.leave(requeued) == [0]
    show(**figures, stored_by_the_job=stored, drained_s=round(drained, 1))


def submit(cluster: Installation, folder: Path, limit: Path) -> Program:
    """Run `sbatch` on the script, with the addresses of this installation in its settings file."""
    sbatch = folder / "sbatch"
    sbatch.write_text(SBATCH)
    settings = folder / "gymweb.env"
    settings.write_text("".join(f"{name}='{value}'\n" for name, value in cluster.env.items() if "GYMWEB_" in name))
    script = SCRIPT.read_text().replace("/shared/gymweb.env", str(settings)).replace("/shared/gymweb", str(ROOT))
    job = folder / "worker.sbatch"
    job.write_text(script.replace(".venv/bin/python", sys.executable))
    spool = folder / "spool"
    spool.mkdir()
    kept = {name: value for name, value in cluster.env.items() if not name.startswith("GYMWEB_")}
    env = {**kept, "SPOOL": str(spool), "TIME_LIMIT": str(limit)}
    program = Program("sbatch", ["bash", str(sbatch), str(job)], env=env, log=folder / "sbatch.log")
    cluster.programs.append(program)
    return program
