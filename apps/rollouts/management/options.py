"""Parse command options; invalid values are command line errors."""

import argparse
import re
from collections.abc import Callable

from apps.accounts.idempotent_requests import find_key_problem

MOST_SEATS = 100_000
_GROUP = re.compile(r"[A-Za-z0-9_-]{1,64}")


def whole_number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


read_seats = whole_number(1, MOST_SEATS)


def read_group(text: str) -> str:
    """Return a valid worker group; empty means none."""
    if text and not _GROUP.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a group name: use up to 64 letters, digits, hyphens and underscores"
        )
    return text


def read_key(text: str) -> str:
    if problem := find_key_problem(text):
        raise argparse.ArgumentTypeError(f"an idempotency key {problem}")
    return text
