"""The limits of a collection as options of commands."""

import argparse
import json
from typing import Any

from django.core.exceptions import ValidationError

from apps.rollouts.models import Collection
from apps.rollouts.plans.validation import LIMITS

_TYPES: dict[str, Any] = {
    "priority": int,
    "concurrency": int,
    "rollout_timeout": float,
    "max_attempts": int,
    "max_seconds": int,
    "max_tokens": int,
    "max_cost": float,
}


def add_limits(parser: argparse.ArgumentParser, *, show_defaults: bool = True) -> None:
    """One option a limit; `none` removes one that may be absent. What is not given is left out of the options."""
    for name in LIMITS:
        field = Collection._meta.get_field(name)
        may_be_none, default = bool(getattr(field, "null", False)), getattr(field, "default", None)
        hint = str(getattr(field, "help_text", "")).replace("empty", "none")
        if show_defaults:
            hint += f" (default: {default if isinstance(default, int | float) else 'none'})"
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=_reader(_TYPES[name], may_be_none),
            default=argparse.SUPPRESS,
            metavar="N|none" if may_be_none else "N",
            help=hint,
        )


def given_limits(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in LIMITS if name in options}


def say_what_is_wrong(error: ValidationError) -> str:
    """One line a problem, with the option it is about."""
    by_field = error.message_dict if hasattr(error, "error_dict") else {"": error.messages}
    return "\n".join(
        f"--{field.replace('_', '-')}: {message}"
        if field in {*LIMITS, "sampling", "split_repeats", "search", "prompt_template", "resume_from", "only_failed"}
        else f"{field}: {message}".removeprefix(": ")
        for field, messages in by_field.items()
        for message in messages
    )


def _reader(number: Any, may_be_none: bool) -> Any:
    def read(text: str) -> Any:
        if may_be_none and text.lower() == "none":
            return None
        try:
            return number(text)
        except ValueError:
            expected = f"a {'whole ' if number is int else ''}number{' or none' if may_be_none else ''}"
            raise argparse.ArgumentTypeError(f"{json.dumps(text)} is not {expected}") from None

    return read
