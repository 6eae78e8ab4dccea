"""Let a reward model or a classifier score the attempt: a number of an endpoint, calibrated to 0–1."""

import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from apps.gym.errors import JudgeError
from apps.gym.judging.judge import Judgement
from apps.gym.judging.prompts import final_answer, readable_prompt
from apps.gym.redaction.shortening import shorten
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, as_object, assistant_text, input_items, item_type, message, read_json
from apps.gym.verifiers.protocol import JudgedVerifier, Problem
from apps.gym.wires.scores.score_endpoint import ScoreEndpoint

_NUMBER = re.compile(r"\s*(?:[\w -]{1,80}:)?\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")
_ADDS_UP = 1e-4
_USED_BY = {"slope": "sigmoid", "intercept": "sigmoid", "low": "minmax", "high": "minmax"}


class RewardModel(JudgedVerifier, frozen=True, kw_only=True, tag="reward_model"):
    """The score of a reward model or classifier, calibrated to 0–1. `none`: the score; `sigmoid`: 1 ÷ (1 + exp(−(slope
    × score + intercept))); `minmax`: (score − low) ÷ (high − low), limited to 0–1.

    The environment's judge model is the reward model. `sigmoid` and `minmax` request scores before the activation of
    the server (softmax or sigmoid); `none` requests the server's own probabilities, and a score outside 0–1 fails. The
    model reads the task's messages and the rollout without reasoning, in its own chat template. Nothing is shortened: a
    rollout that is too long for the model gives a `judge_error`, as do all failures of the model.

    Range: 0.0 to 1.0. Components: `reward_model`, and `raw_score` before calibration.
    """

    title: ClassVar[str] = "Reward model"
    endpoint: Annotated[
        Literal["classify", "score", "pooling", "chat"],
        Meta(
            title="Endpoint",
            description="vLLM's `classify` for classifiers, `score` for cross-encoders, `pooling` for reward heads; "
            "`chat` for models whose message is a number",
        ),
    ] = "classify"
    reads: Annotated[
        Literal["conversation", "answer"],
        Meta(
            title="Reads",
            description="`answer`: only the final answer, as plain text, for models without a chat template. `score` "
            "always compares the task with the final answer",
        ),
    ] = "conversation"
    index: (
        Annotated[
            int,
            Meta(title="Index of the score", description="From 0. Required if the model returns several", ge=0, le=999),
        ]
        | None
    ) = None
    calibration: Annotated[Literal["none", "sigmoid", "minmax"], Meta(title="Calibration")] = "none"
    slope: Annotated[float, Meta(title="Slope", description="For `sigmoid`", ge=-1e6, le=1e6)] = 1.0
    intercept: Annotated[float, Meta(title="Intercept", description="For `sigmoid`", ge=-1e6, le=1e6)] = 0.0
    low: Annotated[float, Meta(title="Low", description="For `minmax`: score of reward 0", ge=-1e9, le=1e9)] = 0.0
    high: Annotated[float, Meta(title="High", description="For `minmax`: score of reward 1", ge=-1e9, le=1e9)] = 1.0

    def find_problems(self) -> Iterator[Problem]:
        if not self.low < self.high:
            yield "/high", "must be above `low`"
        if self.slope == 0:
            yield "/slope", "is 0: every rollout would have the same reward"
        for field, calibration in _USED_BY.items():
            if self.calibration != calibration and getattr(self, field) != getattr(RewardModel(), field):
                yield f"/{field}", f'needs `calibration` to be "{calibration}"'
        if self.index is not None and self.endpoint in ("chat", "score"):
            yield "/index", f"has no use at the endpoint `{self.endpoint}`, which returns one score"

    async def judge(self, row: TaskRow, response: dict[str, Any], judgement: Judgement) -> Reward:
        """Return the calibrated score. Raises JudgeError."""
        items = self._read(row, response, judgement)
        if self.endpoint == "chat":
            call = await judgement.read_scores(None, items)
            scores, label = [_read_number(assistant_text(call.items))], ""
        else:
            text, raw = self.reads == "answer", self.calibration != "none"
            endpoint = ScoreEndpoint(path=self.endpoint, text=text, raw=raw)
            call = await judgement.read_scores(endpoint, items)
            said = as_object(read_json(assistant_text(call.items).encode()))
            scores, label = said["scores"], said.get("label") or ""
            adds_up = len(scores) > 1 and min(scores) >= 0 and math.isclose(sum(scores), 1.0, abs_tol=_ADDS_UP)
            if endpoint.raw and adds_up:
                told = "The reward model returned probabilities: its server ignores `use_activation`"
                raise JudgeError(f"{told}. Set `calibration` to none.").permanent()
        score = self._choose(scores)
        value = self._calibrate(score)
        call.verdict = {"raw_score": score, "value": value}
        explanation = f"score {score:g}" + (f", class {label}" if label else "")
        return Reward(value=value, components={"reward_model": value, "raw_score": score}, explanation=explanation)

    def _read(self, row: TaskRow, response: dict[str, Any], judgement: Judgement) -> list[Item]:
        """Return the items that the model reads."""
        output = response["output"]
        if self.endpoint == "score" or (self.reads == "answer" and self.endpoint != "chat"):
            task = readable_prompt(input_items(row), judgement.settings.max_characters)
            return [message("user", task), message("assistant", final_answer(output))]
        prompt, instructions = input_items(row), row["responses_create_params"].get("instructions")
        if isinstance(instructions, str) and instructions:
            prompt = [message("system", instructions), *prompt]
        told = [message("assistant", final_answer(output))] if self.reads == "answer" else output
        return [*prompt, *(item for item in told if item_type(item) != "reasoning")]

    def _choose(self, scores: list[float]) -> float:
        if self.index is None and len(scores) > 1:
            raise JudgeError(f"The reward model returned {len(scores)} scores. Set `index` to choose one.").permanent()
        if (self.index or 0) >= len(scores):
            raise JudgeError(f"The reward model returned {len(scores)} scores, none at {self.index}.").permanent()
        return scores[self.index or 0]

    def _calibrate(self, score: float) -> float:
        """Return a reward from 0 to 1. Raises JudgeError for a score outside without a calibration."""
        if self.calibration == "sigmoid":
            return (1 + math.tanh((self.slope * score + self.intercept) / 2)) / 2
        if self.calibration == "minmax":
            return min(max((score - self.low) / (self.high - self.low), 0.0), 1.0)
        if not 0.0 <= score <= 1.0:
            told = f"The reward model's score {score:g} is outside 0–1"
            raise JudgeError(f"{told}. Set `calibration` to sigmoid or minmax.").permanent()
        return score


def _read_number(text: str) -> float:
    """Return the number of a reply. Raises JudgeError if it is not one number, possibly after a name."""
    found = _NUMBER.fullmatch(text)
    if not found or not math.isfinite(float(found[1])):
        raise JudgeError(f"The reward model's reply must be one number, not {shorten(repr(text), 80)}.").permanent()
    return float(found[1])
