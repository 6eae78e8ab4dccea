"""From parameters as JSON to a verifier, or to everything that is wrong with them."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from apps.gym.redaction.shortening import cut
from apps.gym.verifiers.parameter_schemas import schema_of
from apps.gym.verifiers.protocol import Problem, Verifier
from apps.gym.verifiers.structured.schema_errors import explain_problems

Kinds = Mapping[str, type[Verifier]]

MAX_PARAMETERS = 200_000
"""Bytes of a verifier's parameters as JSON."""


class VerifierMisconfigured(ValueError):
    """Parameters that are no verifier's; `problems` holds each place and what would be right there."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{pointer or 'the verifier'} {problem}" for pointer, problem in problems))
        self.problems = problems


def read_as(given: object, kinds: Kinds) -> Verifier:
    """The verifier that `{"type": …, parameter: …}` describes. Raises VerifierMisconfigured."""
    problems = list(find_problems_as(given, kinds))
    if problems:
        raise VerifierMisconfigured(problems)
    return _convert(given, kinds)


def find_problems_as(given: object, kinds: Kinds) -> Iterator[Problem]:
    """Everything that is wrong with a verifier's parameters."""
    if not isinstance(given, dict):
        yield "", f'must be an object such as {{"type": "exact_match"}}, not {type(given).__name__}'
        return
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        told = "is missing" if kind is None else f"is {cut(str(kind), 80)!r}"
        yield "/type", f"{told}: give one of {', '.join(kinds)}"
        return
    try:
        verifier = _convert(given, kinds)
    except msgspec.ValidationError as refused:
        found = list(explain_problems(given, parameters_schema(kinds[kind])))
        yield from found or [("", str(refused))]
        return
    if len(msgspec.json.encode(given)) > MAX_PARAMETERS:
        yield "", f"has more than {MAX_PARAMETERS:,} bytes of parameters"
        return
    yield from verifier.find_problems()


@cache
def parameters_schema(verifier: type[Verifier]) -> dict[str, Any]:
    """The JSON schema of one verifier's parameters, `type` included."""
    return schema_of(verifier)


def _convert(given: Any, kinds: Kinds) -> Verifier:
    return msgspec.convert({key: value for key, value in given.items() if key != "type"}, kinds[given["type"]])
