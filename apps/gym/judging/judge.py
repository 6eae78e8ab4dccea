"""Ask a judge model for verdicts, with limited retries. A missing verdict is never replaced by a default."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from apps.gym.calls.time_limits import TimeLimit, stopped_clocks, working_time
from apps.gym.errors import GymError, JudgeError, PolicyError
from apps.gym.judging.prompts import DEFAULT_RUBRICS, ask_again, ask_verdict
from apps.gym.judging.scale import (
    JudgeSettings,
    Scale,
    Verdict,
    VerdictUnreadable,
    find_answer,
    read_choice,
    read_explanation,
    verdict_schema,
)
from apps.gym.judging.transcript_questions import Answer, Question
from apps.gym.judging.verdict_reader import read_verdict
from apps.gym.redaction.shortening import cut_middle
from apps.gym.traces.events import JudgeCall
from apps.gym.traces.items import Item, Tool, assistant_text
from apps.gym.wires.protocol import VERDICT_SCHEMA, Ask, Policy, Reply
from apps.gym.wires.scores.score_cache import ReplyCache
from apps.gym.wires.scores.score_endpoint import ScoreEndpoint, ScoringPolicy

CONTRADICTION = "contradicts itself"
"""Part of the message of a JudgeError if the judge's answers in both orders differ."""

Winner = Literal["a", "b", "tie"]
_GIVEN: dict[str, Winner] = {"first": "a", "second": "b", "tie": "tie"}
_SWAPPED: dict[str, Winner] = {"first": "b", "second": "a", "tie": "tie"}
_SAID_WINNER = {"a": "the answer is better", "b": "the expected answer is better", "tie": "they are even"}
_WINNER = verdict_schema("winner", {"type": "string", "enum": list(_GIVEN), "description": "the better answer"})
_EQUAL = verdict_schema("equal", {"type": "boolean", "description": "whether they are equal by the rubric"})
_MET = Scale(verdicts={"met": 1.0, "not met": 0.0})
Found = TypeVar("Found", bound=msgspec.Struct)


class Judge:
    """One judge model as an environment uses it.

    Serves concurrent attempts, each with its own `Judgement`.

    `seats` limits concurrent questions. `call_timeout` is the limit in seconds for one question, including the client's
    retries. `sampling` is the model's own; the temperature is 0 unless the judge's settings set it, or the model plays
    a user. `clock` returns seconds. `replies` keeps the replies of reward models.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        name: str,
        rubric: str = "",
        settings: JudgeSettings | None = None,
        sampling: dict[str, Any] | None = None,
        seats: AbstractAsyncContextManager[Any] | None = None,
        call_timeout: float = 120.0,
        clock: Callable[[], float] = working_time,
        replies: ReplyCache | None = None,
    ) -> None:
        self.policy = policy
        self.name = name
        self.rubric = rubric
        self.settings = settings or JudgeSettings()
        self.sampling = {**(sampling or {}), "temperature": 0, **self.settings.sampling}
        self.user_sampling = {**(sampling or {}), **self.settings.sampling}
        self.seats: AbstractAsyncContextManager[Any] = seats or nullcontext()
        self.call_timeout = call_timeout
        self.clock = clock
        self.replies = replies or ReplyCache()

    def open_judgement(self, *, seed: int) -> "Judgement":
        return Judgement(self, seed=seed)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The better of two answers, with the same verdict in both orders."""

    winner: Winner
    explanation: str = ""


class Equality(msgspec.Struct, frozen=True, kw_only=True):
    """Whether two answers are equal by the rubric, with the same verdict in both orders."""

    equal: bool
    explanation: str = ""


class _Preference(msgspec.Struct, frozen=True):
    place: str
    explanation: str


class _PreparedQuestion(msgspec.Struct, frozen=True):
    """A question to a judge, with everything needed to read its answer."""

    name: str
    prompt: list[Item]
    schema: dict[str, Any]
    mark: str


