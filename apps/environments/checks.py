"""System checks of custom environments."""

from typing import Any

from django.core.checks import CheckMessage, Warning

from apps.gym.written.registry import PROBLEMS


def check_written_environments(**given: Any) -> list[CheckMessage]:
    return [
        Warning(
            f"An environment could not be loaded: {problem}.",
            hint="Correct the file, or remove it from GYMWEB_ENVIRONMENTS.",
            id="environments.W001",
        )
        for problem in PROBLEMS
    ]
