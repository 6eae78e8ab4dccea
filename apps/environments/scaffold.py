"""Create the files of a custom environment, in its own folder outside this project."""

import keyword
import re
import sys
from pathlib import Path
from textwrap import dedent

from django.conf import settings

from apps.gym.written.registry import list_names

_NAME = re.compile(r"[a-z][a-z0-9_]{1,40}")


class CannotScaffold(ValueError):
    """Raised with the reason in one sentence."""


def scaffold_environment(*, name: str, into: Path) -> list[Path]:
    """Create the folder `into/name`, and return the files. Raise CannotScaffold."""
    project = Path(settings.BASE_DIR).resolve()
    folder = into.expanduser().resolve() / name
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in sys.stdlib_module_names:
        raise CannotScaffold(f"{name}: use lower-case letters, digits and _, and no Python keyword or standard module")
    if name in list_names():
        raise CannotScaffold(f"the environment {name} already exists")
    if folder.is_relative_to(project):
        raise CannotScaffold(f"{folder} is inside this project. Choose a folder outside with --into")
    if folder.exists() and any(folder.iterdir()):
        raise CannotScaffold(f"{folder} already exists")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    files = {
        f"{name}.py": _ENVIRONMENT,
        f"test_{name}.py": _TEST,
        "pyproject.toml": _PROJECT,
        "README.md": _README,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            written = text.replace("CLASS", class_name).replace("NAME", name).replace("PROJECT", str(project))
            (folder / file).write_text(written.replace("FOLDER", str(folder)), encoding="utf-8")
    except OSError as error:
        raise CannotScaffold(f"{folder} cannot be written: {error.strerror}") from None
    return [folder / file for file in files]


_ENVIRONMENT = dedent(
    '''\
    """NAME: describe the task in one line."""

    from random import Random

    from apps.gym.written import Attempted, Call, Difficulty, Environment, Move, Seen, TaskRow, ask, tool


    class CLASS(Environment):
        """One tool, letter_count{word, letter}. The answer must be how often a letter occurs in a word."""

        name = "NAME"
        needs = frozenset({"word", "letter"})
        verify_needs_state = False

        async def seed(self, row: TaskRow, seed: int) -> None:
            self.looked_up = 0

        @tool
        async def letter_count(self, word: str, letter: str) -> int:
            """Count how often a letter occurs in a word.

            word: the word to look into
            letter: one letter
            """
            self.looked_up += 1
            return word.count(letter)

        async def verify(self, attempt: Attempted) -> float:
            return float(attempt.answer == str(self.row["word"].count(self.row["letter"])))

        @staticmethod
        def make_task(dice: Random, difficulty: Difficulty) -> TaskRow:
            word = "".join(dice.choices("abcde", k={"easy": 12, "medium": 24, "hard": 48}[difficulty]))
            letter = dice.choice(word)
            text = f'How often does the letter "{letter}" occur in {word}? Box the number.'
            return {"responses_create_params": ask(text), "word": word, "letter": letter}

        @staticmethod
        def solve(seen: Seen) -> Move:
            if not seen.outputs:
                return Move(calls=[Call("letter_count", {"word": seen.row["word"], "letter": seen.row["letter"]})])
            return Move(text=f"\\\\boxed{{{seen.outputs[-1]}}}")
    '''
)
_TEST = dedent(
    '''\
    """The environment's cases, and common checks. Run: PROJECT/.venv/bin/python -m pytest FOLDER"""

    import asyncio

    import pytest

    from apps.gym.environments.task_generation import generate_tasks
    from apps.gym.resources.written_environments import WrittenServer
    from apps.gym.loop.trials.case_runs import check_cases
    from apps.gym.loop.trials.players import KNOW_NOTHING, play_attempt, reward_of

    from NAME import CLASS

    SERVER = WrittenServer(CLASS, name=CLASS.name)
    KIT = CLASS.kit()
    pytestmark = pytest.mark.skipif(KIT is None, reason="make_task and solve are needed to play")


    def test_every_case_has_its_expected_reward():
        results = asyncio.run(check_cases(SERVER, KIT))
        assert [(result.case.name, result.problem) for result in results if result.problem] == []


    def test_solving_gets_the_full_reward_and_knowing_nothing_gets_none():
        async def play(player):
            rows = list(generate_tasks(KIT, count=30))
            rewards = [reward_of(await play_attempt(SERVER, row, player, seed=at)) for at, row in enumerate(rows)]
            return sum(rewards) / len(rewards)

        assert asyncio.run(play(KIT.solve)) == 1.0
        assert [name for name, player in KNOW_NOTHING.items() if asyncio.run(play(player)) > 0.1] == []
    '''
)
_PROJECT = dedent(
    """\
    [project]
    name = "NAME"
    version = "0.1.0"
    description = "An environment of GymWeb"
    requires-python = ">=3.11"

    # GymWeb finds an installed environment by this entry. Without installation, set GYMWEB_ENVIRONMENTS=FOLDER.
    [project.entry-points."gymweb.environments"]
    NAME = "NAME:CLASS"

    [tool.setuptools]
    py-modules = ["NAME"]

    [tool.pytest.ini_options]
    pythonpath = [".", "PROJECT"]
    """
)
_README = dedent(
    """\
    # NAME

    An environment of GymWeb: tools, state and verifier in `NAME.py`. See docs/start/own_environment.md of GymWeb.

        PROJECT/.venv/bin/python -m pytest FOLDER
        export GYMWEB_ENVIRONMENTS=FOLDER
        cd PROJECT
        .venv/bin/python manage.py check
        .venv/bin/python manage.py generate_tasks NAME --count 20 --dataset NAME
        .venv/bin/python manage.py collect --dataset NAME --model scripted
    """
)
