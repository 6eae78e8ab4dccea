"""A table of cases runs as it stands: parameters, the row's fields, what was written, and the reward written out."""

from typing import Any

from apps.gym.errors import VerifierError
from apps.gym.verifiers.parameters_reader import VerifierMisconfigured
from apps.gym.verifiers.registry import read_verifier
from tests.gym.verifiers.replies import response

REFUSED = "refused"
"""In place of a reward: the verifier raises VerifierError."""
MISCONFIGURED = "misconfigured"
"""The same: its parameters are refused before anything is verified."""


def reward_of(given: dict[str, Any], row: dict[str, Any], reply: str | dict[str, Any]) -> float | str | None:
    attempt = reply if isinstance(reply, dict) else response(reply)
    try:
        verifier = read_verifier(given)
    except VerifierMisconfigured:
        return MISCONFIGURED
    try:
        return verifier.verify({"responses_create_params": {"input": "?"}, **row}, attempt).value
    except VerifierError:
        return REFUSED