class Judgement:
    """The questions of one attempt to a judge. `calls` has all calls, including failures.

    `at` of a call counts from the last `start_clock`.
    """

    def __init__(self, judge: Judge, *, seed: int) -> None:
        self.settings = judge.settings
        self.calls: list[JudgeCall] = []
        self._judge = judge
        self._seed = seed
        self.start_clock()
        # One question at a time per attempt, so that a model that judges its own attempts is never called beyond its
        # limit.
        self._turn = asyncio.Lock()

    def start_clock(self) -> None:
        self._began = self._judge.clock()

    def rubric(self, own: str = "") -> str:
        """Return the row's own rubric, else the judge's, else the default of its question."""
        return own or self._judge.rubric or DEFAULT_RUBRICS[self.settings.question]

    async def play_user(self, prompt: list[Item], items: list[Item], tools: list[Tool]) -> list[Item]:
        """Return the reply of the model as a user. `prompt` has the newest of the items. Raises JudgeError."""
        sampling = {**self._judge.user_sampling, "seed": self._seed}
        call = JudgeCall(judge=self._judge.name, question="next message", role="user", prompt=prompt, sampling=sampling)
        return (await self._ask(call, items, tools)).items

    async def read_scores(self, endpoint: ScoreEndpoint | None, items: list[Item]) -> JudgeCall:
        """Return the call of an endpoint (None: chat), or one without tokens if the judge keeps the reply to an equal
        request.

        Raises JudgeError.
        """
        judge = self._judge
        sampling = judge.sampling if endpoint is None else {}
        if not isinstance(judge.policy, ScoringPolicy):
            raise JudgeError(f"The judge {judge.name} is scripted and has no scores.").permanent()
        try:
            policy = judge.policy.at(endpoint) if endpoint else judge.policy
            body = policy.make_body(Ask(items=items, sampling=sampling))
        except PolicyError as error:
            raise JudgeError(f"The judge {judge.name} cannot score: {error}").permanent() from error
        call = JudgeCall(judge=judge.name, question="reward", prompt=items, sampling=sampling)
        kept = judge.replies.find(msgspec.json.encode([repr(policy), policy.weights.version, body, endpoint]))
        with stopped_clocks():
            await kept.lock.acquire()
        try:
            if kept.reply is None:
                kept.reply = await self._ask(call, items, policy=policy)
            else:
                call.question, call.at = "reward, cached", judge.clock() - self._began
                self._take(call, kept.reply)
                call.usage = {"input_tokens": 0, "output_tokens": 0}
                self.calls.append(call)
        finally:
            kept.lock.release()
        return call

    async def score(self, *, rubric: str, **sections: str) -> Verdict:
        """Return the judge's verdict on one attempt. Raises JudgeError."""
        return await self._rate("score", self.settings.scale, rubric, sections)

    async def meets(self, assertion: str, **sections: str) -> bool:
        """Return whether an attempt meets an assertion. Raises JudgeError."""
        rubric = f"Does the attempt meet this assertion?\n\n{assertion}"
        return bool((await self._rate("assertion", _MET, rubric, sections)).value)

    async def _rate(self, name: str, scale: Scale, rubric: str, sections: dict[str, str]) -> Verdict:
        prepared = self._compose("score", name, rubric, sections, scale.schema())
        return await self._decide(prepared, scale.read, lambda verdict: verdict.said)

    async def compare(self, *, rubric: str, a: str, b: str, **sections: str) -> Comparison:
        """Return the better of two answers.

        Raises JudgeError, also if the verdict changes when the answers are swapped.
        """
        given, swapped = await self._ask_twice("compare", rubric, _WINNER, _read_preference, a=a, b=b, **sections)
        winner, again = _GIVEN[given.place], _SWAPPED[swapped.place]
        if winner != again:
            raise self._contradiction(_SAID_WINNER[winner], _SAID_WINNER[again])
        return Comparison(winner=winner, explanation=given.explanation)

    async def equal(self, *, rubric: str, a: str, b: str, **sections: str) -> Equality:
        """Return whether two answers are equal by the rubric. Raises JudgeError, also if the two orders disagree."""
        given, swapped = await self._ask_twice("equal", rubric, _EQUAL, _read_equality, a=a, b=b, **sections)
        if given.equal != swapped.equal:
            raise self._contradiction(*("equal" if one.equal else "different" for one in (given, swapped)))
        return given

    async def answer(self, question: Question, transcript: Mapping[int, str]) -> Answer:
        """Return the answer to a question about the events of a transcript. Raises JudgeError."""
        mark = secrets.token_hex(4)
        prompt = question.compose(transcript, mark=mark, limit=self.settings.max_characters)
        prepared = _PreparedQuestion("scan", prompt, question.schema(), mark)
        return await self._decide(prepared, partial(question.read, transcript=transcript), lambda answer: answer.value)

    async def _ask_twice(
        self,
        question: str,
        rubric: str,
        schema: dict[str, Any],
        read: Callable[[dict[str, Any]], Found],
        *,
        a: str,
        b: str,
        **sections: str,
    ) -> tuple[Found, Found]:
        """Return the verdicts on two answers in this order, and swapped."""

        def value_of(verdict: Found) -> object:
            return msgspec.structs.astuple(verdict)[0]

        in_order = self._compose(question, question, rubric, {**sections, "first": a, "second": b}, schema)
        given = await self._decide(in_order, read, value_of)
        in_turn = self._compose(question, f"{question}, swapped", rubric, {**sections, "first": b, "second": a}, schema)
        return given, await self._decide(in_turn, read, value_of)

    def _compose(
        self, question: str, name: str, rubric: str, sections: dict[str, str], schema: dict[str, Any]
    ) -> _PreparedQuestion:
        mark = secrets.token_hex(4)
        limit = self.settings.max_characters
        shown = {section: cut_middle(text, limit) for section, text in sections.items()}
        return _PreparedQuestion(
            name, ask_verdict(question, rubric=rubric, sections=shown, schema=schema, mark=mark), schema, mark
        )

    async def _decide(
        self, prepared: _PreparedQuestion, read: Callable[[dict[str, Any]], Found], value_of: Callable[[Found], object]
    ) -> Found:
        """Repeat the question until the answer is valid, each time with the problem of the last answer."""
        seen: list[Item] = []
        added = prepared.prompt
        for tries in range(1, self.settings.tries + 1):
            seen = [*seen, *added]
            # A new seed: at temperature 0 the same question would have the same answer.
            sampling = self._sampling(prepared.schema, tries)
            call = JudgeCall(
                judge=self._judge.name, question=prepared.name, prompt=added, tries=tries, sampling=sampling
            )
            reply = await self._ask(call, seen)
            try:
                found = read_verdict(assistant_text(reply.items), prepared.mark, read, value_of)
            except VerdictUnreadable as why:
                is_cut = reply.finish_reason == "max_output_tokens"
                call.problem = f"the answer was cut at its token limit, and {why}" if is_cut else str(why)
            else:
                call.verdict = msgspec.to_builtins(found)
                return found
            seen, added = [*seen, *reply.items], [ask_again(call.problem)]
        told = f"The judge {self._judge.name} gave no verdict in {self.settings.tries} tries: {call.problem}"
        raise JudgeError(told).permanent()

    def _sampling(self, schema: dict[str, Any], tries: int) -> dict[str, Any]:
        sampling = {**self._judge.sampling, "seed": self._seed + tries - 1}
        if self.settings.structured_output:
            form = {"type": "json_schema", "name": VERDICT_SCHEMA, "schema": schema, "strict": True}
            sampling["text"] = {"format": form}
        return sampling

    async def _ask(
        self, call: JudgeCall, items: list[Item], tools: Sequence[Tool] = (), *, policy: Policy | None = None
    ) -> Reply:
        """Make one call, and record it whatever its outcome.

        Time spent waiting for a seat or flow control does not count.
        """
        judge = self._judge
        who = f"user model {judge.name}" if call.role == "user" else f"judge {judge.name}"
        async with self._turn, judge.seats:
            self.calls.append(call)
            began = judge.clock()
            call.at = began - self._began
            ask = Ask(items=items, tools=list(tools), sampling=call.sampling)
            try:
                with TimeLimit(judge.call_timeout):
                    reply = await (policy or judge.policy).ask(ask)
            except TimeoutError:
                call.problem = f"no answer within {judge.call_timeout:g} s"
                raise JudgeError(f"The {who} gave {call.problem}.") from None
            except GymError as error:
                call.problem = str(error)
                raise JudgeError(f"The {who} failed: {error}").caused_by(error) from error
            except asyncio.CancelledError:
                call.problem = "the attempt ended before an answer"
                raise
            finally:
                call.duration, call.retries = judge.clock() - began, ask.retries
        self._take(call, reply)
        if reply.finish_reason in ("context_length", "content_filter"):
            call.problem = f"it was stopped by {reply.finish_reason}"
            raise JudgeError(f"The {who} gave no answer: {call.problem}.").permanent()
        refusal = _find_refusal(reply.items)
        if refusal:
            call.problem = f"it refused: {refusal}"
            raise JudgeError(f"The {who} gave no answer: {call.problem}").permanent()
        return reply

    def _take(self, call: JudgeCall, reply: Reply) -> None:
        call.sampling = call.sampling if reply.sampling is None else reply.sampling
        call.items, call.model, call.version = reply.items, reply.model, reply.version
        call.usage, call.finish_reason = reply.usage, reply.finish_reason

    def _contradiction(self, given: str, swapped: str) -> JudgeError:
        self.calls[-1].problem = f"{CONTRADICTION}: {given} in one order, {swapped} in the other"
        return JudgeError(f"The judge {self._judge.name} {self.calls[-1].problem}").permanent()


def _read_preference(answer: dict[str, Any]) -> _Preference:
    return _Preference(read_choice(find_answer(answer, "winner"), list(_GIVEN)), read_explanation(answer))


def _read_equality(answer: dict[str, Any]) -> Equality:
    equal = find_answer(answer, "equal")
    if not isinstance(equal, bool):
        raise VerdictUnreadable("`equal` must be true or false")
    return Equality(equal=equal, explanation=read_explanation(answer))


def _find_refusal(items: list[Item]) -> str:
    """Return the refusal that a provider marked. Its text is never read as a verdict."""
    parts = (part for item in items if isinstance(item.get("content"), list) for part in item["content"])
    return next((str(part["refusal"]) for part in parts if isinstance(part, dict) and part.get("refusal")), "")
