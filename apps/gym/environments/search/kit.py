"""What comes with search: questions, who knows where to look, who names anything, and cases."""

import random

from apps.gym.environments.search.documents import write_documents
from apps.gym.environments.search.search_questions import list_questions
from apps.gym.environments.task_generation import Call, Case, Difficulty, Kit, Move, Player, Seen, ask, say
from apps.gym.traces.items import TaskRow

_LEVEL: dict[Difficulty, int] = {"easy": 1, "medium": 2, "hard": 3}
_HOW = (
    "Find out with the tools, which search the encyclopaedia of the Lantern Isles. End with two lines: Answer: "
    "followed "
    "by the answer alone, and Sources: followed by the ids of the entries that it follows from, and of no others. Open "
    "an entry before you name it."
)


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    question = dice.choice(list_questions()[_LEVEL[difficulty]])
    return {
        "responses_create_params": ask(f"{question.text}\n\n{_HOW}"),
        "expected_answer": question.answer,
        "expected_sources": list(question.sources),
    }


def _solve(seen: Seen) -> Move:
    """Searches for each entry by its title, opens it, and goes on to the next."""
    sources = seen.row["expected_sources"]
    if seen.turn < 2 * len(sources):
        place = sources[seen.turn // 2]
        if seen.turn % 2 == 0:
            return Move(calls=[Call("search", {"query": write_documents()[place].title, "limit": 3})])
        return Move(calls=[Call("read_document", {"id": place})])
    return _answer(seen.row["expected_answer"], sources)


def _answer(answer: str, sources: list[str]) -> Move:
    return Move(text=f"Answer: {answer}\nSources: {', '.join(sources)}")


def _guess(seen: Seen) -> Move:
    """Searches for the question, opens what comes first, and answers with a word of it."""
    if seen.turn == 0:
        return Move(calls=[Call("search", {"query": seen.prompt.split("\n")[0], "limit": 1})])
    title = write_documents().get(seen.outputs[0].split('"id":"')[-1].split('"')[0])
    if title is None:
        return _answer("nothing", [])
    if seen.turn == 1:
        return Move(calls=[Call("read_document", {"id": title.id})])
    return _answer(seen.dice.choice(title.text.replace(".", "").split()), [title.id])


def _cases() -> list[Case]:
    question = list_questions()[2][0]
    row: TaskRow = {
        "responses_create_params": ask(f"{question.text}\n\n{_HOW}"),
        "expected_answer": question.answer,
        "expected_sources": list(question.sources),
    }
    right, (first, second) = question.answer, question.sources
    all_texts = " ".join(document.text for document in write_documents().values())
    everything = sorted(write_documents())[:20]

    def play(answer: str, opened: list[str], named: list[str]) -> Player:
        reads = Move(calls=[Call("read_document", {"id": place}) for place in opened])
        return say(reads, _answer(answer, named))

    both = [first, second]
    few = 0.75 + 0.25 * 2 * (2 / 20) / (1 + 2 / 20)
    return [
        Case(name="answer and sources", kind="full reward", row=row, play=play(right, both, both), reward=1.0),
        Case(name="no sources", kind="full reward", row=row, play=play(right, both, []), reward=0.75),
        Case(name="sources unopened", kind="full reward", row=row, play=play(right, ["p99"], both), reward=0.75),
        Case(
            name="too many sources",
            kind="full reward",
            row=row,
            play=play(right, [*both, *everything], [*both, *(one for one in everything if one not in both)][:20]),
            reward=few,
        ),
        Case(name="another answer", kind="zero reward", row=row, play=play("Nobody", both, both), reward=0.0),
        Case(name="all there is", kind="zero reward", row=row, play=play(all_texts, both, both), reward=0.0),
        Case(
            name="calls in a wrong form",
            kind="malformed",
            row=row,
            play=say(
                Move(calls=[Call("search", {"query": 7}), Call("search", {"query": '" OR *', "limit": 99})]),
                Move(calls=[Call("search", '{"query": "NEAR( \\ud800 *"}'), Call("read_document", {"id": "none"})]),
                right,
            ),
            reward=0.0,
        ),
    ]


KIT = Kit(make_task=make_task, solve=_solve, guess=_guess, cases=_cases, max_steps=12)
