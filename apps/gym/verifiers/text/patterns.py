"""Texts and regular expressions that a reply must or must not contain."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import excerpt
from apps.gym.verifiers.protocol import Problem, TimeLimit, Verifier, pattern_problem, permanent_error, score_texts
from apps.gym.verifiers.text.exact_match import normalise

_Texts = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=500)]


class Contains(Verifier, frozen=True, kw_only=True, tag="contains"):
    """1.0 if the reply contains all wanted strings, otherwise 0.0. With `score: fraction`, the reward is the share
    of strings found. 0.0 if it contains a forbidden string.

    `score`: with `all`, 1.0 if the reply contains every wanted string, otherwise 0.0; with `any`, 1.0 if it contains at
    least one; with `fraction`, found ÷ wanted. White space counts as one space. Case is ignored unless `case_sensitive`
    is on. Without wanted strings, 1.0.

    Range: 0.0 to 1.0. Components: `wanted` (the score without forbidden strings) and `forbidden` (1.0 if the reply
    contains none).
    """

    title: ClassVar[str] = "Contains strings"
    wanted: Annotated[
        _Texts, Meta(title="Wanted strings", description="The same strings for all tasks. Default: the row field below")
    ] = []
    wanted_field: Annotated[
        str,
        Meta(title="Field of the wanted strings", description="Name of the row field that holds them", min_length=1),
    ] = "expected_answer"
    forbidden: Annotated[_Texts, Meta(title="Forbidden strings")] = []
    score: Annotated[Literal["all", "any", "fraction"], Meta(title="Score")] = "all"
    case_sensitive: Annotated[bool, Meta(title="Case-sensitive")] = False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.wanted or self.forbidden else frozenset({self.wanted_field})

    def find_problems(self) -> Iterator[Problem]:
        for name, texts in (("wanted", self.wanted), ("forbidden", self.forbidden)):
            for index, text in enumerate(texts):
                if not text.strip():
                    yield f"/{name}/{index}", "is blank"

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        wanted = self._wanted(row)
        reply = self._plain(assistant_text(response.get("output") or []))
        found = [text for text in wanted if self._plain(text) in reply]
        missing = [text for text in wanted if text not in found]
        hits = [text for text in self.forbidden if self._plain(text) in reply]
        score = score_texts(self.score, len(found), len(wanted))
        return Reward(
            value=0.0 if hits else score,
            components={"wanted": score, "forbidden": float(not hits)},
            explanation=_explain(found, missing, hits),
            details={"found": found, "missing": missing, "forbidden": hits},
        )

    def _plain(self, text: str) -> str:
        return normalise(text, case_sensitive=self.case_sensitive, peel=False)

    def _wanted(self, row: TaskRow) -> list[str]:
        if self.wanted:
            return self.wanted
        given = row.get(self.wanted_field)
        if given is None and self.forbidden:
            return []
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(one, str) and one.strip() for one in texts):
            raise permanent_error(
                f"the task row's `{self.wanted_field}` must be a string, or a list of strings that are not blank"
            )
        return texts


def _explain(found: list[str], missing: list[str], hits: list[str]) -> str:
    told = [
        f"{name}: {excerpt(', '.join(texts))}" for name, texts in (("contains", found), ("lacks", missing)) if texts
    ]
    if hits:
        told.append(f"contains forbidden string: {excerpt(', '.join(hits))}")
    return "; ".join(told) or "contains no forbidden string"


_Patterns = Annotated[list[Annotated[str, Meta(min_length=1, max_length=2_000)]], Meta(max_length=100)]


class Patterns(Verifier, frozen=True, kw_only=True, tag="regex"):
    """1.0 if the reply matches all wanted patterns, otherwise 0.0. With `score: fraction`, the reward is the share
    of patterns matched. 0.0 if it matches a forbidden pattern.

    `within`: with `reply`, the pattern can match anywhere (`^` and `$` match at line ends); with `whole`, the pattern
    must match the whole reply, without outer white space; with `lines`, at least `at_least` lines must match. `score`
    is `all`, `any` or `fraction`, as for `contains`. Matching runs in a process that is stopped at the time limit.

    Range: 0.0 to 1.0. Components: `wanted` and `forbidden` (1.0 if no forbidden pattern matches).
    """

    title: ClassVar[str] = "Regular expressions"
    wanted: Annotated[_Patterns, Meta(title="Wanted patterns")] = []
    forbidden: Annotated[_Patterns, Meta(title="Forbidden patterns")] = []
    within: Annotated[Literal["reply", "whole", "lines"], Meta(title="Matched against")] = "reply"
    at_least: Annotated[
        int,
        Meta(
            ge=1, le=10_000, title="Minimum matches", description="Number of matches in the reply, or of matching lines"
        ),
    ] = 1
    score: Annotated[Literal["all", "any", "fraction"], Meta(title="Score")] = "all"
    ignore_case: Annotated[bool, Meta(title="Ignore case")] = False
    time_limit: TimeLimit = 5.0

    def runs_on_loop(self, row: TaskRow) -> bool:
        return False

    def find_problems(self) -> Iterator[Problem]:
        if not self.wanted and not self.forbidden:
            yield "/wanted", "and `forbidden` are empty. Give at least one pattern"
        for name, patterns in (("wanted", self.wanted), ("forbidden", self.forbidden)):
            for index, pattern in enumerate(patterns):
                if problem := pattern_problem(pattern):
                    yield f"/{name}/{index}", problem

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        reply = assistant_text(response.get("output") or [])
        counts = {pattern: self._count(pattern, reply) for pattern in self.wanted}
        found = sum(count >= self.at_least for count in counts.values())
        hits = [pattern for pattern in self.forbidden if self._count(pattern, reply)]
        score = score_texts(self.score, found, len(counts))
        lacking = [pattern for pattern, count in counts.items() if count < self.at_least]
        told = [f"matches {found} of {len(counts)} wanted patterns"] if counts else []
        told += [f"not {excerpt(', '.join(lacking))}"] if lacking else []
        told += [f"matches forbidden patterns: {excerpt(', '.join(hits))}"] if hits else []
        return Reward(
            value=0.0 if hits else score,
            components={"wanted": score, "forbidden": float(not hits)},
            explanation="; ".join(told) or "matches no forbidden pattern",
            details={"matches": counts, "forbidden": hits},
        )

    def _count(self, pattern: str, reply: str) -> int:
        flags = re.MULTILINE | (re.IGNORECASE if self.ignore_case else 0)
        if self.within == "whole":
            return int(re.fullmatch(pattern, reply.strip(), flags) is not None)
        if self.within == "lines":
            return sum(re.search(pattern, line, flags) is not None for line in reply.splitlines())
        return sum(1 for _ in re.finditer(pattern, reply, flags))
