"""The content that is sent to a tracker, and the interface of trackers."""

from typing import Protocol

import msgspec

Setting = str | int | float | bool


class TrackerFailed(Exception):
    """Raised if a batch could not be sent. With `is_final`, retrying does not help."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class Point(msgspec.Struct, frozen=True):
    """Figures at a step. `number` orders the points of a run from 0; `at` is a Unix time in seconds.

    A point of a model version has its name in `version`, and the number of the version as its step.
    """

    number: int
    at: float
    step: int
    values: dict[str, float]
    of_version: bool = False
    version: str = ""


class SampleTable(msgspec.Struct, frozen=True):
    """Sample rollouts. All rows have a value for each column."""

    columns: list[str]
    rows: list[list[str | float | int | None]]


class RunBatch(msgspec.Struct, frozen=True):
    """The unsent points of a run, or all of them for trackers with `rewrites`.

    `key` identifies the run, and `link` is the URL of the collection's page. `recorded` is the number of all points,
    and `last_step` and `last_at` are the step and time of the last point. `started_at` is when the collection was
    planned. Times are Unix times in seconds. In the last batch, `state` is `completed` or `cancelled`, and `samples` is
    set if the run has samples.
    """

    key: str
    run_id: str
    name: str
    project: str
    link: str
    started_at: float
    recorded: int
    last_step: int
    last_at: float
    settings: dict[str, Setting]
    points: list[Point]
    samples: SampleTable | None = None
    state: str = ""


class SentRun(msgspec.Struct, frozen=True):
    """The run at the tracker: its ID, and its URL or the path of its files."""

    run_id: str
    url: str


class TrackerClient(Protocol):
    """A connection to a tracker."""

    rewrites: bool
    """True if each batch must have all points of the run, because the tracker replaces the files of the run."""

    async def send(self, batch: RunBatch) -> SentRun:
        """Send a batch. Sending it again changes nothing. Raise TrackerFailed or OutboundRefused."""
