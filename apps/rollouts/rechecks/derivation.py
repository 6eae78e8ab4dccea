"""Derive from the stored events of a rollout what the engine or the import would store today."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from apps.gym.metrics.majority_at_k import MAX_ANSWER
from apps.gym.outcomes import mask_fields
from apps.gym.storable import clean_line
from apps.gym.stored_rules import RULES
from apps.gym.traces.events import ModelCall, TraceUnion, Verification
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.relinking import relink
from apps.rollouts.engine.running import RolloutStats
from apps.rollouts.models import Rollout
from apps.rollouts.rechecks.earlier_paths import earlier_leaf

Kind = Literal["outcome", "untrainable", "counts"]
"""What a change concerns, most important first.

- `outcome`: the reward, the outcome, the answer or the conversation. Pairs and exports that use the rollout are stale.
- `untrainable`: none of the sampled tokens is trainable.
- `counts`: only counts.
"""

LINKS = "links"
"""The name under which changed links of calls are listed. The values are the numbers of the calls' parents."""
MAIN_PATH = "main_path"
"""The name under which a changed main path is listed. The values are the numbers of its last call."""
_PATHS = 2
"""The rules that choose the main path by the answer."""
_MASKS = ("mask_sample", "failure_kind", "failure_reason", "instance_config")
_COUNTS = frozenset({"turns", "tool_calls", "tool_errors", "sampled_tokens", "trainable_tokens"})


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between a stored rollout and today's rules.

    `old` and `new` have the columns that differ, and LINKS. `events` has the events that differ, by their number.
    `needs_verification` is True if the verifier would see another conversation.
    """

    old: dict[str, Any]
    new: dict[str, Any]
    events: dict[int, TraceUnion]
    kind: Kind
    needs_verification: bool = False


def derive_rollout(rollout: Rollout, *, is_imported: bool, rules: int = RULES) -> Derived | None:
    """Return what today's rules change in an ended rollout, or None if nothing changes or it has no trace.

    `rules` is the version of the rules under which it is stored.
    """
    graph = rollout.graph(tokens=True)
    verified = graph.main if graph.is_line or rules >= _PATHS else graph.line(earlier_leaf(graph))
    events = list(graph.events)
    changed: dict[int, TraceUnion] = {}
    # The links of an imported trace come from its file. Redacted requests are no longer those that the client sent.
    if not (is_imported or rollout.redactions):
        changed.update(relink(events))
    if is_imported and (masked := _read_imported_mask(events, rollout.task.row)) and _made_its_task(rollout):
        changed.update(masked)
    for position, event in changed.items():
        events[position] = event
    derived = _columns(events, is_imported=is_imported, is_redacted=bool(rollout.redactions))
    if rollout.status != Rollout.Status.COMPLETED:
        derived = {name: value for name, value in derived.items() if name in _COUNTS}
    new = {name: value for name, value in derived.items() if getattr(rollout, name) != value} if events else {}
    old = {name: getattr(rollout, name) for name in new}
    if links := _parents(graph.events, changed):
        old[LINKS], new[LINKS] = links, _parents(events, changed)
    today = TraceGraph(events, graph.seqs)
    is_other = _conversation(verified) != _conversation(today.main)
    if is_other and not today.is_line:
        leaf = graph.main_leaf if rules >= _PATHS else earlier_leaf(graph)
        old[MAIN_PATH], new[MAIN_PATH] = leaf, today.main_leaf
    if not new:
        return None
    return Derived(
        old=old,
        new=new,
        kind=_kind(derived, new),
        events={graph.seqs[position]: event for position, event in changed.items()},
        needs_verification=is_other and not is_imported,
    )


def _made_its_task(rollout: Rollout) -> bool:
    """Return True for the first imported rollout of its task. Its row became the task, with the fields of the mask.

    Other rows of the task stored only their differences, so that a row with the same mask and one without any look
    alike.
    """
    return not Rollout.objects.filter(
        collection=rollout.collection_id, task=rollout.task_id, pk__lt=rollout.pk
    ).exists()


def _kind(derived: Mapping[str, Any], new: Mapping[str, Any]) -> Kind:
    if not _COUNTS.issuperset(new):
        return "outcome"
    return "untrainable" if derived["sampled_tokens"] and not derived["trainable_tokens"] else "counts"


def _columns(events: Sequence[TraceUnion], *, is_imported: bool, is_redacted: bool) -> dict[str, Any]:
    stats = RolloutStats()
    for event in events:
        stats.add(event)
    outcome = stats.outcome()
    if is_redacted:
        # They were derived before the redaction.
        outcome = {name: value for name, value in outcome.items() if name not in ("answer", "components")}
    elif is_imported and outcome:
        outcome["answer"] = clean_line(outcome["answer"], MAX_ANSWER)
    if not outcome.get("stop_reason"):
        outcome.pop("stop_reason", None)
    return {**stats.counts(), **outcome}


def _read_imported_mask(events: Sequence[TraceUnion], row: Mapping[str, Any]) -> dict[int, Verification]:
    """Return the verifications whose mask GymWeb 0.2 imported as fields of the task, with these fields."""
    of_task = {name: row[name] for name in _MASKS if name in row}
    return {
        position: replace(event, details={**event.details, **masked})
        for position, event in enumerate(events)
        if isinstance(event, Verification)
        and of_task
        and not event.masked
        and (masked := mask_fields({**of_task, **event.details}))
    }


def _parents(events: Sequence[TraceUnion], changed: Mapping[int, TraceUnion]) -> dict[str, int]:
    calls = [events[position] for position in sorted(changed)]
    return {str(call.call): call.parent for call in calls if isinstance(call, ModelCall)}


def _conversation(line: Sequence[TraceUnion]) -> list[Any]:
    return [event.new_items() for event in line]
