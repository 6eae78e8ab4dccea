"""Options of a retention rule, in one declaration for page, API and command."""

from dataclasses import dataclass, field
from typing import Annotated

from apps.gym.specs import Option
from apps.rollouts.models import Collection

TRACES, COLLECTIONS = "traces", "collections"


@dataclass(frozen=True, kw_only=True)
class RetentionRule:
    """Selects finished collections that match all conditions.

    Collections that exports, pair sets, queues, reviews or open reverifications use are kept. The `ignore_` options
    exclude the first four uses from this check.
    """

    what: Annotated[
        str,
        Option(
            "Delete",
            "Traces are all model calls and tool results. “Only traces” keeps rollouts, rewards and metrics.",
            names={TRACES: "Only traces", COLLECTIONS: "Whole collections"},
        ),
    ] = TRACES
    older_than_days: Annotated[
        int, Option("Older than (days)", "Days since the collection finished", low=0, high=36_500, example=90)
    ] = 90
    archived: Annotated[
        str,
        Option(
            "Archived state",
            names={"": "Archived or not", "archived": "Only archived", "unarchived": "Only not archived"},
        ),
    ] = ""
    collections: Annotated[list[Collection], Option("Only these collections", "None selected: all", length=1000)] = (
        field(default_factory=list)
    )
    min_megabytes: Annotated[
        float | None,
        Option("Minimum size (MB)", "Size of the traces of a collection", low=0, high=1e9, none="any size"),
    ] = None
    ignore_exports: Annotated[bool, Option("Also collections used by exports", "Possible only with “Only traces”")] = (
        False
    )
    ignore_pair_sets: Annotated[
        bool, Option("Also collections used by pair sets", "Possible only with “Only traces”")
    ] = False
    ignore_queues: Annotated[bool, Option("Also collections used by queues")] = False
    ignore_reviews: Annotated[bool, Option("Also collections with reviews, comments, flags or reward overrides")] = (
        False
    )
