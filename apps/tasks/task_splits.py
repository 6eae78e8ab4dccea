"""Which split a task belongs to: what its row says, what the upload says, or a seeded share of all."""

import math
from hashlib import blake2b

MAX_SPLITS = 10
TOLERANCE = 1e-6


def find_ratio_problem(ratios: object) -> str:
    """Why these ratios cannot be, or nothing."""
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
        return f"The shares are {sum(ratios.values()):g} in all: they must make 1."
    return ""


def choose_split(*, key: str, ratios: dict[str, float], seed: int) -> str:
    """The same key falls into the same split for the same seed, in every version: nothing leaks from one to another."""
    digest = blake2b(key.encode(), digest_size=8, key=str(seed).encode()[:64]).digest()
    point = int.from_bytes(digest) / 2**64
    reached = 0.0
    for name, share in ratios.items():
        reached += share
        if point < reached:
            return name
    return next(reversed(ratios))
