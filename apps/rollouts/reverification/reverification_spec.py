"""Fields of a reverification, shared by the form and the API."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from apps.gym.outcomes import STOP_REASONS
from apps.gym.specs import Option, described
from apps.rollouts.models import Collection
from apps.rollouts.reverification.rescoring import FAILED_BY_VERIFIER

MAX_IDS = 1_000


def _names(none: str, values: tuple[str, ...]) -> dict[str, str]:
    return {"": none, **{value: value.replace("_", " ").capitalize() for value in values}}


@dataclass(frozen=True, kw_only=True)
class ReverificationFilters:
    """Selection of rollouts of a collection that reached their verifier."""

    judge_failures: Annotated[bool, Option("Only failures of the judge")] = False
    min_reward: Annotated[float | None, Option("Minimum reward")] = None
    max_reward: Annotated[float | None, Option("Maximum reward")] = None
    stop_reason: Annotated[str, Option("Stop reason", names=_names("Any", STOP_REASONS))] = ""
    error_kind: Annotated[
        str,
        Option(
            "Error kind",
            "Rollouts without a reward because the judge or verifier failed",
            names=_names("Any", FAILED_BY_VERIFIER),
        ),
    ] = ""
    ids: Annotated[list[int], Option("Rollouts", length=MAX_IDS, each=Option("Rollout", low=1, high=2**63 - 1))] = (
        field(default_factory=list)
    )


@dataclass(frozen=True, kw_only=True)
class ReverificationOrder:
    """Options of a reverification. Without filters, it covers all rollouts."""

    collection: Collection = field(metadata=described("Collection"))
    filters: Annotated[
        dict[str, Any],
        Option(
            "Filters", "`judge_failures`, `min_reward`, `max_reward`, `stop_reason`, `error_kind`, `ids`; left out: all"
        ),
    ] = field(default_factory=dict)
    force: Annotated[
        bool,
        Option(
            "Force",
            "Verify without session state. Rewards may be wrong if the verifier needs it.",
        ),
    ] = False
    replay: Annotated[
        bool,
        Option(
            "Replay the recorded tool calls first",
            "For verifiers that check the state after the tool calls",
        ),
    ] = False
