"""What is said of an item on the command line: options that are the fields of an answer."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from apps.gym.pairs.verdicts import CHOICES, CONFIDENCE, REASONS
from apps.reviews.reviews.review_answers import Answer


def add_answer(parser: ArgumentParser, *, first: str) -> None:
    """`first` says which rollout A is."""
    parser.add_argument("--choice", choices=list(CHOICES), default="", help=f"of a pair: A is {first}")
    parser.add_argument("--ranks", metavar="N,N", help=f"of a ranking: the first is of {first}; 1 is best")
    parser.add_argument("--scores", metavar="JSON", help="of a rubric, by the key of the criterion")
    parser.add_argument("--reason", action="append", choices=list(REASONS), default=[])
    parser.add_argument("--note", default="")
    parser.add_argument("--confidence", type=int, choices=list(CONFIDENCE), help="1 unsure, 2 rather sure, 3 sure")


def read_answer(options: dict[str, Any]) -> Answer:
    return Answer(
        choice=options["choice"],
        ranks=read_numbers(options["ranks"]),
        scores=read_object("--scores", options["scores"]),
        reasons=options["reason"],
        note=options["note"],
        confidence=options["confidence"],
    )


def read_numbers(text: str | None) -> list[int]:
    try:
        return [int(one) for one in text.split(",")] if text else []
    except ValueError:
        raise CommandError("Ranks are numbers between commas.") from None


def read_object(option: str, text: str | None) -> dict[str, Any]:
    try:
        given = json.loads(text) if text else {}
    except ValueError as wrong:
        raise CommandError(f"{option} is not JSON: {wrong}.") from wrong
    if not isinstance(given, dict):
        raise CommandError(f'{option} is a JSON object, such as {{"right": true}}.')
    return given
