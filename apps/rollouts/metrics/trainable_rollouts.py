"""The trainability ledger of a collection: which rollouts and tokens may be trained on, and why the rest may not.

Also its set-up notices: kinds, numbers of rollouts and examples.
"""

from collections import Counter
from collections.abc import Iterable

from apps.environments.models import Adapter
from apps.gym.environments.registry import BUILTINS
from apps.gym.outcomes import ENDED_BY_ITSELF, MASKED
from apps.gym.setup_notices import EQUAL_ATTEMPTS, OF_ROLLOUTS, SetupNotice, shown_notices
from apps.gym.traces.events import decode_event
from apps.gym.trainability import GRAMMARS, STRICT_TOOLS
from apps.gym.training_ledger import Trainability, summarize
from apps.gym.wires.grammars import has_strict_tools, name_grammar
from apps.rollouts.equal_attempts import find_equal_attempts
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.figure_blocks import read_whole_parts
from apps.rollouts.metrics.outcome_counts import Outcome, add_up
from apps.rollouts.models import Collection, Rollout, TraceEvent

_EARLIER = ("masked", "flagged", "ambiguous", "noticed")
"""Figures of rollouts with a reason that applies before `truncated`."""
_EVENTS = 50
"""Events that are searched for the cause of a grammar."""


def read_trainability(collection: Collection) -> Trainability:
    """Return the current ledger of a collection. Unchanged blocks of tasks are not counted again."""
    with consistent_reads():
        return measure_trainability(collection, _read_outcomes(collection))


def measure_trainability(collection: Collection, outcomes: Iterable[Outcome]) -> Trainability:
    """Return the ledger from counted outcomes. Reasons apply in the order of `find_reason`.

    Tokens are counted of the used rollouts, or of all completed ones if none of their tokens is trainable.
    """
    outcomes = list(outcomes)
    dropped: Counter[str] = Counter()
    for row in outcomes:
        if row["status"] in {Rollout.Status.FAILED, Rollout.Status.CANCELLED}:
            dropped[row["status"]] += row["count"]
        elif row["status"] != Rollout.Status.COMPLETED:
            dropped["not_finished"] += row["count"]
        else:
            dropped[MASKED] += row["masked"]
            dropped["flagged"] += row["flagged"]
            dropped["ambiguous_path"] += row["ambiguous"]
            dropped["setup_notice"] += row["noticed"]
            if row["stop_reason"] in ENDED_BY_ITSELF:
                dropped["no_reward"] += row["unrewarded"]
            else:
                dropped["truncated"] += row["count"] - sum(row[name] for name in _EARLIER)
    considered = add_up(outcomes, "count")
    used = considered - dropped.total()
    if collection.traces_deleted_at:
        dropped["no_trace"], used = used, 0
    usable = [row for row in outcomes if row["stop_reason"] in ENDED_BY_ITSELF] if used else []
    ended = [row for row in outcomes if row["status"] == Rollout.Status.COMPLETED]
    has_none = bool(add_up(ended, "sampled_sum")) and not add_up(ended, "trainable_sum")
    return summarize(
        "rollouts",
        considered=considered,
        used=used,
        dropped=dropped,
        # If no token of any rollout is trainable, all are counted: even rollouts that are left out show the cause.
        sampled_tokens=add_up(ended, "sampled_sum") if has_none else add_up(usable, "used_sampled") or None,
        trainable_tokens=0 if has_none else _known(usable),
        grammar=_find_grammar(collection) if has_none else "",
    )


def _known(usable: list[Outcome]) -> int | None:
    return add_up(usable, "used_trainable") if add_up(usable, "used_sampled") else None


def _find_grammar(collection: Collection) -> str:
    """Return what made the server use a grammar, from one rollout whose sampled tokens are all left out."""
    rollouts = collection.rollouts.filter(sampled_tokens__gt=0, trainable_tokens=0)
    found = rollouts.order_by("-pk").values_list("pk", "attempt").first()
    if found is None:
        return ""
    events = TraceEvent.objects.filter(rollout=found[0], attempt=found[1], kind__in=["session", "model_call"])
    payloads = events.order_by("seq").values_list("payload", flat=True)[:_EVENTS]
    return name_grammar(map(decode_event, payloads))


def foresee_trainability(collection: Collection) -> str:
    """Return a warning if the plan of a collection makes no sampled token trainable, or an empty string.

    Only tools of built-in environments are known before the first rollout.
    """
    agent, environment = collection.snapshot.get("agent", {}), collection.environment
    if not collection.policy_model.capture_tokens or agent.get("strict_tools") == "never":
        return ""
    builtin = BUILTINS.get(environment.builtin) if environment.adapter == Adapter.BUILTIN else None
    if builtin is None or not has_strict_tools(list(builtin.tools)):
        return ""
    return f"No sampled token will be trainable: {STRICT_TOOLS}. {GRAMMARS[STRICT_TOOLS]}"


def read_setup_notices(collection: Collection) -> list[SetupNotice]:
    """Return the current notices of a collection. Unchanged blocks of tasks are not counted again."""
    with consistent_reads():
        return find_notices(collection, _read_outcomes(collection))


def _read_outcomes(collection: Collection) -> list[Outcome]:
    return [outcome for each in read_whole_parts(collection) for outcome in each.part.outcomes]


def find_notices(collection: Collection, outcomes: Iterable[Outcome]) -> list[SetupNotice]:
    """Return the notices of counted outcomes, in the order of their declaration."""
    outcomes, equal = list(outcomes), find_equal_attempts(collection)
    counts = {**{name: add_up(outcomes, name) for name in OF_ROLLOUTS}, EQUAL_ATTEMPTS: len(equal)}
    cuts = add_up([row for row in outcomes if row["stop_reason"] == "max_output_tokens"], "count")
    return [
        SetupNotice(
            kind=notice.name,
            title=notice.title,
            sentence=notice.sentence,
            remedy=notice.over(collection.policy_model.wire).remedy,
            rollouts=counts[notice.name],
            example=_find_example(collection, notice.name) if notice.sign else equal[0],
            filter=f"notice:{notice.name}" if notice.sign else "",
        )
        for notice in shown_notices(counts, reported_cuts=cuts)
    ]


def _find_example(collection: Collection, name: str) -> int | None:
    noticed = collection.rollouts.exclude(notices="").filter(notices__contains=name)
    return noticed.order_by("pk").values_list("pk", flat=True).first()
