"""Choose the split of a task: from its row, from the upload, or at random by seed."""

import math
from hashlib import blake2b

MAX_SPLITS = 10
TOLERANCE = 1e-6


def find_ratio_problem(ratios: object) -> str:
    """Return why these shares are invalid, or an empty string."""
    if not isinstance(ratios, dict):
        return 'Give an object of names and shares: {"train": 0.9, "validation": 0.1}.'
    if len(ratios) > MAX_SPLITS:
        return f"At most {MAX_SPLITS} splits."
    for name, share in ratios.items():
        if not isinstance(name, str) or not name.strip() or len(name) > 64 or not name.isprintable():
            return "The name of a split is a text of at most 64 characters."
        if isinstance(share, bool) or not isinstance(share, int | float) or not math.isfinite(share) or share <= 0:
            return f"The share of {name} must be a number over 0."
    if ratios and abs(sum(ratios.values()) - 1) > TOLERANCE:
        return f"The shares add up to {sum(ratios.values()):g}. They must add up to 1."
    return ""


def choose_split(*, key: str, ratios: dict[str, float], seed: int) -> str:
    """Return the split for a key.

    It depends only on key, shares and seed, so that no task moves between splits in later versions.
    """
    digest = blake2b(key.encode(), digest_size=8, key=str(seed).encode()[:64]).digest()
    point = int.from_bytes(digest) / 2**64
    reached = 0.0
    for name, share in ratios.items():
        reached += share
        if point < reached:
            return name
    return next(reversed(ratios))
