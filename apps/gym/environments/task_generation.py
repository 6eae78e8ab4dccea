"""The test kit of a built-in environment: a task generator, a player that solves the tasks, and verifier cases.

`kits.KITS` lists the kits of all environments. tests/gym/builtin checks each of them.
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
_MAX_TRIES = 200


class Call(msgspec.Struct, frozen=True):
    """A tool call of a player. Text `arguments` are sent unchanged, even if they are not valid JSON."""

    name: str
    arguments: dict[str, Any] | str = {}


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One reply: a text, tool calls, or both."""

    text: str = ""
    calls: list[Call] = []


class Seen(msgspec.Struct, kw_only=True):
    """What a player sees on its turn.

    `turn` is the number of its earlier replies. `items` is the whole conversation, starting with the prompt. `dice` is
    its source of randomness. Only players that solve tasks may read `row`, which contains the answers.
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
"""Return the next reply, in place of the policy model."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with a known reward. If `reward` is None, tests only check that the reward is deterministic.

    A case of kind "malformed" has an answer or call of invalid form. The verifier must still return a reward.
    """

    name: str
    kind: CaseKind
    row: TaskRow
    play: Player
    reward: float | None = None
    seed: int = 0


class Kit(msgspec.Struct, frozen=True, kw_only=True):
    """The task generator, players and verifier cases of one environment.

    `make_task` returns a row without a split: `responses_create_params` and the verifier fields. All its randomness
    comes from the given generator. `solve` always gets full reward. `guess` knows only the form of an answer, for tasks
    that random play would never solve. `cases` are added to the cases that every kit has.

    `max_steps` is the number of replies that the longest task may need.

    Two tasks are duplicates if they have the same prompt and the same values of `identity_fields`, for example the
    hidden state of a game. `identity` replaces the prompt where one task can be worded in several ways. Duplicates
    would put the same task into both splits.
    """

    make_task: Callable[[random.Random, Difficulty], TaskRow]
    solve: Player
    cases: Callable[[], list[Case]] = list
    guess: Player | None = None
    max_steps: int = MAX_STEPS
    identity_fields: tuple[str, ...] = ()
    identity: Callable[[TaskRow], Any] | None = None


class TooFewTasks(ValueError):
    """Raised when there are too few different tasks of a difficulty."""


def generate_tasks(
    kit: Kit, *, count: int, seed: int = 0, difficulty: Difficulty | Literal["mixed"] = "mixed"
) -> Iterator[TaskRow]:
    """Yield `count` different tasks, each with its `difficulty` and `split`.

    The same seed yields the same tasks; a smaller count yields the first of them. "mixed" cycles through the
    difficulties. Raises TooFewTasks.
    """
    known: set[str] = set()
    for number in range(count):
        level = DIFFICULTIES[number % len(DIFFICULTIES)] if difficulty == "mixed" else difficulty
        yield {
            **_new_task(kit, known, f"{seed}/{difficulty}/{number}", level),
            "difficulty": level,
            "split": "validation" if number % VALIDATION_EVERY == VALIDATION_EVERY - 1 else "train",
        }


def _new_task(kit: Kit, known: set[str], place: str, level: Difficulty) -> TaskRow:
    for attempt in range(_MAX_TRIES):
        row = kit.make_task(random.Random(f"{place}/{attempt}"), level)
        identity = kit.identity(row) if kit.identity else row["responses_create_params"]
        mark = dump_json([identity, *(row.get(field) for field in kit.identity_fields)])
        if mark not in known:
            known.add(mark)
            return row
    raise TooFewTasks(
        f"no new prompt for another task of difficulty {level} (tasks so far: {len(known):,}); generate fewer"
    )


def ask(text: str) -> dict[str, Any]:
    """Return the `responses_create_params` of a single question."""
    return {"input": [{"role": "user", "content": text}]}


def say(*moves: Move | str) -> Player:
    """Return a player that gives these replies in order, then repeats the last one."""
    replies = [Move(text=move) if isinstance(move, str) else move for move in moves]
    return lambda seen: replies[min(seen.turn, len(replies) - 1)]
