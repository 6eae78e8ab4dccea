"""Derive transitive preferences from verdicts: if A beats B and B beats C, A is better than C."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from apps.gym.pairs.pair_rule import Verdict


def find_worse(verdicts: Iterable[Verdict]) -> dict[int, set[int]]:
    """Return, for each winner, the ids of all attempts that are worse, directly or transitively.

    Contradictory verdicts, which form a cycle, are left out.
    """
    lost: dict[int, set[int]] = defaultdict(set)
    for one in verdicts:
        if one.winner is not None:
            lost[one.winner].add(one.other if one.winner == one.one else one.one)
    reached = {winner: _reachable_from(winner, lost) for winner in lost}
    straight = {
        winner: {loser for loser in losers if winner not in reached.get(loser, ())} for winner, losers in lost.items()
    }
    return {winner: worse for winner in straight if (worse := _reachable_from(winner, straight))}


def _reachable_from(start: int, lost: Mapping[int, set[int]]) -> set[int]:
    found: set[int] = set()
    ahead = list(lost.get(start, ()))
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead += lost.get(one, ())
    return found
