"""Derive from the stored events of a rollout what the engine or the import would store today."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from apps.gym.metrics.majority_at_k import MAX_ANSWER
from apps.gym.outcomes import mask_fields
from apps.gym.redaction.shortening import cut_clean
from apps.gym.rollout_files.stored_calls import count_without_usage, drop_partial_count
from apps.gym.setup_notices import SetupSigns
from apps.gym.storable import clean_line
from apps.gym.stored_rules import RULES
from apps.gym.traces.events import FailedCall, ModelCall, TraceUnion, Verification
from apps.gym.traces.failed_calls import find_unanswered
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.relinking import relink
from apps.rollouts.engine.running import MAX_MESSAGE, MAX_TOOL_NAME, RolloutStats
from apps.rollouts.models import Rollout
from apps.rollouts.rechecks.earlier_paths import earlier_leaf

Kind = Literal["outcome", "untrainable", "counts"]
"""What a change concerns, most important first.

- `outcome`: the reward, the outcome, the answer or the conversation. Pairs and exports that use the rollout are stale.
- `untrainable`: none of the sampled tokens is trainable, or tokens are left out. In the second case, exports with
  tokens are stale.
- `counts`: only counts.
"""

USAGE = ("calls_without_usage", "output_tokens")
"""Counts whose sum is a column of the collection."""
LINKS = "links"
"""The name under which changed links of calls are listed. The values are the numbers of the calls' parents."""
MAIN_PATH = "main_path"
"""The name under which a changed main path is listed. The values are the numbers of its last call."""
TOKENS = "tokens"
"""The name under which stored tokens are listed that nothing reads. The values are the reasons by number of the call.
"""
_PATHS = 2
"""The rules that choose the main path by the answer."""
_MASKS = ("mask_sample", "failure_kind", "failure_reason", "instance_config")
_COUNTS = frozenset({"turns", "tool_calls", "tool_errors", "tools", "sampled_tokens", "trainable_tokens", *USAGE})


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


def derive_rollout(
    rollout: Rollout, *, is_imported: bool, rules: int = RULES, ends: Counter[int] | None = None
) -> Derived | None:
    """Return what today's rules change in an ended rollout, or None if nothing changes or it has no trace.

    `rules` is the version of the rules under which it is stored. `ends` collects the end tokens of its model.
    """
    graph = rollout.graph(tokens=True)
    verified = graph.main if graph.is_line or rules >= _PATHS else graph.line(earlier_leaf(graph))
    events = list(graph.events)
    # The links of an imported trace come from its file. Redacted requests are no longer those that the client sent.
    relinked: Mapping[int, TraceUnion] = {} if is_imported or rollout.redactions else relink(events)
    recounted = _without_partial_counts(events) if is_imported else {}
    changed = {**relinked, **recounted}
    if is_imported and (masked := _read_imported_mask(events, rollout.task.row)) and _made_its_task(rollout):
        changed.update(masked)
    for position, event in changed.items():
        events[position] = event
    derived = _columns(events, ends, is_imported=is_imported, is_redacted=bool(rollout.redactions))
    if not recounted:
        derived.pop("output_tokens", None)  # An import may have stored another sum.
    if rollout.status != Rollout.Status.COMPLETED:
        derived = {name: value for name, value in derived.items() if name in _COUNTS}
    elif rollout.stop_reason == "answered" and (failed := find_unanswered(events)):
        derived = {name: value for name, value in derived.items() if name in _COUNTS} | _failed_columns(failed)
    new = {name: value for name, value in derived.items() if getattr(rollout, name) != value} if events else {}
    if not new.keys() & {"tool_calls", "tool_errors"}:
        new.pop("tools", None)  # Only the seconds differ.
    old = {name: getattr(rollout, name) for name in new}
    if links := _parents(graph.events, relinked):
        old[LINKS], new[LINKS] = links, _parents(events, relinked)
    today = TraceGraph(events, graph.seqs)
    is_other = _conversation(verified) != _conversation(today.main)
    if is_other and not today.is_line:
        leaf = graph.main_leaf if rules >= _PATHS else earlier_leaf(graph)
        old[MAIN_PATH], new[MAIN_PATH] = leaf, today.main_leaf
    if graph.left_out and rules < RULES:
        old[TOKENS], new[TOKENS] = {}, {str(call): note for call, note in graph.left_out.items()}
    if not new:
        return None
    return Derived(
        old=old,
        new=new,
        kind=_kind(derived, new),
        events={graph.seqs[position]: event for position, event in changed.items()},
        needs_verification=is_other and not is_imported and "status" not in new,
    )


def _failed_columns(failed: FailedCall) -> dict[str, Any]:
    """Return the columns of a rollout whose model failed."""
    told = failed.message or f"The model failed at call {failed.call}, and the agent finished without another reply."
    kind, message = failed.kind or "policy_error", cut_clean(told, MAX_MESSAGE)
    empty: dict[str, Any] = {
        "reward": None,
        "masked": "",
        "stop_reason": "",
        "answer": "",
        "components": {},
        "ambiguous_path": False,
        "notices": "",
    }
    return {"status": Rollout.Status.FAILED.value, "error_kind": kind, "error_message": message, **empty}


def _made_its_task(rollout: Rollout) -> bool:
    """Return True for the first imported rollout of its task. Its row became the task, with the fields of the mask.

    Other rows of the task stored only their differences, so that a row with the same mask and one without any look
    alike.
    """
    return not Rollout.objects.filter(
        collection=rollout.collection_id, task=rollout.task_id, pk__lt=rollout.pk
    ).exists()


def _kind(derived: Mapping[str, Any], new: Mapping[str, Any]) -> Kind:
    if not {*_COUNTS, TOKENS}.issuperset(new):
        return "outcome"
    has_none = derived["sampled_tokens"] and not derived["trainable_tokens"]
    return "untrainable" if has_none or TOKENS in new else "counts"


def _columns(
    events: Sequence[TraceUnion], ends: Counter[int] | None, *, is_imported: bool, is_redacted: bool
) -> dict[str, Any]:
    stats = RolloutStats(signs=SetupSigns(ends=Counter() if ends is None else ends))
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
    columns = {**stats.counts(), **outcome}
    if not is_redacted:
        clean = partial(clean_line, limit=MAX_TOOL_NAME) if is_imported else str
        columns["tools"] = {clean(name): list(sums) for name, sums in stats.tools.items()}
    if is_imported:
        columns |= {"calls_without_usage": count_without_usage(events), "output_tokens": stats.output_tokens}
    return columns


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


def _without_partial_counts(events: Sequence[TraceUnion]) -> dict[int, ModelCall]:
    """Return the calls of an imported trajectory whose stored count of output tokens is not the final one."""
    if not any(isinstance(event, Verification) and "session" in event.details for event in events):
        return {}
    counted = {place: drop_partial_count(event) for place, event in enumerate(events) if isinstance(event, ModelCall)}
    return {place: call for place, call in counted.items() if call is not events[place]}


def _parents(events: Sequence[TraceUnion], changed: Mapping[int, TraceUnion]) -> dict[str, int]:
    calls = [events[position] for position in sorted(changed)]
    return {str(call.call): call.parent for call in calls if isinstance(call, ModelCall)}


def _conversation(line: Sequence[TraceUnion]) -> list[Any]:
    return [event.new_items() for event in line]
