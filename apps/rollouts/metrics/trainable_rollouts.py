"""The trainability ledger of a collection: which rollouts and tokens may be trained on, and why the rest may not."""

from collections import Counter
from collections.abc import Iterable

from apps.environments.models import Adapter
from apps.gym.environments.registry import BUILTINS
from apps.gym.outcomes import ENDED_BY_ITSELF, MASKED
from apps.gym.traces.events import decode_event
from apps.gym.trainability import GRAMMARS, STRICT_TOOLS, Trainability, summarize
from apps.gym.wires.grammars import has_strict_tools, name_grammar
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.figure_blocks import read_whole_parts
from apps.rollouts.metrics.outcome_counts import Outcome, add_up
from apps.rollouts.models import Collection, Rollout, TraceEvent

_EVENTS = 50
"""Events that are searched for the cause of a grammar."""


def read_trainability(collection: Collection) -> Trainability:
    """Return the current ledger of a collection. Unchanged blocks of tasks are not counted again."""
    with consistent_reads():
        outcomes = [outcome for each in read_whole_parts(collection) for outcome in each.part.outcomes]
        return measure_trainability(collection, outcomes)


def measure_trainability(collection: Collection, outcomes: Iterable[Outcome]) -> Trainability:
    """Return the ledger from counted outcomes. Reasons apply in the order of `find_reason`.

    Only tokens of rollouts with a reward count.
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
            if row["stop_reason"] in ENDED_BY_ITSELF:
                dropped["no_reward"] += row["unrewarded"]
            else:
                dropped["truncated"] += row["count"] - row["masked"] - row["flagged"]
    considered = add_up(outcomes, "count")
    sampled, trainable = add_up(outcomes, "sampled_sum"), add_up(outcomes, "trainable_sum")
    return summarize(
        "rollouts",
        considered=considered,
        used=considered - dropped.total(),
        dropped=dropped,
        sampled_tokens=sampled or None,
        trainable_tokens=trainable if sampled else None,
        grammar=_find_grammar(collection) if sampled and not trainable else "",
    )


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
