"""Pair the attempts of a collection: groups → preference pairs, and what became of every group."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, islice

from django.db import transaction

from apps.accounts.auditing import record
from apps.accounts.models import User
from apps.exports.models import PairSet, PreferencePair
from apps.exports.traces import read_traces
from apps.gym.fingerprints import completion_fingerprint, prompt_fingerprint
from apps.gym.pairs import OUTCOMES, Attempt, Fingerprint, Pair, pair_group
from apps.rollouts.models import Collection, Rollout

GROUPS = 100
"""Groups whose traces are read together."""

ROWS = 2_000


class PairingRefused(Exception):
    """The rule cannot pair anything, whatever the collection holds."""


def build_pairs(
    *,
    collection: Collection,
    margin: float = 0.1,
    min_chosen_reward: float | None = None,
    user: User | None = None,
) -> PairSet:
    """Best against worst of every group, at most one pair each (see gym/pairs.py). Raises PairingRefused.

    `PairSet.counts` holds every outcome of gym.pairs.OUTCOMES with its number of groups, zeros included.
    """
    # `not >=` also refuses NaN.
    if not margin >= 0:
        raise PairingRefused("The margin must be zero or more; equal rewards never pair.")
    outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
    pairs: list[tuple[int, Pair]] = []
    # The traces are read before the one transaction begins: it would hold up every other writer on SQLite.
    groups = _groups(collection)
    while chunk := list(islice(groups, GROUPS)):
        for task_id, pair, outcome in _pair_chunk(chunk, margin, min_chosen_reward):
            outcomes[outcome] += 1
            if pair is not None:
                pairs.append((task_id, pair))
    with transaction.atomic():
        pair_set = PairSet.objects.create(
            collection=collection,
            margin=margin,
            min_chosen_reward=min_chosen_reward,
            pair_count=len(pairs),
            counts=dict(outcomes),
            created_by=user,
        )
        PreferencePair.objects.bulk_create(
            (
                PreferencePair(
                    pair_set=pair_set,
                    task_id=task_id,
                    chosen_id=pair.chosen,
                    rejected_id=pair.rejected,
                    margin=pair.margin,
                )
                for task_id, pair in pairs
            ),
            batch_size=ROWS,
        )
        record(user=user, action="pair_set.create", target=pair_set, pairs=len(pairs))
    return pair_set


_Group = tuple[int, list[Attempt], dict[int, int]]
"""Task id, its attempts, and which attempt number of each rollout has the trace that counts."""


def _groups(collection: Collection) -> Iterator[_Group]:
    rows = (
        Rollout.objects.filter(collection=collection)
        .order_by("task_id", "repeat")
        .values_list("task_id", "id", "reward", "output_tokens", "stop_reason", "attempt")
    )
    for task_id, group in groupby(rows.iterator(chunk_size=ROWS), key=lambda row: row[0]):
        attempts, numbers = [], {}
        for _, rollout_id, reward, output_tokens, stop_reason, number in group:
            attempts.append(Attempt(id=rollout_id, reward=reward, output_tokens=output_tokens, stop_reason=stop_reason))
            numbers[rollout_id] = number
        yield task_id, attempts, numbers


def _pair_chunk(
    chunk: list[_Group], margin: float, min_chosen_reward: float | None
) -> Iterator[tuple[int, Pair | None, str]]:
    """Traces are read for the pairs that the rewards alone would make, and singly where those prove false."""
    likely: dict[int, int] = {}
    for _, attempts, numbers in chunk:
        pair, _ = pair_group(attempts, _unlike_any_other, margin=margin, min_chosen_reward=min_chosen_reward)
        if pair is not None:
            likely.update({one: numbers[one] for one in (pair.chosen, pair.rejected)})
    known = _fingerprints(likely)
    for task_id, attempts, numbers in chunk:

        def fingerprint(rollout_id: int, numbers: dict[int, int] = numbers) -> Fingerprint:
            if rollout_id not in known:
                known.update(_fingerprints({rollout_id: numbers[rollout_id]}))
            return known[rollout_id]

        pair, outcome = pair_group(attempts, fingerprint, margin=margin, min_chosen_reward=min_chosen_reward)
        yield task_id, pair, outcome


def _unlike_any_other(rollout_id: int) -> Fingerprint:
    return Fingerprint(prompt="", completion=str(rollout_id))


def _fingerprints(numbers: dict[int, int]) -> dict[int, Fingerprint]:
    return {
        rollout_id: Fingerprint(prompt=prompt_fingerprint(events), completion=completion_fingerprint(events))
        for rollout_id, events in read_traces(numbers)
    }
