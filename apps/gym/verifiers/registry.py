"""All verifiers by name, and functions to read their parameters."""

from collections.abc import Iterator

from apps.gym.verifiers.hybrid import Hybrid
from apps.gym.verifiers.parameters_reader import find_problems_as, read_as
from apps.gym.verifiers.protocol import JudgedVerifier, Problem, Verifier, read_type
from apps.gym.verifiers.single_verifiers import SINGLES

VERIFIERS: dict[str, type[Verifier]] = {**SINGLES, read_type(Hybrid): Hybrid}


def read_verifier(given: object) -> Verifier:
    """Return the verifier of `{"type": …, parameter: …}`. Raises VerifierMisconfigured."""
    return read_as(given, VERIFIERS)


def find_problems(given: object) -> Iterator[Problem]:
    """Yield all problems of a verifier's parameters."""
    return find_problems_as(given, VERIFIERS)


def asks_judge(given: object) -> bool:
    """Return True if these parameters, which may be invalid, need a judge model."""
    if not isinstance(given, dict):
        return False
    parts = given.get("components")
    parts = parts if isinstance(parts, list) else []
    kind = given.get("type")
    judged = isinstance(kind, str) and kind in VERIFIERS and issubclass(VERIFIERS[kind], JudgedVerifier)
    return judged or any(isinstance(part, dict) and asks_judge(part.get("verifier")) for part in parts)
