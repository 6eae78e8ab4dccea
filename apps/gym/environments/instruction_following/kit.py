"""What comes with instruction following: who follows every instruction, who always writes the same, and cases."""

from apps.gym.environments.instruction_following.best_single_text import find_constant
from apps.gym.environments.instruction_following.tasks import make_task
from apps.gym.environments.instruction_following.writing import write_answer
from apps.gym.environments.task_generation import Case, Kit, Move, Seen, ask, say
from apps.gym.traces.items import TaskRow


def _solve(seen: Seen) -> Move:
    return Move(text=_text_for(seen.row))


def _text_for(row: TaskRow) -> str:
    return write_answer(list(zip(row["instruction_id_list"], row["kwargs"], strict=True)))


def _guess(seen: Seen) -> Move:
    asked = seen.prompt.count("\n- ")
    return Move(text=find_constant("easy" if asked < 3 else "medium" if asked < 5 else "hard"))


def _cases() -> list[Case]:
    row: TaskRow = {
        "responses_create_params": ask("Write about bread. Use no comma and at least 60 words; end with: Thank you."),
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words", "startend:end_checker"],
        "kwargs": [{}, {"num_words": 60, "relation": "at least"}, {"end_phrase": "Thank you."}],
    }
    in_parts = {**row, "grading_mode": "fraction"}
    text = _text_for(row)
    padded = f"{'bread ' * 80}Thank you."
    return [
        Case(name="all of them", kind="full reward", row=row, play=say(text), reward=1.0),
        Case(name="one of them not", kind="zero reward", row=row, play=say(text.replace("and", ",")), reward=0.0),
        Case(name="two of three, by parts", kind="zero reward", row=in_parts, play=say(f"{text} Bye"), reward=2 / 3),
        Case(name="one word over and over", kind="zero reward", row=row, play=say(padded), reward=0.0),
        Case(name="an empty reply", kind="malformed", row=row, play=say(" "), reward=0.0),
    ]


KIT = Kit(make_task=make_task, solve=_solve, guess=_guess, cases=_cases)
