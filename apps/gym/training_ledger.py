"""The trainability ledger: what may be trained on, with the number of sources that each reason leaves out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msgspec.structs import asdict

from apps.gym.trainability import GRAMMARS, PARTS, REASONS, Level, Reason, label_reason

Unit = Literal["rollouts", "tasks", "pairs"]


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A reason with the number of sources (or tokens) that it leaves out."""

    reason: str
    level: Level
    count: int
    label: str
    sentence: str
    override: str
    filter: str


@dataclass(frozen=True, kw_only=True)
class Trainability:
    """What may be trained on. `considered` is `used` plus the counts of `left_out`, except turns and tokens.

    `rows` is None where nothing was converted to rows. `sampled_tokens` counts captured tokens that the model sampled,
    and `trainable_tokens` counts the ones in the loss; both are None for rows without token IDs. `altered_sampling`
    counts used rollouts by the field that altered the sampling of their tokens, for example `top_p`.

    `notice` is a warning with its remedy: nothing is trainable, turns are trained that the model did not write, or
    requests altered the sampling. `grammar` is what made the server use a grammar, if no token is trainable for that
    reason.
    """

    unit: Unit
    considered: int
    used: int
    rows: int | None = None
    sampled_tokens: int | None = None
    trainable_tokens: int | None = None
    left_out: list[LeftOut] = field(default_factory=list)
    notice: str = ""
    grammar: str = ""
    altered_sampling: dict[str, int] = field(default_factory=dict)


class Ledger:
    """Counts sources and tokens while they are read."""

    def __init__(self) -> None:
        self.considered = 0
        self.used = 0
        self.rows = 0
        self.sampled_tokens: int | None = None
        self.trainable_tokens: int | None = None
        self.dropped: Counter[str] = Counter()
        self.altered: Counter[str] = Counter()
        """Used sources by the field that altered the sampling of their tokens."""
        self.turns: Counter[str] = Counter()
        """Turns of used sources that are left out, by reason."""
        self.trains_foreign = False
        """True if the options of the export keep turns in the loss that the model did not write."""

    def drop(self, reason: str, number: int = 1) -> None:
        """Count sources that are left out. Raises KeyError for an unknown reason."""
        self.dropped[REASONS[reason].name] += number

    def use(self, rows: int) -> None:
        """Count a source that becomes `rows` rows."""
        self.used += 1
        self.rows += rows

    def count_tokens(self, *, sampled: int, trainable: int) -> None:
        """Count the tokens of a used source."""
        self.sampled_tokens = (self.sampled_tokens or 0) + sampled
        self.trainable_tokens = (self.trainable_tokens or 0) + trainable

    def counts(self) -> dict[str, int]:
        """Return the number of left out sources by reason."""
        return {reason: number for reason, number in sorted(self.dropped.items()) if number}

    def summarize(self, unit: Unit, *, grammar: str = "") -> Trainability:
        """Return the summary. `grammar` names the cause of tokens that a grammar may have forced."""
        found = summarize(
            unit,
            considered=self.used + self.dropped.total(),
            used=self.used,
            rows=self.rows,
            dropped=self.dropped,
            sampled_tokens=self.sampled_tokens,
            trainable_tokens=self.trainable_tokens,
            grammar=grammar,
        )
        turns = dict(self.turns)
        if self.trains_foreign and (foreign := turns.pop("foreign_turn", 0)) and not found.notice:
            notice = f"{foreign:,} trained turns were not written by the model. Set injected to dropped."
            found = replace(found, notice=notice)
        return add_parts(found, turns=turns, altered=self.altered)


def find_unit(row_kind: str) -> Unit:
    """Return what an export of this kind of rows counts."""
    units: dict[str, Unit] = {"preferences": "pairs", "tasks": "tasks"}
    return units.get(row_kind, "rollouts")


