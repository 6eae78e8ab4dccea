"""What is wrong in a configuration, always with its file and key."""

from typing import Any, NamedTuple

from apps.gym.request_refusals import Refusal


class Problem(NamedTuple):
    """`key` is the dotted path; empty where the file as a whole is meant."""

    file: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


class ConfigRefused(Refusal, code="config-refused"):
    """The configuration cannot be used, for all of these reasons."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = list(problems)

    @property
    def members(self) -> dict[str, Any]:
        return {"errors": [{"code": "refused", **problem._asdict()} for problem in self.problems]}
