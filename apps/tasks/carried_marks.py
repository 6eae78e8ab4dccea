"""What a task is marked with in a new version: what its row says, what was chosen, and what people marked it with
before."""

from dataclasses import dataclass

from apps.gym.tasks.task_rows import MAX_TAGS, ParsedTask
from apps.tasks.row_matching import Known


@dataclass(frozen=True, slots=True)
class Marks:
    split: str
    tags: tuple[str, ...]
    is_retired: bool = False


def carry_marks(task: ParsedTask, before: Known | None, *, said: Marks | None, chosen: str) -> Marks:
    """`before` is the task of the version before and `said` what its row said itself: what it is marked with beyond
    that is people's, and stays. `chosen` is the split of rows that name none, or nothing."""
    if before is None or said is None:
        return Marks(task.split or chosen, task.tags)
    removed = set(said.tags) - set(before.tags)
    added = [tag for tag in before.tags if tag not in said.tags]
    tags = dict.fromkeys(tag for tag in [*task.tags, *added] if tag not in removed)
    return Marks(_split(task.split, before.split, said.split, chosen), tuple(tags)[:MAX_TAGS], before.is_retired)


def _split(named: str, before: str, said: str, chosen: str) -> str:
    if named:
        # A row that says what it said before moves nothing; one that says something else is meant.
        return before if named == said else named
    return chosen or (before if before != said else "")
