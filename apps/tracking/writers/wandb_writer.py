"""Write a run for Weights & Biases with its package: offline files, or its server if there is an API key.

Offline, the folder of the run is replaced by one with all points. Online, the run is resumed, and points that the
server already has are skipped: the step of a row is the number of its point.
"""

import importlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

ROLLOUTS, VERSION = "rollouts_finished", "model_version_number"


def write(request: dict[str, Any]) -> dict[str, Any]:
    """Write the points of the batch. Offline, `request["folder"]` then has one `offline-run-*` folder."""
    batch, is_online = request["batch"], bool(request["secret"])
    folder = Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as part:
        run = _open(request, Path(part), is_online=is_online)
        done = run.step if is_online else 0
        for point in batch["points"]:
            if point["number"] >= done:
                run.log(_row(point), step=point["number"])
        _set_samples(run, batch)
        url = str(run.url or "")
        run.finish(exit_code=0 if batch["state"] != "cancelled" else 1)
        if is_online:
            return {"run_id": run.id, "url": url}
        return {"run_id": run.id, "url": str(_publish(folder, Path(part)))}


def _open(request: dict[str, Any], folder: Path, *, is_online: bool) -> Any:
    os.environ.update(WANDB_DIR=str(folder))
    if is_online:
        os.environ.update(WANDB_API_KEY=request["secret"], WANDB_BASE_URL=request["address"])
    wandb = importlib.import_module("wandb")
    settings = wandb.Settings(
        mode="online" if is_online else "offline",
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        save_code=False,
        disable_job_creation=True,
        # Nothing about this machine.
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
    )
    batch = request["batch"]
    run = wandb.init(
        project=batch["project"],
        id=batch["key"],
        name=batch["name"],
        notes=f"GymWeb collection {batch['link']}",
        config={**batch["settings"], "gymweb_collection": batch["link"]},
        dir=str(folder),
        resume="allow" if is_online else None,
        settings=settings,
    )
    for axis in (ROLLOUTS, VERSION):
        run.define_metric(axis, hidden=True)
    run.define_metric("by_version/*", step_metric=VERSION)
    run.define_metric("*", step_metric=ROLLOUTS)
    return run


def _row(point: dict[str, Any]) -> dict[str, Any]:
    if point["of_version"]:
        return {VERSION: point["step"], "model_version": point["version"], **point["values"]}
    return {ROLLOUTS: point["step"], **point["values"]}


def _set_samples(run: Any, batch: dict[str, Any]) -> None:
    """Store the table as the summary `samples`. Storing it again replaces it."""
    if not batch["samples"]:
        return
    wandb = importlib.import_module("wandb")
    table = wandb.Table(columns=batch["samples"]["columns"], data=batch["samples"]["rows"], allow_mixed_types=True)
    run.summary["samples"] = table


def _publish(folder: Path, part: Path) -> Path:
    """Move the run to the folder in place of the previous one, and return its path."""
    (made,) = part.glob("wandb/offline-run-*")
    # The list of installed packages of this machine.
    (made / "files" / "requirements.txt").unlink(missing_ok=True)
    shutil.rmtree(made / "logs", ignore_errors=True)
    for old in folder.glob("offline-run-*"):
        shutil.rmtree(old)
    final = folder / made.name
    made.rename(final)
    return final
