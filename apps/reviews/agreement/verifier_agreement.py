"""Agreement of reviewers with rewards and with lengths, in a constant number of queries."""

from collections.abc import Mapping
from typing import Any

import msgspec

from apps.gym.environments.simulated_user.environment import SimulatedUser
from apps.gym.metrics.agreement import correlate
from apps.reviews.agreement.queue_agreement import find_independent_reviews, find_verdicts
from apps.reviews.models import Queue
from apps.rollouts.models import Rollout

TOLERANCE = 1e-9
_BY_JUDGED = {0: "rewards of verifiers", 2: "rewards of judges", 1: "rewards of verifier and judge"}
"""Labels by the number of rewards of the pair that are from a judge model."""


class OutsideAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of reviewers with a number: `same` of `compared` answers, or a correlation for numeric answers."""

    name: str
    same: int
    compared: int
    correlation: float | None = None

    @property
    def share(self) -> float | None:
        return self.same / self.compared if self.compared else None


def read_against_rewards(queue: Queue, *, could_see_results: bool | None = None) -> list[OutsideAgreement]:
    """Return the agreement with rewards, separately for rewards by verifiers, by judge models, and mixed pairs."""
    against: dict[str, list[Any]] = {name: [] for name in _BY_JUDGED.values()}
    verdicts = list(
        find_verdicts(queue, could_see_results=could_see_results).values_list("low_id", "high_id", "outcome")
    )
    opinions = find_independent_reviews(queue, could_see_results=could_see_results).exclude(rollout=None)
    scores = [] if verdicts else list(opinions.values_list("rollout_id", "scores"))
    wanted = Rollout.objects.filter(queue_entries__item__queue=queue, reward__isnull=False).distinct()
    rows = wanted.values_list("pk", "reward", "judge_calls", "collection__environment__builtin")
    # The calls of a simulated user give no reward.
    rewards = {
        pk: (reward, calls > 0 and builtin != SimulatedUser.name)
        for pk, reward, calls, builtin in rows
        if reward is not None
    }
    for low, high, outcome in verdicts:
        if low in rewards and high in rewards and outcome in {"low", "high"}:
            (first, judged), (second, also) = rewards[low], rewards[high]
            if abs(first - second) > TOLERANCE:
                against[_BY_JUDGED[judged + also]].append((outcome == "low") == (first > second))
    found = [OutsideAgreement(name=name, same=sum(said), compared=len(said)) for name, said in against.items() if said]
    return found + _scores_against(queue, scores, rewards)


def read_against_lengths(queue: Queue, *, could_see_results: bool | None = None) -> list[OutsideAgreement]:
    """Return how often reviewers preferred the attempt with more output tokens.

    A share far from 0.5 suggests length bias. Attempts without token counts or of equal length are left out.
    """
    preferred = find_verdicts(queue, could_see_results=could_see_results).filter(outcome__in=("low", "high"))
    verdicts = list(preferred.values_list("low_id", "high_id", "outcome"))
    if not verdicts:
        return []
    written = Rollout.objects.filter(queue_entries__item__queue=queue, output_tokens__gt=0).distinct()
    tokens = dict(written.values_list("pk", "output_tokens"))
    known = [each for each in verdicts if each[0] in tokens and each[1] in tokens]
    unlike = [(tokens[low] - tokens[high], outcome) for low, high, outcome in known if tokens[low] != tokens[high]]
    said = [(outcome == "low") == (more > 0) for more, outcome in unlike]
    return (
        [OutsideAgreement(name="preference for the longer rollout", same=sum(said), compared=len(said))] if said else []
    )


def _scores_against(
    queue: Queue, scores: list[tuple[int, dict[str, Any]]], rewards: Mapping[int, tuple[float, bool]]
) -> list[OutsideAgreement]:
    """Compare yes/no answers with solved or unsolved, and correlate numeric answers with the reward."""
    found = []
    known = [(given, rewards[rollout][0]) for rollout, given in scores if rollout in rewards]
    for criterion in queue.rubric.criteria if queue.rubric else []:
        both = [(given[criterion["key"]], reward) for given, reward in known if criterion["key"] in given]
        if criterion["kind"] == "boolean" and both:
            same = sum(said == (reward >= 1.0 - TOLERANCE) for said, reward in both)
            found.append(OutsideAgreement(name=f"{criterion['label']} · solved", same=same, compared=len(both)))
        elif criterion["kind"] == "numeric" and both:
            together = correlate([(float(said), reward) for said, reward in both])
            name = f"{criterion['label']} · reward"
            found.append(OutsideAgreement(name=name, same=0, compared=0, correlation=together))
    return found
