"""Score the gold answer of a task: the attempt that the row itself says is right. A wrong mapping shows as less reward.

The attempt replies as a good model would: with the final answer alone, where the gold answer also has its derivation
(`… #### 42`, `… \\boxed{42}`, `<think>…</think> 42`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec

from apps.gym.environments.task_generation import Call, Kit, Move, Player, Seen
from apps.gym.errors import GymError, VerifierError
from apps.gym.loop.trials.players import play_attempt, played_call, reward_of
from apps.gym.resources.own_verifier import ROW_FIELD
from apps.gym.resources.protocol import ResourceServer
from apps.gym.rewards import Reward
from apps.gym.tasks.expected_answers import ANSWER_FIELDS
from apps.gym.tasks.final_answers import find_final_answer
from apps.gym.traces.events import Verification
from apps.gym.traces.items import Item, TaskRow, dump_json, input_items, message, text_of
from apps.gym.verifiers.answer_extraction import excerpt, extraction_mode
from apps.gym.verifiers.final_state import FinalState
from apps.gym.verifiers.hybrid import Hybrid
from apps.gym.verifiers.math.math_verifier import TEXT
from apps.gym.verifiers.near_misses import NearMiss, make_near_misses
from apps.gym.verifiers.protocol import AnswerVerifier, Verifier
from apps.gym.verifiers.registry import read_verifier
from apps.gym.verifiers.text.exact_match import TextVerifier
from apps.gym.verifiers.text.multiple_choice import MultipleChoice
from apps.gym.verifiers.text.patterns import Contains
from apps.gym.verifiers.tools.expected_calls import calls_expected
from apps.gym.verifiers.tools.tool_calls import CallArgument, ToolCalls
from apps.gym.verifiers.verification import verify_attempt

FULL = 1.0
_TOLERANCE = 1e-9
ACCEPTED = 0.9
"""A copy with at least this reward is accepted: `string_match` gives 0.98 to 1968 in place of 1969."""
_MOST_COPIED = 200
_WHOSE = "gold answers"
SECONDS = 30.0
"""Time limit of one attempt."""


class GoldScore(NamedTuple):
    """The result of one task: `unknown` if the row does not tell what a right attempt is, with the reason."""

    outcome: Literal["full", "less", "unknown"]
    reward: float | None = None
    message: str = ""
    copy: NearMiss | None = None
    """A changed copy of the expected answer that is accepted, too."""
    text: str = ""
    """The expected answer, if it should be mathematics and is none."""


_NO_GOLD = GoldScore("unknown", message="The row does not tell what a right attempt is.")


async def score_by_verifier(verifier: Verifier | None, row: TaskRow) -> GoldScore:
    """Score the gold answer with the row's own verifier, else with the given one. Judges and patterns are left out."""
    try:
        chosen = read_verifier(row[ROW_FIELD]) if row.get(ROW_FIELD) is not None else verifier
        attempts = list(_gold_attempts(chosen, row)) if chosen else []
        rewards = [
            await verify_attempt(one, row, {"output": items}, most_seconds=SECONDS, whose=_WHOSE)
            for one, items in attempts
        ]
        if equals_prompt(row):
            return GoldScore("less", 0.0, "The expected answer is the prompt.")
        score = _worst(rewards) if rewards else _NO_GOLD
        return await _try_copies(score, row, [one for one, _ in attempts]) if score.outcome == "full" else score
    except GymError as problem:
        return _failed(problem)


async def _try_copies(score: GoldScore, row: TaskRow, verifiers: Sequence[Verifier]) -> GoldScore:
    """Score the first and the last changed copy of the expected answer of each kind."""
    for verifier, copy in _copies(verifiers, with_final_answers(row)):
        output = list(_items(_reply(verifier, row, copy.answer, boxed=True)))
        with suppress(GymError):
            reward = await verify_attempt(verifier, row, {"output": output}, most_seconds=SECONDS, whose=_WHOSE)
            if reward.details.get(TEXT):
                score = score._replace(text=verifier.find_expected(with_final_answers(row)))
            if (reward.value or 0.0) >= ACCEPTED:
                return score._replace(copy=copy)
    return score


def _copies(verifiers: Sequence[Verifier], row: TaskRow) -> Iterator[tuple[AnswerVerifier, NearMiss]]:
    """Yield verifiers of answers with the first and the last changed copy of each kind.

    The last digit has nine copies: the first of these is the nearest number.
    """
    for verifier in verifiers:
        if not isinstance(verifier, AnswerVerifier) or verifier.extract == "pattern":
            continue
        if len(expected := verifier.find_expected(row)) > _MOST_COPIED:
            continue
        ignores_case = isinstance(verifier, TextVerifier) and not verifier.is_strict(row)
        by_kind: dict[str, list[NearMiss]] = defaultdict(list)
        for near in make_near_misses(expected):
            by_kind[near.kind].append(near)
        for kind, copies in by_kind.items():
            if kind != "case" or not ignores_case:
                last = copies[-9] if kind in ("digit", "exponent") and len(copies) > 9 else copies[-1]
                yield from ((verifier, copy) for copy in {copies[0]: 0, last: 0})


