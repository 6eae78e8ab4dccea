"""Write a run to the local files of Trackio, with its package.

Each row has an id. Trackio ignores a row whose id it has.
"""

import importlib
import os
from datetime import UTC, datetime
from typing import Any


def write(request: dict[str, Any]) -> dict[str, Any]:
    """Write the points of the batch. `request["folder"]` is the data folder of Trackio (TRACKIO_DIR)."""
    batch = request["batch"]
    os.environ.update(TRACKIO_DIR=request["folder"])
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    rows = [(str(point["number"]), point["step"], point["at"], _values(point)) for point in batch["points"]]
    if batch["samples"]:
        rows.append((f"samples-{batch['recorded']}", batch["last_step"], batch["last_at"], _samples(batch)))
    storage.bulk_log(
        project=batch["project"],
        run=batch["name"],
        metrics_list=[values for *_, values in rows],
        steps=[step for _, step, _, _ in rows],
        timestamps=[datetime.fromtimestamp(at, UTC).isoformat() for _, _, at, _ in rows],
        config={**batch["settings"], "gymweb_collection": batch["link"]},
        log_ids=[f"{batch['key']}-{name}" for name, *_ in rows],
        run_id=batch["key"],
    )
    return {"run_id": batch["key"], "url": request["folder"]}


def _values(point: dict[str, Any]) -> dict[str, Any]:
    return {**point["values"], **({"model_version": point["version"]} if point["of_version"] else {})}


def _samples(batch: dict[str, Any]) -> dict[str, Any]:
    samples = batch["samples"]
    rows = [dict(zip(samples["columns"], row, strict=True)) for row in samples["rows"]]
    # The stored form of `trackio.Table`.
    return {"samples": {"_type": "trackio.table", "_value": rows}}
