"""Open a connection to each kind of tracker."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings

from apps.gym.calls.outbound import Outbound
from apps.policies.secrets import decrypt_secret
from apps.tracking.client_processes import run_writer
from apps.tracking.mlflow_client import MlflowClient
from apps.tracking.models import TrackedRun, Tracker
from apps.tracking.run_batches import RunBatch, SentRun, TrackerClient
from apps.tracking.wandb_servers import WANDB_ADDRESS, check_wandb_server

WRITER_SECONDS = 90.0


class PackageClient:
    """A tracker that is used through its Python package."""

    def __init__(self, module: str, folder: Path, *, address: str = "", secret: str = "", rewrites: bool) -> None:
        self.rewrites = rewrites
        self._module = module
        self._request: dict[str, Any] = {"folder": str(folder), "address": address, "secret": secret}

    async def send(self, batch: RunBatch) -> SentRun:
        if address := self._request["address"]:
            # The operator may have removed the server since the tracker was saved.
            check_wandb_server(address)
        request = {**self._request, "batch": msgspec.to_builtins(batch)}
        sent = await asyncio.to_thread(run_writer, self._module, request, seconds=WRITER_SECONDS)
        return SentRun(sent["run_id"], _hide_folder(sent["url"]))


def open_client(run: TrackedRun, outbound: Outbound) -> TrackerClient:
    """Return the client of a run's tracker. Raise SecretUnreadable."""
    tracker = run.tracker
    secret = decrypt_secret(tracker.secret_encrypted) if tracker.secret_encrypted else ""
    if tracker.kind == Tracker.Kind.MLFLOW:
        return MlflowClient(outbound, tracker.address, secret)
    if tracker.kind == Tracker.Kind.WANDB:
        address = (tracker.address or WANDB_ADDRESS) if secret else ""
        return PackageClient("wandb_writer", run_folder(run), address=address, secret=secret, rewrites=not secret)
    if tracker.kind == Tracker.Kind.TRACKIO:
        return PackageClient("trackio_writer", run_folder(run), rewrites=False)
    return PackageClient("tensorboard_writer", run_folder(run), rewrites=True)


def _hide_folder(place: str) -> str:
    """Return a path of local files without the data folder, for users who may not see paths."""
    root = Path(settings.TRACKING_DIR).absolute()
    path = Path(place)
    return str(path.relative_to(root.parent)) if path.is_relative_to(root) else place


def run_folder(run: TrackedRun) -> Path:
    """Return the folder of a run's files. All runs in Trackio share a folder, which is its database."""
    root = Path(settings.TRACKING_DIR).absolute() / run.tracker.kind
    return root if run.tracker.kind == Tracker.Kind.TRACKIO else root / f"{run.collection_id}-{run.key.hex[:8]}"
