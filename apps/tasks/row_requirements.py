"""What an environment's verifier needs of a row, and whether a row's own verifier can be one."""

from apps.environments.models import Adapter, Environment
from apps.gym.errors import VerifierError
from apps.gym.resources.own_verifier import ROW_FIELD
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.task_rows import ParsedTask
from apps.gym.verifiers.protocol import Verifier
from apps.gym.verifiers.registry import find_problems, read_verifier
from apps.gym.written.registry import find_environment


def fields_needed(environment: Environment) -> frozenset[str]:
    """What the environment's verifier reads of a row, as far as that is known here: for built-in ones."""
    if not environment.verifies:
        return frozenset()
    if environment.verifies_here:
        return read_verifier(environment.verifier).needs if environment.verifier else frozenset({ROW_FIELD})
    known = find_environment(environment.builtin) if environment.adapter == Adapter.BUILTIN else None
    return known.needs if known else frozenset()


def check_verifiable(task: ParsedTask, verifier: Verifier | None) -> None:
    """Raises RowRefused for a task that brings a verifier of its own which cannot be one, or that has what its verifier
    needs as something that no attempt could be held to. One that lacks it is counted, and loaded."""
    if task.row.get(ROW_FIELD) is not None:
        for pointer, problem in find_problems(task.row[ROW_FIELD]):
            raise RowRefused("bad_verifier", problem, pointer=f"/{ROW_FIELD}{pointer}")
        verifier = read_verifier(task.row[ROW_FIELD])
    if verifier is None or not verifier.needs <= task.row.keys():
        return
    try:
        verifier.check_row(task.row)
    except VerifierError as error:
        raise RowRefused("not_verifiable", str(error)) from None
