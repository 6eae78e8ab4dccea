"""The plan of a collection as options of commands: from its parts, or from an earlier collection's."""

import argparse
from typing import Any

from django.core.management.base import CommandError

from apps.agents.models import Agent
from apps.policies.model_registration import SCRIPTED, register_scripted_model
from apps.policies.models import PolicyModel
from apps.rollouts.management.options import read_object
from apps.rollouts.models import Collection
from apps.rollouts.plans.clones import change_plan, plan_again, plan_rest
from apps.tasks.models import Dataset

_PLAIN = ("repeats", "limit", "seed", "sampling", "splits", "tags", "search", "prompt_template")


def add_plan(parser: argparse.ArgumentParser) -> None:
    """What is not given is left out of the options."""
    left_out: dict[str, Any] = {"default": argparse.SUPPRESS}
    parser.add_argument("--dataset", metavar="SLUG", help="needed, unless an earlier collection is named")
    # Every command has a --version already: Django's own.
    parser.add_argument(
        "--dataset-version",
        dest="version_number",
        type=_read_version,
        **left_out,
        metavar="N",
        help="number of its version, or latest; left out: the latest, or that of the earlier collection",
    )
    parser.add_argument("--agent", metavar="SLUG", help="the default one, unless an earlier collection is named")
    parser.add_argument("--model", metavar="SLUG", help="needed, unless an earlier collection is named")
    parser.add_argument("--repeats", type=int, **left_out, help="rollouts of each task")
    parser.add_argument(
        "--split-repeats",
        type=_read_repeats,
        action="append",
        metavar="SPLIT=N",
        help="rollouts of each task of this split; may be given several times",
    )
    parser.add_argument("--limit", type=int, **left_out, help="only the first so many tasks")
    parser.add_argument(
        "--split", dest="splits", action="append", **left_out, help="only tasks of it, or of one of them"
    )
    parser.add_argument(
        "--tag", dest="tags", action="append", **left_out, help="only tasks that have it, or all of them"
    )
    parser.add_argument("--search", **left_out, help="only tasks with these words in id or prompt")
    parser.add_argument("--seed", type=int, **left_out)
    parser.add_argument(
        "--sampling",
        type=read_object,
        **left_out,
        metavar="JSON",
        help='over those of model and agent: {"temperature": 0.7}',
    )
    parser.add_argument(
        "--prompt-template",
        type=read_object,
        **left_out,
        metavar="JSON",
        help='in place of the tasks\' own prompts: {"user": "Solve step by step: {prompt}"}',
    )
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument("--clone", type=int, metavar="ID", help="plan as this collection was, but for what is given")
    earlier.add_argument(
        "--resume-from", type=int, metavar="ID", help="the same, for what failed, was cancelled or is missing there"
    )
    parser.add_argument("--only-failed", action="store_true", help="with --resume-from: only what failed there")


def given_plan(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of plan_collection. Raises CommandError for what cannot be found."""
    earlier = _earlier_plan(options)
    plan: dict[str, Any] = {}
    for name, option, model in (
        ("dataset", "dataset", Dataset),
        ("agent", "agent", Agent),
        ("policy_model", "model", PolicyModel),
    ):
        if model is PolicyModel and options[option] == SCRIPTED:
            # It needs nothing that somebody would have to say of it.
            plan[name] = register_scripted_model()
        elif options[option]:
            plan[name] = find_by_slug(model, options[option])
        elif name in earlier:
            continue
        elif name == "agent":
            plan[name] = find_by_slug(Agent, "default")
        else:
            raise CommandError(f"Name --{option}, or an earlier collection by --clone or --resume-from.")
    plan |= {name: options[name] for name in _PLAIN if name in options}
    if options["split_repeats"]:
        plan["split_repeats"] = dict(options["split_repeats"])
    if "version_number" in options:
        plan["version"] = options["version_number"]
    return change_plan(earlier, plan)


def _earlier_plan(options: dict[str, Any]) -> dict[str, Any]:
    number = options["clone"] or options["resume_from"]
    if options["only_failed"] and not options["resume_from"]:
        raise CommandError("--only-failed says what of --resume-from is meant: name that too.")
    if not number:
        return {}
    collection = Collection.objects.present().filter(pk=number).first()
    if collection is None:
        raise CommandError(f"There is no collection {number}.")
    if options["clone"]:
        return plan_again(collection)
    return plan_rest(collection, only_failed=options["only_failed"])


def find_by_slug(model: Any, slug: str) -> Any:
    try:
        return model.objects.get(slug=slug)
    except model.DoesNotExist:
        known = ", ".join(model.objects.values_list("slug", flat=True)[:20]) or "none yet"
        raise CommandError(f"No {model._meta.verbose_name} {slug!r}; there are: {known}.") from None


def _read_repeats(text: str) -> tuple[str, int]:
    split, _, number = text.rpartition("=")
    if not split or not (number.isascii() and number.isdigit() and len(number) < 10):
        raise argparse.ArgumentTypeError(f"{text!r} is not such as train=8")
    return split, int(number)


def _read_version(text: str) -> int | None:
    """None for the latest."""
    if text == "latest":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r} is neither the number of a version nor latest")
    return int(text)
