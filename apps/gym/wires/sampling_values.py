"""Find sampling values that every endpoint would reject, before a rollout is spent on them."""

from collections.abc import Callable
from typing import Any

from apps.gym.redaction.shortening import shorten
from apps.gym.storable import is_number
from apps.gym.wires.dialect import NO_SAMPLING

_Check = tuple[Callable[[Any], bool], str]


_CHECKS: dict[str, _Check] = {
    "temperature": (lambda value: is_number(value) and 0 <= value <= 2, "a number from 0 to 2"),
    "top_p": (lambda value: is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "max_output_tokens": (lambda value: type(value) is int and value >= 1, "a whole number of at least 1"),
}


def find_sampling_problems(sampling: object) -> list[str]:
    """Return a sentence for each invalid value.

    Unknown keys are left to the endpoint, and null means its default.
    """
    if not isinstance(sampling, dict):
        return ['Give a JSON object, such as {"temperature": 1.0}.']
    return [
        *(
            f"{key} must be {wanted}, not {_shown(sampling[key])}."
            for key, (may_be, wanted) in _CHECKS.items()
            if sampling.get(key) is not None and not may_be(sampling[key])
        ),
        *(
            f"{key} is set by the rollout and is not a sampling option."
            for key in sorted(NO_SAMPLING & sampling.keys())
        ),
    ]


def find_default_problems(sampling: object) -> list[str]:
    """Return the problems of default sampling. Defaults are shared by rollouts, so a seed is a problem too."""
    shared = isinstance(sampling, dict) and sampling.get("seed") is not None
    seed = ["seed has no effect here: each rollout gets its own seed from the collection."] if shared else []
    return [*find_sampling_problems(sampling), *seed]


def _shown(value: Any) -> str:
    return shorten(repr(value), 40)
