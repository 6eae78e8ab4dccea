"""Options that several forms use to choose attempts."""

from typing import Annotated

from apps.gym.specs import Option

IncludeTruncated = Annotated[
    bool,
    Option("Include truncated rollouts", "Includes rollouts cut off by a limit. They do not teach a model to stop."),
]
IncludeAmbiguous = Annotated[
    bool,
    Option(
        "Include rollouts with an ambiguous path",
        "No captured call surely wrote the agent's answer, so the exported conversation may be another one.",
    ),
]
IncludeNoticed = Annotated[
    bool,
    Option(
        "Include rollouts with set-up notices",
        "The set-up of the server decided how they ended, for example a tool call that stayed text.",
    ),
]
REWARD_SOURCES = {"override": "Reviewer's override, else the verifier's", "verifier": "The verifier's"}
