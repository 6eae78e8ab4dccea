"""What a verifier is: its parameters, and a pure function from a task row and a response to a reward."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import msgspec

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow

Problem = tuple[str, str]
"""Where in a verifier's parameters something is wrong, as a JSON pointer, and what would be right."""

TimeLimit = Annotated[
    float, msgspec.Meta(ge=0.1, le=600, title="Time limit", description="Seconds; then it is stopped, without a reward")
]


class Verifier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """One kind of verifier with its parameters as fields. The docstring of each states its formula and its range."""

    title: ClassVar[str]

    def stays_on_loop(self, row: TaskRow) -> bool:
        """Whether its time grows with the length of the text alone. What may take longer runs in a process that can be
        stopped."""
        return True

    @property
    def seconds(self) -> float:
        """How long one verification may take, where it runs in a process of its own."""
        return 10.0

    @property
    def needs(self) -> frozenset[str]:
        """The fields of a task's row without which it cannot be verified."""
        return frozenset()

    def find_problems(self) -> Iterator[Problem]:
        """What is wrong with parameters that each fit the schema."""
        return iter(())

    def check_row(self, row: TaskRow) -> None:
        """Raises VerifierError for a row that has what is needed, but as something that no attempt could be held to."""

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        """`response` is a Responses object whose `output` holds every item after the prompt. Raises VerifierError."""
        raise NotImplementedError


def read_type(verifier: type[Verifier] | Verifier) -> str:
    return str(verifier.__struct_config__.tag)
