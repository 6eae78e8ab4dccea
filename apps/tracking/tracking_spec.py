"""Options of a tracked run, shared by the form and the API."""

from dataclasses import dataclass, field
from typing import Annotated

from apps.gym.specs import Option, described
from apps.rollouts.models import Collection
from apps.tracking.models import MAX_SAMPLES, Tracker


@dataclass(frozen=True, kw_only=True)
class TrackingSpec:
    """Options of a tracked run."""

    collection: Collection = field(metadata=described("Collection", "Running or finished"))
    tracker: Tracker = field(metadata=described("Tracker", "Where to send the run"))
    project: Annotated[str, Option("Project", "Project or experiment. Empty: the tracker's default", length=100)] = ""
    name: Annotated[str, Option("Run name", "Empty: number and name of the collection", length=200)] = ""
    samples: Annotated[
        int,
        Option(
            "Sample rollouts",
            "Rollouts in a table with prompt and answer, sent when the collection has finished. 0: none",
            low=0,
            high=MAX_SAMPLES,
        ),
    ] = 20
