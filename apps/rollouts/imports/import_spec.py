"""Fields of an import of stored rollouts, shared by the form and the API."""

from dataclasses import dataclass, field
from typing import Annotated

from apps.agents.models import Agent
from apps.gym.rollout_files.shapes.stored_rows import FORMATS, RolloutFormat
from apps.gym.specs import Option, described
from apps.policies.models import PolicyModel
from apps.tasks.models import Dataset

MAX_NAME = 200


@dataclass(frozen=True, kw_only=True)
class ImportOrder:
    """Options of an import."""

    dataset: Dataset = field(
        metadata=described(
            "Dataset",
            "The imported tasks become a new version of this dataset. Its environment can re-verify the rollouts.",
        )
    )
    agent: Agent = field(metadata=described("Agent"))
    policy_model: Annotated[PolicyModel | None, Option("Policy model", none="From the file")] = None
    name: Annotated[str, Option("Name", length=MAX_NAME)] = ""
    format: Annotated[RolloutFormat, Option("Format", names=FORMATS)] = "auto"
    on_error: Annotated[str, Option("Invalid lines", names={"reject": "Reject all files", "skip": "Skip them"})] = (
        "reject"
    )