async def score_by_environment(server: ResourceServer, kit: Kit, row: TaskRow) -> GoldScore:
    """Score the attempt of the environment's solver. If the row lacks what it needs, reply with the expected answer."""
    try:
        async with asyncio.timeout(SECONDS):
            events = await play_attempt(server, row, _player(kit, row), max_steps=kit.max_steps)
    except TimeoutError:
        return GoldScore("unknown", message=f"The attempt took longer than {SECONDS:g} seconds.")
    except GymError as problem:
        return _failed(problem)
    except _NoGold:
        return _NO_GOLD
    reward = reward_of(events)
    told = next((event.explanation for event in events if isinstance(event, Verification)), "")
    return _score(reward, told) if reward is not None else _NO_GOLD


class _NoGold(Exception):
    """Raised by a player that does not know the answer."""


def _player(kit: Kit, row: TaskRow) -> Player:
    shown = with_final_answers(row)

    def play(seen: Seen) -> Move:
        try:
            return kit.solve(msgspec.structs.replace(seen, row=shown))
        except Exception:
            # Solvers are written for rows of their own kit, so any error means that this row is another kind.
            gold = shown.get("expected_answer")
            if isinstance(gold, bool) or not isinstance(gold, str | int | float):
                raise _NoGold from None
            return Move(text=str(gold))

    return play


def _gold_attempts(verifier: Verifier, row: TaskRow) -> Iterator[tuple[Verifier, list[Item]]]:
    """Yield each verifier, or part of a hybrid, with the items of a right attempt. Raises VerifierError."""
    if isinstance(verifier, Hybrid):
        for part in verifier.parts.values():
            yield from _gold_attempts(part, row)
    elif (move := gold_move(verifier, with_final_answers(row))) is not None:
        yield verifier, list(_items(move))


def gold_move(verifier: Verifier, row: TaskRow) -> Move | None:  # noqa: PLR0911
    """Return the reply that the row says is right, or None if the verifier cannot tell. Raises VerifierError."""
    match verifier:
        case AnswerVerifier():
            return _answer(verifier, row)
        case MultipleChoice() if not verifier.pattern and not row.get("template_metadata"):
            letter = str(row.get(verifier.expected_field, "")).strip()
            return Move(text=f"\\boxed{{{letter}}}\nAnswer: {letter}")
        case Contains() if not verifier.wanted and row.get(verifier.wanted_field):
            given = row[verifier.wanted_field]
            return Move(text="\n".join(map(str, given)) if isinstance(given, list) else str(given))
        case ToolCalls():
            calls = calls_expected(row, verifier.expected_field)
            return Move(calls=[Call(call.name, call.arguments or {}) for call in calls])
        case CallArgument() if verifier.expected_field in row:
            return Move(calls=[Call(verifier.tool, {verifier.argument: row[verifier.expected_field]})])
        case FinalState() if not verifier.tool and verifier.expected_field in row:
            return Move(text=dump_json(row[verifier.expected_field]))
    return None


def _answer(verifier: AnswerVerifier, row: TaskRow) -> Move | None:
    if verifier.extract == "pattern":
        return None
    return _reply(verifier, row, verifier.find_expected(row))


def _reply(verifier: AnswerVerifier, row: TaskRow, answer: str, *, boxed: bool = False) -> Move:
    """Return a reply with the answer where the verifier searches for it. `boxed` puts it in a box if any place does."""
    match verifier.extract or extraction_mode(row) or ("boxed" if boxed else None):
        case "boxed":
            return Move(text=f"\\boxed{{{answer}}}")
        case "final_answer":
            return Move(text=f"Final answer: {answer}")
        case None if verifier.__struct_config__.tag == "string_match":
            return Move(text=f"Answer: {answer}")
    return Move(text=answer)


def with_final_answers(row: TaskRow) -> TaskRow:
    """Return the row with only the final answer in each text that holds more."""
    final = {name: find_final_answer(row[name]) for name in ANSWER_FIELDS if isinstance(row.get(name), str)}
    return {**row, **{name: answer for name, answer in final.items() if answer}}


def equals_prompt(row: TaskRow) -> bool:
    """Return True if the expected answer is the text of the last message of the prompt: a mistaken column."""
    asked = text_of(items[-1]).strip() if (items := input_items(row)) else ""
    return bool(asked) and asked == row.get("expected_answer")


def _items(move: Move) -> Iterator[Item]:
    if move.text or not move.calls:
        yield message("assistant", move.text)
    for number, call in enumerate(move.calls):
        call_id = f"call_{number}"
        yield played_call(call, call_id)
        yield {"type": "function_call_output", "call_id": call_id, "output": "{}"}


def _worst(rewards: list[Reward]) -> GoldScore:
    # A reward of a configured verifier always has a value.
    value, told = min((reward.value or 0.0, reward.explanation) for reward in rewards)
    return _score(value, told)


def _score(reward: float, told: str) -> GoldScore:
    if reward >= FULL - _TOLERANCE:
        return GoldScore("full", reward)
    return GoldScore("less", reward, excerpt(told))


def _failed(problem: GymError) -> GoldScore:
    """Return "less" if the verifier refuses the row; other failures say nothing about it."""
    return GoldScore("less" if isinstance(problem, VerifierError) else "unknown", message=excerpt(str(problem)))
