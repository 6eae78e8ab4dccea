"""Delete the local files of runs whose link, tracker or collection was deleted."""

import re
import shutil
from pathlib import Path

from django.conf import settings

from apps.accounts.job_declarations import background_job
from apps.tracking.models import TrackedRun, Tracker
from apps.tracking.tracker_clients import run_folder

SWEEP_SECONDS = 600.0
_NAME = re.compile(r"[0-9]+-[0-9a-f]{8}")
"""A name that `run_folder` gives."""


@background_job(thread="tracking", every=SWEEP_SECONDS, on_full_disk=True)
def sweep_run_folders() -> bool:
    """Background job: delete folders without a run. Return False, because no work is left."""
    root = Path(settings.TRACKING_DIR).absolute()
    kinds = (Tracker.Kind.WANDB, Tracker.Kind.TENSORBOARD)
    # Listed before the rows are read, so that the folder of a new run is kept.
    found = [folder for kind in kinds for folder in (root / kind).glob("*-*") if _NAME.fullmatch(folder.name)]
    if found:
        kept = {run_folder(run) for run in TrackedRun.objects.select_related("tracker")}
        for folder in found:
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)
    return False
