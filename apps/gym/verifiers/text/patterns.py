"""Regular expressions: how often the reply matches those it should match, and that it matches none it should not."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import excerpt
from apps.gym.verifiers.answering import pattern_problem
from apps.gym.verifiers.protocol import Problem, TimeLimit, Verifier

_Patterns = Annotated[list[Annotated[str, Meta(min_length=1, max_length=2_000)]], Meta(max_length=100)]


class Patterns(Verifier, frozen=True, kw_only=True, tag="regex"):
    """The part of the wanted patterns that the reply matches; 0.0 as soon as it matches a forbidden one.

    `within` reply: the pattern is searched anywhere (`^` and `$` are the ends of a line). whole: the reply, less white
    space around it, is one match. lines: at least `at_least` lines have a match. `score` as for texts: all, any or
    fraction. The patterns are matched in a process that is stopped at the time limit, so that none can hold up others.

    Range: 0.0 to 1.0. Components: `wanted` and `forbidden` (1.0 when no forbidden pattern matches).
    """

    title: ClassVar[str] = "Regular expressions"
    wanted: Annotated[_Patterns, Meta(title="Wanted patterns")] = []
    forbidden: Annotated[_Patterns, Meta(title="Forbidden patterns")] = []
    within: Annotated[Literal["reply", "whole", "lines"], Meta(title="Matched against")] = "reply"
    at_least: Annotated[
        int, Meta(ge=1, le=10_000, title="At least", description="Matches in the reply, or lines that match")
    ] = 1
    score: Annotated[Literal["all", "any", "fraction"], Meta(title="Score")] = "all"
    ignore_case: Annotated[bool, Meta(title="Upper and lower case are alike")] = False
    time_limit: TimeLimit = 5.0

    def stays_on_loop(self, row: TaskRow) -> bool:
        return False

    @property
    def seconds(self) -> float:
        return self.time_limit

    def find_problems(self) -> Iterator[Problem]:
        if not self.wanted and not self.forbidden:
            yield "/wanted", "is empty, and so is `forbidden`: give at least one pattern"
        for name, patterns in (("wanted", self.wanted), ("forbidden", self.forbidden)):
            for index, pattern in enumerate(patterns):
                if problem := pattern_problem(pattern):
                    yield f"/{name}/{index}", problem

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        reply = assistant_text(response.get("output") or [])
        counts = {pattern: self._count(pattern, reply) for pattern in self.wanted}
        found = sum(count >= self.at_least for count in counts.values())
        hits = [pattern for pattern in self.forbidden if self._count(pattern, reply)]
        score = self._score(found)
        lacking = [pattern for pattern, count in counts.items() if count < self.at_least]
        told = [f"matches {found} of {len(counts)} wanted patterns"] if counts else []
        told += [f"not {excerpt(', '.join(lacking))}"] if lacking else []
        told += [f"matches what is forbidden: {excerpt(', '.join(hits))}"] if hits else []
        return Reward(
            value=0.0 if hits else score,
            components={"wanted": score, "forbidden": float(not hits)},
            explanation="; ".join(told) or "matches nothing that is forbidden",
            details={"matches": counts, "forbidden": hits},
        )

    def _count(self, pattern: str, reply: str) -> int:
        flags = re.MULTILINE | (re.IGNORECASE if self.ignore_case else 0)
        if self.within == "whole":
            return int(re.fullmatch(pattern, reply.strip(), flags) is not None)
        if self.within == "lines":
            return sum(re.search(pattern, line, flags) is not None for line in reply.splitlines())
        return sum(1 for _ in re.finditer(pattern, reply, flags))

    def _score(self, found: int) -> float:
        if not self.wanted:
            return 1.0
        if self.score == "fraction":
            return found / len(set(self.wanted))
        return float(found == len(set(self.wanted))) if self.score == "all" else float(found > 0)
