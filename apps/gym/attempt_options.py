"""Options that several forms use to choose attempts."""

from typing import Annotated

from apps.gym.specs import Option

IncludeTruncated = Annotated[
    bool,
    Option("Include truncated rollouts", "Includes rollouts cut off by a limit. They do not teach a model to stop."),
]
REWARD_SOURCES = {"override": "The reviewer's, if overridden", "verifier": "The verifier's"}
