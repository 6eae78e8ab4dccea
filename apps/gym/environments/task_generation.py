"""Kit of an environment: tasks by seed, a player that solves them, and verifier cases.

A `Kit` holds the three, and `kits.KITS` holds all kits. tests/gym/builtin checks every kit.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import msgspec

from apps.gym.traces.items import Item, TaskRow, Tool, dump_json, is_by_model, text_of

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
LEVELS: dict[Difficulty, int] = {"easy": 1, "medium": 2, "hard": 3}
CaseKind = Literal["full reward", "zero reward", "malformed", "determinism"]
CASE_KINDS: tuple[CaseKind, ...] = get_args(CaseKind)

VALIDATION_EVERY = 5
"""Every fifth task is in the split `validation`, the others are in `train`."""
MAX_STEPS = 30
_MOST_TRIES = 200


class Call(msgspec.Struct, frozen=True):
    """A tool call of a player. `arguments` given as text are sent unchanged, and may be invalid JSON."""

    name: str
    arguments: dict[str, Any] | str = {}


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One reply: a text, tool calls, or both."""

    text: str = ""
    calls: list[Call] = []


class Seen(msgspec.Struct, kw_only=True):
    """The information a player gets on its turn.

    `turn` counts its earlier replies, from 0. `items` is the whole conversation, starting with the prompt. Only a
    player that solves tasks may read `row`, which contains the answers.
    """

    row: TaskRow
    items: list[Item]
    tools: list[Tool]
    turn: int
    dice: random.Random

    @property
    def prompt(self) -> str:
        """Return the text of the last user message before the first reply."""
        first = next((at for at, item in enumerate(self.items) if is_by_model(item)), len(self.items))
        return next((text_of(item) for item in reversed(self.items[:first]) if item.get("role") == "user"), "")

    @property
    def outputs(self) -> list[str]:
        """Return the tool outputs so far, in order."""
        return [str(item.get("output", "")) for item in self.items if item.get("type") == "function_call_output"]

    @property
    def observation(self) -> str:
        """Return the newest user message: the prompt, or the environment's last message."""
        return next((text_of(item) for item in reversed(self.items) if item.get("role") == "user"), "")


Player = Callable[[Seen], Move]
"""Plays the policy model's part."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with a known reward.

    If `reward` is None, only its determinism is checked.

    A malformed case is an answer or call with an invalid form. It gets a reward and is not a failure.
    """

    name: str
    kind: CaseKind
    row: TaskRow
    play: Player
    reward: float | None = None
    seed: int = 0


class Kit(msgspec.Struct, frozen=True, kw_only=True):
    """`make_task` returns a row without a split: `responses_create_params` and the verifier fields.

    All randomness comes from the given generator. `solve` always gets full reward. `cases` are added to the cases that
    every kit has.

    `max_steps` is the number of replies that the longest task may need. Tasks with the same prompt are the same task
    unless a field named in `told_apart_by` differs, for example a game's hidden state. If prompts can be worded
    differently, tasks with the same `essence` are the same task too, so that none is in both splits. `guess` knows only
    the form of an answer, for tasks that random play would never solve.
    """

    make_task: Callable[[random.Random, Difficulty], TaskRow]
    solve: Player
    cases: Callable[[], list[Case]] = list
    guess: Player | None = None
    max_steps: int = MAX_STEPS
    told_apart_by: tuple[str, ...] = ()
    essence: Callable[[TaskRow], Any] | None = None


class TooFewTasks(ValueError):
    """Raised when there are too few different tasks of a difficulty."""


def generate_tasks(
    kit: Kit, *, count: int, seed: int = 0, difficulty: Difficulty | Literal["mixed"] = "mixed"
) -> Iterator[TaskRow]:
    """Yield `count` different tasks, each with its `difficulty` and `split`.

    The same seed yields the same tasks, and a smaller count yields the first of them. Mixed tasks take the difficulties
    in turn. Raises TooFewTasks.
    """
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
    """Return the `responses_create_params` of a single question."""
    return {"input": [{"role": "user", "content": text}]}


def say(*moves: Move | str) -> Player:
    """Return a player with fixed replies that repeats the last one. A text is a reply without calls."""
    replies = [Move(text=move) if isinstance(move, str) else move for move in moves]
    return lambda seen: replies[min(seen.turn, len(replies) - 1)]
