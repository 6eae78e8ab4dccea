"""Rows and real servers for the tests of trackers."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from django.conf import settings
from django.utils import timezone

from apps.rollouts.models import Collection
from apps.tracking.models import TrackedRun, Tracker
from apps.tracking.run_delivery import send_runs
from apps.tracking.run_links import track_collection
from apps.tracking.run_points import record_points
from apps.tracking.tracker_changes import save_tracker
from apps.tracking.tracking_spec import TrackingSpec
from scripts.build_environment import environment_folder, is_complete
from tests.alerts.receiver import find_port
from tests.deadlines import wait_until
from tests.factories import make_collection, make_dataset, make_rollout, make_row

ENVIRONMENT = environment_folder("tracking")
IS_BUILT = is_complete(ENVIRONMENT)
PYTHON = ENVIRONMENT / "bin" / "python"
REWARDS = {"step-100": [0.0, 0.25, 1.0, 0.0, 0.5, 0.0], "step-200": [1.0, 0.75, 1.0, 0.1, 1.0, 1.0]}


def make_finished() -> Collection:
    """A finished collection of six tasks and two model versions."""
    collection = make_running()
    for version in REWARDS:
        add_rollouts(collection, version)
    finish(collection)
    return collection


def make_running() -> Collection:
    rows = [make_row(f"What is {n} + 2? | or not", str(n + 2)) for n in range(6)]
    return make_collection(dataset=make_dataset(rows), total=12, repeats=2)


def add_rollouts(collection: Collection, version: str) -> None:
    tasks = collection.version.tasks.order_by("index")
    rewards = REWARDS[version]
    for task, reward in zip(tasks, rewards, strict=True):
        make_rollout(collection, task=task, reward=reward, model_version=version)
    collection.completed += len(rewards)
    collection.rewarded += len(rewards)
    collection.reward_sum += sum(rewards)
    collection.save()


def finish(collection: Collection) -> None:
    collection.state, collection.finished_at = Collection.State.COMPLETED, timezone.now()
    collection.save()


def make_tracker(kind: str, *, secret: str | None = None, **fields: str) -> Tracker:
    name = fields.pop("name", f"{kind} {Tracker.objects.count()}")
    return save_tracker(tracker=Tracker(kind=kind, name=name, **fields), secret=secret)


def track(collection: Collection, tracker: Tracker, **fields: object) -> TrackedRun:
    return track_collection(TrackingSpec(collection=collection, tracker=tracker, **fields))  # type: ignore[arg-type]


def make_due() -> None:
    now = timezone.now()
    TrackedRun.objects.update(measure_at=now, next_attempt_at=now)


def work() -> None:
    """Do what workers do, until nothing is due."""
    make_due()
    while record_points():
        pass
    while send_runs():
        pass


def ask(program: str, *arguments: object) -> str:
    """Return what a program prints in the environment of the trackers."""
    command = [str(PYTHON), "-c", program, *map(str, arguments)]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, timeout=120)
    return done.stdout


@contextmanager
def mlflow_server(folder: Path, port: int = 0) -> Iterator[str]:
    """Yield the URL of an MLflow server that keeps its data in the folder."""
    port = port or find_port()
    address = f"http://127.0.0.1:{port}"
    command = [str(PYTHON), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    environment = {"PATH": f"{PYTHON.parent}:/usr/bin:/bin", "HOME": str(folder), "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "mlflow.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True)
        try:
            wait_until(lambda: _is_healthy(address), what=lambda: (folder / "mlflow.log").read_text()[-2000:])
            yield address
        finally:
            end_group(server)


def local_path(run: TrackedRun) -> Path:
    """Return the path of the files of a run."""
    return Path(settings.TRACKING_DIR).parent / run.url


def end_group(process: "subprocess.Popen[bytes]") -> None:
    import os
    import signal

    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _is_healthy(address: str) -> bool:
    try:
        with urlopen(f"{address}/health", timeout=1) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False