def summarize(
    unit: Unit,
    *,
    considered: int,
    used: int,
    dropped: Mapping[str, int],
    rows: int | None = None,
    sampled_tokens: int | None = None,
    trainable_tokens: int | None = None,
    grammar: str = "",
) -> Trainability:
    """Return the summary of counts, most frequent reasons first."""
    left_out = [_left_out(name, count) for name, count in dropped.items() if count]
    left_out.sort(key=lambda one: (-one.count, one.reason))
    masked = (sampled_tokens or 0) - (trainable_tokens or 0)
    if masked > 0:
        left_out.append(_left_out("grammar", masked))
    return Trainability(
        unit=unit,
        considered=considered,
        used=used,
        rows=rows,
        sampled_tokens=sampled_tokens,
        trainable_tokens=trainable_tokens,
        left_out=left_out,
        notice=explain_untrainable(sampled_tokens, trainable_tokens, grammar),
        grammar=grammar if sampled_tokens and not trainable_tokens else "",
    )


def add_parts(found: Trainability, *, turns: Mapping[str, int], altered: Mapping[str, int]) -> Trainability:
    """Add the left out turns of used rollouts, and the fields that altered the sampling, with a warning of these."""
    notice = found.notice
    if altered:
        fields = ", ".join(f"{name} in {count:,} rollouts" for name, count in sorted(altered.items()))
        notice += (
            f" Requests altered the sampling of tokens: {fields}. Raw log probabilities do not include that. "
            "Set altered_sampling to drop to leave these rollouts out."
        )
    left_out = [_left_out(name, count) for name, count in sorted(turns.items()) if count]
    return replace(
        found,
        notice=notice.strip(),
        left_out=[*found.left_out, *left_out],
        altered_sampling=dict(sorted(altered.items())),
    )


def explain_untrainable(sampled: int | None, trainable: int | None, grammar: str = "") -> str:
    """Return the warning that no sampled token is trainable, or an empty string."""
    if not sampled or trainable:
        return ""
    cause = grammar or "a grammar"
    remedy = GRAMMARS.get(cause, "Collect again without a grammar.")
    return f"0 of {sampled:,} sampled tokens are trainable: {cause}. {remedy}"


def _left_out(name: str, count: int) -> LeftOut:
    # Manifests of earlier versions may have reasons that no longer exist.
    reason = REASONS.get(name) or Reason(name=name, level="rollout", label=label_reason(name), sentence="")
    fields = asdict(reason)
    return LeftOut(reason=fields.pop("name"), count=count, **fields)


def describe(found: Trainability) -> str:
    """Return the summary in one sentence: "Rows: 60, from 58 of 64 rollouts, with 1,234 trainable tokens"."""
    rows = "" if found.rows is None else f"Rows: {found.rows:,}, from "
    parts = [f"{rows}{found.used:,} of {found.considered:,} {found.unit}"]
    if found.trainable_tokens is not None:
        parts[-1] += ","
        parts.append(f"with {found.trainable_tokens:,} trainable tokens")
    rest = [f"{one.count:,} {one.label}" for one in found.left_out if one.level not in PARTS]
    return " ".join(parts) + (f"; left out: {', '.join(rest)}" if rest else "")


def count_trained(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of tokens in the loss of rows with token IDs, or None for other rows.

    Token IDs are in `labels` or `loss_mask` of the row, or in NeMo Gym's fields of the items of its response.
    """
    counts = [_trained_of(row) for row in rows]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _trained_of(row: Mapping[str, Any]) -> int | None:
    if isinstance(labels := row.get("labels"), list) and row.get("input_ids"):
        return sum(1 for label in labels if label >= 0)
    if isinstance(mask := row.get("loss_mask"), list) and row.get("input_ids"):
        return int(sum(mask))
    response = row.get("response")
    items: Iterable[Any] = response.get("output", ()) if isinstance(response, dict) else ()
    ids = [item["generation_token_ids"] for item in items if isinstance(item, dict) and "generation_token_ids" in item]
    return sum(map(len, ids)) if ids else None
