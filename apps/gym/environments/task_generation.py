"""What comes with an environment: tasks by seed, a player who solves them, and cases of what its verifier gives.

A `Kit` holds the three, and `kits.KITS` the kits. The tests hold every kit to the same: see tests/gym/builtin.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import msgspec

from apps.gym.traces.items import Item, TaskRow, Tool, dump_json, item_type, text_of

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
CaseKind = Literal["full reward", "zero reward", "malformed", "determinism"]
CASE_KINDS: tuple[CaseKind, ...] = get_args(CaseKind)

VALIDATION_EVERY = 5
"""Each task of this number is one of the split `validation`, the others are of `train`."""
MAX_STEPS = 30
_MOST_TRIES = 200


class Call(msgspec.Struct, frozen=True):
    """A tool call of a player. `arguments` as text are sent as they stand, which may be no JSON at all."""

    name: str
    arguments: dict[str, Any] | str = {}


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One reply: a text, or tool calls, or both."""

    text: str = ""
    calls: list[Call] = []


class Seen(msgspec.Struct, kw_only=True):
    """What a player sees when it is its turn; `turn` counts its replies before, from 0. `items` is the whole
    conversation, the prompt first. Only a player who solves tasks looks into `row`, where the answers are."""

    row: TaskRow
    items: list[Item]
    tools: list[Tool]
    turn: int
    dice: random.Random

    @property
    def prompt(self) -> str:
        """The text of the task's last user message before the first reply."""
        first = next((at for at, item in enumerate(self.items) if _is_own(item)), len(self.items))
        return next((text_of(item) for item in reversed(self.items[:first]) if item.get("role") == "user"), "")

    @property
    def outputs(self) -> list[str]:
        """What the tools have answered so far, in order."""
        return [str(item.get("output", "")) for item in self.items if item.get("type") == "function_call_output"]

    @property
    def observation(self) -> str:
        """The newest user message: the prompt, or what the environment said last."""
        return next((text_of(item) for item in reversed(self.items) if item.get("role") == "user"), "")


Player = Callable[[Seen], Move]
"""Plays the policy model's part."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt whose reward is known. `reward` is None where only that it is always the same matters.

    A malformed case is an answer or a call that breaks the form; it has a reward too, and is no failure.
    """

    name: str
    kind: CaseKind
    row: TaskRow
    play: Player
    reward: float | None = None
    seed: int = 0


class Kit(msgspec.Struct, frozen=True, kw_only=True):
    """`make_task` gives a row without split: `responses_create_params` and the verifier's fields. All chance in it
    comes from the dice. `solve` always gets the full reward. `cases` are more than those that every kit has by itself.

    `max_steps` is how many replies the longest of its tasks may take. Tasks with the same prompt are the same task,
    unless one of the row's fields that `told_apart_by` names differs: what a game hides, for one. Where prompts say one
    thing in several ways, tasks for which `essence` gives the same are the same too, so that none is of both splits.
    `guess` knows the form of an answer and nothing else, where random play would never come upon it.
    """

    make_task: Callable[[random.Random, Difficulty], TaskRow]
    solve: Player
    cases: Callable[[], list[Case]] = list
    guess: Player | None = None
    max_steps: int = MAX_STEPS
    told_apart_by: tuple[str, ...] = ()
    essence: Callable[[TaskRow], Any] | None = None


class TooFewTasks(ValueError):
    """There are not so many different tasks of that difficulty."""


def generate_tasks(
    kit: Kit, *, count: int, seed: int = 0, difficulty: Difficulty | Literal["mixed"] = "mixed"
) -> Iterator[TaskRow]:
    """So many different tasks, each with its `difficulty` and `split`; the same for the same seed, and
    the first hundred of a thousand are the hundred. Mixed tasks take the difficulties in turn. Raises TooFewTasks."""
    known: set[str] = set()
    for number in range(count):
        level = DIFFICULTIES[number % len(DIFFICULTIES)] if difficulty == "mixed" else difficulty
        yield {
            **_another(kit, known, f"{seed}/{difficulty}/{number}", level),
            "difficulty": level,
            "split": "validation" if number % VALIDATION_EVERY == VALIDATION_EVERY - 1 else "train",
        }


def _another(kit: Kit, known: set[str], place: str, level: Difficulty) -> TaskRow:
    for attempt in range(_MOST_TRIES):
        row = kit.make_task(random.Random(f"{place}/{attempt}"), level)
        essence = kit.essence(row) if kit.essence else row["responses_create_params"]
        mark = dump_json([essence, *(row.get(field) for field in kit.told_apart_by)])
        if mark not in known:
            known.add(mark)
            return row
    raise TooFewTasks(f"there are only about {len(known):,} different tasks of the difficulty {level}")


def ask(text: str) -> dict[str, Any]:
    """`responses_create_params` of a task that is one question."""
    return {"input": [{"role": "user", "content": text}]}


def say(*moves: Move | str) -> Player:
    """A player with a fixed part, who repeats the last reply where more are asked for; a text is a reply alone."""
    replies = [Move(text=move) if isinstance(move, str) else move for move in moves]
    return lambda seen: replies[min(seen.turn, len(replies) - 1)]


def _is_own(item: Item) -> bool:
    return item_type(item) in {"function_call", "reasoning"} or item.get("role") == "assistant"
