"""Options for loading a file, validated before anything is stored."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from apps.gym.request_refusals import Refusal
from apps.gym.specs import Option
from apps.gym.storable import clean_line, find_unstorable
from apps.gym.tasks.mappings.column_mapping import MappingRefused, read_mapping, write_mapping
from apps.policies.redacted_fields import redact_input_texts
from apps.tasks.models import ColumnMapping, Upload
from apps.tasks.task_splits import find_ratio_problem

MAX_SEED = 2**63 - 1
NOTE_CHARS = 200
NAME_CHARS = 255


class ChoiceRefused(Refusal):
    """Raised for an invalid option. `argument` is its name."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Options for loading a file into a dataset."""

    mode: Annotated[
        str, Option("New version", "How to combine the file with the latest version", names=dict(Upload.Mode.choices))
    ] = "replace"
    on_error: Annotated[
        str, Option("Invalid rows", "What to do if rows are invalid", names=dict(Upload.OnError.choices))
    ] = "reject"
    on_duplicate: Annotated[
        str,
        Option(
            "Duplicate rows",
            "Rows with the same ID, or equal rows without an ID. Default: keep both; reject the second when merging.",
            names={"": "Default", **dict(Upload.OnDuplicate.choices)},
        ),
    ] = ""
    on_credential: Annotated[
        str,
        Option(
            "Suspected credentials",
            "What to do with rows that contain suspected credentials. Pages mask credentials in any case. Redacting "
            "changes prompts and verifier inputs.",
            names=dict(Upload.OnCredential.choices),
        ),
    ] = "keep"
    mapping: Annotated[
        dict[str, Any] | str | None,
        Option("Column mapping", "A mapping, or the slug of a saved one. Default: detected."),
    ] = None
    split: Annotated[str, Option("Default split", "Used for rows without a split", length=64)] = ""
    split_ratios: Annotated[
        dict[str, float],
        Option(
            "Random split",
            "Split shares, for example train:0.9,validation:0.1",
            each=Option("Share"),
            example={"train": 0.9, "validation": 0.1},
        ),
    ] = field(default_factory=dict)
    split_seed: Annotated[int, Option("Random seed", "Seed of the random split", low=0, high=MAX_SEED)] = 0
    note: Annotated[str, Option("Note", "Stored with the new version", length=NOTE_CHARS)] = ""
    check_only: Annotated[bool, Option("Check only", "Validate the rows and store nothing until a commit")] = False

    def as_fields(self) -> dict[str, Any]:
        """Return the columns of an Upload. Raise ChoiceRefused."""
        _check_choice("on_error", self.on_error, Upload.OnError.values)
        _check_choice("mode", self.mode, Upload.Mode.values)
        upserts = self.mode == Upload.Mode.UPSERT
        on_duplicate = self.on_duplicate or (Upload.OnDuplicate.REJECT if upserts else Upload.OnDuplicate.KEEP)
        _check_choice("on_duplicate", on_duplicate, Upload.OnDuplicate.values)
        _check_choice("on_credential", self.on_credential, Upload.OnCredential.values)
        if upserts and on_duplicate == Upload.OnDuplicate.KEEP:
            raise ChoiceRefused(
                "Two rows with the same ID cannot both replace one task. Choose “Keep the first” (skip) or “Reject the "
                "second” (reject).",
                "on_duplicate",
            )
        if problem := find_ratio_problem(self.split_ratios):
            raise ChoiceRefused(problem, "split_ratios")
        if not 0 <= self.split_seed <= MAX_SEED:
            raise ChoiceRefused(f"Give a whole number from 0 to {MAX_SEED}.", "split_seed")
        if self.split and self.split_ratios:
            raise ChoiceRefused("Fill in either “Default split” or “Random split”, not both.", "split")
        if len(self.split) > 64:
            raise ChoiceRefused("The name of a split has at most 64 characters.", "split")
        note = self.note.strip()
        if len(note) > NOTE_CHARS:
            told = f"A note has at most {NOTE_CHARS} characters; this one has {len(note):,}."
            raise ChoiceRefused(told, "note")
        return {
            "on_error": self.on_error,
            "mode": self.mode,
            "on_duplicate": on_duplicate,
            "on_credential": self.on_credential,
            "mapping": _mapping(self.mapping),
            "split": clean_line(self.split.strip(), 64),
            "split_ratios": self.split_ratios,
            "split_seed": self.split_seed,
            "note": clean_line(note, NOTE_CHARS),
            "check_only": self.check_only,
        }


def choices_of(upload: Upload) -> Choices:
    """Return the options of an upload from its row."""
    return Choices(**{one.name: getattr(upload, one.name) for one in fields(Choices)})


def read_shares(text: str) -> dict[str, float]:
    """Return the shares by split from text like `train:0.9,validation:0.1`. Raise ChoiceRefused."""
    shares: dict[str, float] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, _, share = pair.partition(":")
        name = name.strip()
        if name in shares:
            raise ChoiceRefused(f"The split {name} is repeated.", "split_ratios")
        try:
            shares[name] = float(share)
        except ValueError:
            raise ChoiceRefused("Write shares like train:0.9, validation:0.1.", "split_ratios") from None
    return shares


def choose_filename(given: str) -> str:
    """Return the base name of a file on one line. Raise ChoiceRefused.

    The name is displayed but never opened. Pages, CSV files and headers escape it.
    """
    name = Path(given.replace("\\", "/")).name
    if len(name) > NAME_CHARS:
        told = f"The name of a file has at most {NAME_CHARS} characters; this one has {len(name):,}."
        raise ChoiceRefused(told, "filename")
    return clean_line(name, NAME_CHARS)


def _check_choice(argument: str, value: str, known: list[str]) -> None:
    if value not in known:
        raise ChoiceRefused(f"Choose one of: {', '.join(known)}.", argument)


def _mapping(given: dict[str, Any] | str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    if find_unstorable(given) is not None:
        raise ChoiceRefused("A name or template contains a NUL character or an unpaired surrogate.", "mapping")
    if isinstance(given, str):
        saved = ColumnMapping.objects.filter(slug=given).first()
        if saved is None:
            known = ", ".join(ColumnMapping.objects.values_list("slug", flat=True)[:20]) or "none"
            raise ChoiceRefused(f"Unknown mapping {given}. Choose one of: {known}.", "mapping")
        given = saved.mapping
    try:
        return dict(redact_input_texts(write_mapping(read_mapping(given))))
    except MappingRefused as error:
        raise ChoiceRefused(str(error), f"mapping/{error.argument}".rstrip("/")) from None
