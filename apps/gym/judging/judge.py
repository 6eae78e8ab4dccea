"""A judge: a policy model that is asked for verdicts, a bounded number of times, and never answered for."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, TypeVar

import msgspec

from apps.gym.errors import GymError, JudgeError
from apps.gym.events import JudgeCall
from apps.gym.items import Item, assistant_text
from apps.gym.judging.prompts import ask_again, ask_comparison, ask_score, shorten
from apps.gym.judging.reading import read_verdict
from apps.gym.judging.scale import Verdict, VerdictUnreadable, read_choice, read_explanation, verdict_schema
from apps.gym.judging.settings import JudgeSettings
from apps.gym.policy.protocol import VERDICT_SCHEMA, Ask, Policy, Reply

DEFAULT_RUBRIC = "Is the answer correct, complete and to the point?"

Winner = Literal["a", "b", "tie"]
_GIVEN: dict[str, Winner] = {"first": "a", "second": "b", "tie": "tie"}
_SWAPPED: dict[str, Winner] = {"first": "b", "second": "a", "tie": "tie"}
_PLACES = list(_GIVEN)
Found = TypeVar("Found", bound=msgspec.Struct)


class Judge:
    """One judge model as an environment uses it. Serves any number of attempts at once, each in a hearing of its own.

    `seats` bounds how many questions it is asked at once, `call_timeout` is seconds for one of them, retries of the
    client included. `sampling` is the model's own; a judge's temperature is 0 unless its settings say otherwise.
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
    ) -> None:
        self.policy = policy
        self.name = name
        self.rubric = rubric or DEFAULT_RUBRIC
        self.settings = settings or JudgeSettings()
        self.sampling = {**(sampling or {}), "temperature": 0, **self.settings.sampling}
        self.seats: AbstractAsyncContextManager[Any] = seats or nullcontext()
        self.call_timeout = call_timeout

    def hear(self, *, seed: int, session: str = "") -> "Hearing":
        return Hearing(self, seed=seed, session=session)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Which of two attempts is better, asked in both orders. `consistent` is False where the orders disagree: a tie."""

    winner: Winner
    consistent: bool
    explanation: str = ""


class Hearing:
    """What one attempt asks of a judge. `calls` is everything that was asked and answered, failures included."""

    def __init__(self, judge: Judge, *, seed: int, session: str = "") -> None:
        self.settings = judge.settings
        self.calls: list[JudgeCall] = []
        self._judge = judge
        self._seed = seed
        self._session = session
        self._began = time.perf_counter()

    async def score(self, *, task: str, attempt: str, reference: str = "", rubric: str = "") -> Verdict:
        """The judge's verdict on one attempt, by `rubric` or else the judge's own. Raises JudgeError."""
        scale, limit = self.settings.scale, self.settings.max_characters
        prompt = ask_score(
            task=shorten(task, limit),
            attempt=shorten(attempt, limit),
            reference=shorten(reference, limit),
            rubric=rubric or self._judge.rubric,
            schema=scale.schema(),
            mark=_draw_mark(),
        )
        return await self._decide("score", prompt, scale.schema(), scale.read, lambda verdict: verdict.said)

    async def compare(self, *, task: str, a: str, b: str, reference: str = "", rubric: str = "") -> Comparison:
        """Which of two is better. A judge that prefers a place to an answer contradicts itself when they are swapped,
        and that is a tie. Raises JudgeError."""
        given, swapped = await _both(
            self._prefer("compare", task=task, first=a, second=b, reference=reference, rubric=rubric),
            self._prefer("compare, swapped", task=task, first=b, second=a, reference=reference, rubric=rubric),
        )
        found, again = _GIVEN[given.place], _SWAPPED[swapped.place]
        if found == again:
            return Comparison(winner=found, consistent=True, explanation=given.explanation)
        told = (
            f"inconsistent: {_say(found)} in the given order, {_say(again)} when swapped\n\n"
            f"given: {given.explanation}\n\nswapped: {swapped.explanation}"
        )
        return Comparison(winner="tie", consistent=False, explanation=told)

    async def _prefer(
        self, question: str, *, task: str, first: str, second: str, reference: str, rubric: str
    ) -> "_Preference":
        limit = self.settings.max_characters
        schema = verdict_schema("winner", {"type": "string", "enum": _PLACES, "description": "the better attempt"})
        prompt = ask_comparison(
            task=shorten(task, limit),
            first=shorten(first, limit),
            second=shorten(second, limit),
            reference=shorten(reference, limit),
            rubric=rubric or self._judge.rubric,
            schema=schema,
            mark=_draw_mark(),
        )
        return await self._decide(question, prompt, schema, _read_preference, lambda preference: preference.place)

    async def _decide(
        self,
        question: str,
        prompt: list[Item],
        schema: dict[str, Any],
        read: Callable[[dict[str, Any]], Found],
        said: Callable[[Found], object],
    ) -> Found:
        """Ask until an answer can be read, telling the judge what was wrong with the last one."""
        seen: list[Item] = []
        added = prompt
        for tries in range(1, self.settings.tries + 1):
            seen = [*seen, *added]
            # Another seed: at temperature 0 the same question has the same answer.
            sampling = self._sampling(schema, tries)
            call = JudgeCall(judge=self._judge.name, question=question, prompt=added, tries=tries, sampling=sampling)
            reply = await self._ask(call, seen)
            try:
                found = read_verdict(assistant_text(reply.items), read, said)
            except VerdictUnreadable as why:
                call.problem = str(why)
            else:
                call.verdict = msgspec.to_builtins(found)
                return found
            seen, added = [*seen, *reply.items], [ask_again(call.problem)]
        told = f"The judge {self._judge.name} gave no verdict in {self.settings.tries} tries: {call.problem}"
        raise JudgeError(told).lasting()

    def _sampling(self, schema: dict[str, Any], tries: int) -> dict[str, Any]:
        sampling = {"seed": self._seed + tries - 1, **self._judge.sampling}
        if self.settings.structured_output:
            form = {"type": "json_schema", "name": VERDICT_SCHEMA, "schema": schema, "strict": True}
            sampling["text"] = {"format": form}
        return sampling

    async def _ask(self, call: JudgeCall, items: list[Item]) -> Reply:
        """One call, which is kept whatever comes of it. Waiting for a seat does not count as the judge's time."""
        judge = self._judge
        async with judge.seats:
            self.calls.append(call)
            began = time.perf_counter()
            call.at = began - self._began
            deadline = asyncio.get_running_loop().time() + judge.call_timeout
            try:
                async with asyncio.timeout(judge.call_timeout):
                    reply = await judge.policy.ask(
                        Ask(items=items, sampling=call.sampling, session=self._session, deadline=deadline)
                    )
            except TimeoutError:
                call.problem = f"no answer within {judge.call_timeout:g} s"
                raise JudgeError(f"The judge {judge.name} gave {call.problem}.").lasting() from None
            except GymError as error:
                call.problem = str(error)
                failure = JudgeError(f"The judge {judge.name} failed: {error}")
                failure.passing = error.passing
                raise failure from error
            finally:
                call.duration = time.perf_counter() - began
        call.items, call.model, call.version = reply.items, reply.model, reply.version
        call.usage, call.retries, call.finish_reason = reply.usage, reply.retries, reply.finish_reason
        if reply.finish_reason in ("context_length", "content_filter"):
            call.problem = f"it was stopped by {reply.finish_reason}"
            raise JudgeError(f"The judge {judge.name} gave no verdict: {call.problem}.").lasting()
        return reply


class _Preference(msgspec.Struct, frozen=True):
    place: str
    explanation: str


def _read_preference(answer: dict[str, Any]) -> _Preference:
    if "winner" not in answer:
        raise VerdictUnreadable("the object has no `winner`")
    return _Preference(read_choice(answer["winner"], _PLACES), read_explanation(answer))


async def _both(given: Awaitable[Found], swapped: Awaitable[Found]) -> tuple[Found, Found]:
    """Both answers, asked at once. Where one fails the other is awaited all the same: its tokens are spent."""
    found, again = await asyncio.gather(given, swapped, return_exceptions=True)
    if isinstance(found, BaseException):
        raise found
    if isinstance(again, BaseException):
        raise again
    return found, again


def _say(winner: Winner) -> str:
    return "a tie" if winner == "tie" else f"{winner} is better"


def _draw_mark() -> str:
    return secrets.token_hex(8)
