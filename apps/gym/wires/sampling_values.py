"""Sampling values that every endpoint would refuse, found before a rollout is spent on them."""

import math
from collections.abc import Callable
from typing import Any

from apps.gym.redaction.shortening import shorten
from apps.gym.wires.dialect import FIXED

_Check = tuple[Callable[[Any], bool], str]


def _is_number(value: Any) -> bool:
    # True is an int to Python, and no temperature to anybody.
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_CHECKS: dict[str, _Check] = {
    "temperature": (lambda value: _is_number(value) and 0 <= value <= 2, "a number from 0 to 2"),
    "top_p": (lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "max_output_tokens": (lambda value: type(value) is int and value >= 1, "a whole number from 1 on"),
}


_NO_SAMPLING = FIXED - {"instructions"}


def find_sampling_problems(sampling: object) -> list[str]:
    """A sentence for each value that cannot be; none where all may be sent.

    Keys that are not known here are the endpoint's business, and null means its own default.
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
            f"{key} is what the rollout itself sends, and no sampling."
            for key in sorted(_NO_SAMPLING & sampling.keys())
        ),
    ]


def find_default_problems(sampling: object) -> list[str]:
    """The same of defaults that many rollouts share, which is why they hold no seed."""
    shared = isinstance(sampling, dict) and sampling.get("seed") is not None
    seed = ["seed is the rollout's own, made from that of its collection: here it would do nothing."] if shared else []
    return [*find_sampling_problems(sampling), *seed]


def _shown(value: Any) -> str:
    text = repr(value)
    return shorten(text, 40)
