"""Contains: the reply has the texts that it should have, and none that it should not have."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import excerpt
from apps.gym.verifiers.answering import refuse
from apps.gym.verifiers.protocol import Problem, Verifier
from apps.gym.verifiers.text.exact_match import normalise

_Texts = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=500)]


class Contains(Verifier, frozen=True, kw_only=True, tag="contains"):
    """The part of the wanted texts that the reply contains; 0.0 as soon as it contains a forbidden one.

    `score` all: 1.0 when every wanted text is there, else 0.0. any: 1.0 when one is. fraction: found ÷ wanted. White
    space counts as one space, and upper and lower case are alike unless they differ. Without wanted texts, 1.0.

    Range: 0.0 to 1.0. Components: `wanted` (the score of the wanted texts alone) and `forbidden` (1.0 when none is
    there).
    """

    title: ClassVar[str] = "Contains texts"
    wanted: Annotated[
        _Texts, Meta(title="Wanted texts", description="Left out: the texts, or the one text, of the row's field")
    ] = []
    wanted_field: Annotated[
        str, Meta(title="Field of the wanted texts", description="Its name in the task's row", min_length=1)
    ] = "expected_answer"
    forbidden: Annotated[_Texts, Meta(title="Forbidden texts")] = []
    score: Annotated[Literal["all", "any", "fraction"], Meta(title="Score")] = "all"
    case_sensitive: Annotated[bool, Meta(title="Upper and lower case differ")] = False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.wanted or self.forbidden else frozenset({self.wanted_field})

    def find_problems(self) -> Iterator[Problem]:
        for name, texts in (("wanted", self.wanted), ("forbidden", self.forbidden)):
            for index, text in enumerate(texts):
                if not text.strip():
                    yield f"/{name}/{index}", "is blank: every reply contains that"

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        wanted = self._wanted(row)
        reply = self._plain(assistant_text(response.get("output") or []))
        found = [text for text in wanted if self._plain(text) in reply]
        missing = [text for text in wanted if text not in found]
        hits = [text for text in self.forbidden if self._plain(text) in reply]
        score = self._score(len(found), len(wanted))
        return Reward(
            value=0.0 if hits else score,
            components={"wanted": score, "forbidden": float(not hits)},
            explanation=_explain(found, missing, hits),
            details={"found": found, "missing": missing, "forbidden": hits},
        )

    def _score(self, found: int, wanted: int) -> float:
        if not wanted:
            return 1.0
        if self.score == "fraction":
            return found / wanted
        return float(found == wanted) if self.score == "all" else float(found > 0)

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
            raise refuse(f"the task row's `{self.wanted_field}` must be a text, or a list of texts that are not blank")
        return texts


def _explain(found: list[str], missing: list[str], hits: list[str]) -> str:
    told = [
        f"{name}: {excerpt(', '.join(texts))}" for name, texts in (("contains", found), ("lacks", missing)) if texts
    ]
    if hits:
        told.append(f"contains what is forbidden: {excerpt(', '.join(hits))}")
    return "; ".join(told) or "contains nothing that is forbidden"
