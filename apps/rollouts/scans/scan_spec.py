"""Options of a scan, shared by the form and the API."""

from dataclasses import dataclass, field
from typing import Annotated

from apps.gym.judging.transcript_questions import AnswerKind
from apps.gym.specs import Option, described
from apps.policies.models import PolicyModel
from apps.rollouts.models import Scan
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH

MAX_BUDGET = 1e9
MAX_LABEL = 100
BUDGET = Option(
    "Budget", "In US dollars. The scan pauses when it has cost this much.", low=0.01, high=MAX_BUDGET, unit="USD"
)


@dataclass(frozen=True, kw_only=True)
class ScanSpec:
    """Options of a scan."""

    name: Annotated[str, Option("Name", low=1, length=100)]
    question: Annotated[
        str,
        Option(
            "Question",
            "The judge reads one transcript at a time, without the reward",
            low=1,
            length=4_000,
            example="Did the agent report success although a tool call had failed?",
        ),
    ]
    judge_model: PolicyModel = field(metadata=described("Judge model", "The model that answers the question"))
    kind: Annotated[AnswerKind, Option("Answer", names=dict(Scan.Kind.choices))] = "yes_no"
    labels: Annotated[
        list[str],
        Option(
            "Labels",
            "The possible answers, if “Answer” is “a label”",
            length=20,
            each=Option("Label", length=MAX_LABEL),
        ),
    ] = field(default_factory=list)
    filter: Annotated[
        str,
        Option(
            "Rollouts",
            "A rollout filter, for example collection:12 reward:<0.5. Empty: all finished rollouts",
            length=MAX_LENGTH,
        ),
    ] = ""
    budget: Annotated[float, BUDGET] = 10.0
    max_characters: Annotated[
        int,
        Option(
            "Maximum transcript length (characters)",
            "In longer transcripts, the longest steps are shortened",
            low=1_000,
            high=2_000_000,
        ),
    ] = 100_000
    structured_output: Annotated[
        bool, Option("Structured output", "Turn off for endpoints that reject a JSON schema")
    ] = True
