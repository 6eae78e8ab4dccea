"""Read reviewers' verdicts and reward overrides for building pairs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from apps.gym.pairs.pair_rule import Verdict
from apps.pairs.task_attempts import TaskGroup
from apps.reviews.agreement.decisions import CombinedVerdict, read_verdicts
from apps.reviews.models import RewardOverride
from apps.reviews.reviews.reward_overrides import read_overrides
from apps.rollouts.models import Collection


class RolloutVerdicts:
    """Combined verdicts of reviewers, looked up by rollout id."""

    def __init__(self, verdicts: Iterable[Verdict]) -> None:
        self._verdicts: dict[int, list[Verdict]] = defaultdict(list)
        for verdict in verdicts:
            self._verdicts[verdict.one].append(verdict)

    def of(self, rollouts: Iterable[int] | Mapping[int, int]) -> list[Verdict]:
        """Return the verdicts between two of these rollouts."""
        known = set(rollouts)
        return [verdict for one in sorted(known) for verdict in self._verdicts.get(one, ()) if verdict.other in known]


def read_rollout_verdicts(rollout_ids: Sequence[int]) -> RolloutVerdicts:
    return RolloutVerdicts(_to_rule_verdict(one) for one in read_verdicts(rollout_ids=rollout_ids).values())


def override_rewards(task_groups: Iterable[TaskGroup]) -> None:
    """Replace the rewards of overridden attempts in place. The originals move to `verifier_reward`."""
    task_groups = list(task_groups)
    overrides = read_overrides([one for task_group in task_groups for one in task_group.numbers])
    for task_group in task_groups:
        task_group.attempts = [
            msgspec.structs.replace(one, reward=overrides[one.id].reward, overridden=True, verifier_reward=one.reward)
            if one.id in overrides
            else one
            for one in task_group.attempts
        ]


def has_overrides(collection: Collection) -> bool:
    """Return True if the collection has an active reward override."""
    return RewardOverride.objects.filter(rollout__collection=collection, ended_at__isnull=True).exists()


def _to_rule_verdict(standing: CombinedVerdict) -> Verdict:
    return Verdict(
        one=standing.low,
        other=standing.high,
        winner=standing.winner,
        without="split" if standing.outcome == "split" else "both_bad" if standing.outcome == "both_bad" else "equal",
        strength=standing.strength or 1,
        reviewers=standing.reviewers,
        agreement=standing.agreeing / standing.reviewers if standing.reviewers else None,
        adjudicated=standing.how == "adjudicated",
        reviews=tuple(standing.reviews),
    )
