"""Which keys of a rollout row are its task's, which its attempt's, and which its verifier's."""

from collections.abc import Mapping
from typing import Any

from apps.gym.tasks.parameters import PARAMS
from apps.gym.traces.items import TaskRow

DETAILS = "_gymweb_details"
"""In which field of a row, or of a verdict, our own name the fields that are of the verifier, not of the task."""
OURS = "gymweb"
"""Where a row that went out from here says what NeMo Gym has no field for."""
ECHOED = "task"
"""Under OURS: the task's own fields where the verifier's have the same names."""
_REPEATED = ("expected_answer",)

_OF_THE_ATTEMPT = frozenset(
    {
        "response",
        "reward",
        "reward_components",
        "explanation",
        "agent_ref",
        "skills_ref",
        OURS,
        "verification_skipped",
    }
)
"""Keys of a rollout row that are of the attempt, not of its task; so is every key that starts with one of
PREFIXES."""
PREFIXES = ("_ng_", "ng_", "_gymweb")

_SAID = (
    "accuracy correctness equivalence_score error_message error_type extracted_answer failure_reason "
    "follow_instruction_list format info judge_evaluations judge_passed library_reward match_details num_correct "
    "num_expected num_predicted order_instruction_following_failure original_term_minefield_hit parsed_option "
    "parsed_synonym_values player predicted_calls result schema_valid score set_overlap task_name terminated "
    "total_reward truncated value"
)
_VERIFIERS_SAY = frozenset(_SAID.split())
"""What the public resource servers add to a row as they verify it. A row whose task is not at hand, and that does not
name them, is parted by these names: sent back to `/verify`, they would break it."""


def is_of_attempt(key: str) -> bool:
    return key in _OF_THE_ATTEMPT or key.startswith(PREFIXES)


def own_task(row: Mapping[str, Any]) -> TaskRow:
    """The task of a rollout row, as far as the row itself tells: less the attempt, less what its verifier said."""
    named = verifier_fields(row)
    said = _VERIFIERS_SAY if named is None else named
    task = {key: value for key, value in row.items() if not is_of_attempt(key) and key not in said}
    if named is None:
        return task
    ours = row.get(OURS)
    echoed = ours.get(ECHOED) if isinstance(ours, dict) else None
    if not isinstance(echoed, dict):
        # Servers of ours repeat the task's expected answer beside what they say, and have no place for the rest.
        echoed = {key: row[key] for key in _REPEATED if key in row}
    return {**task, **{key: echoed[key] for key in named if key in echoed}}


def verifier_fields(row: Mapping[str, Any]) -> frozenset[str] | None:
    """The fields that the row itself says to be of its verifier; None where it says nothing of them. No verifier says
    what was asked, nor what is of the attempt."""
    named = row.get(DETAILS)
    if not isinstance(named, list):
        return None
    return frozenset(key for key in named if isinstance(key, str) and key != PARAMS and not is_of_attempt(key))


def verifier_details(row: Mapping[str, Any], task: TaskRow) -> dict[str, Any]:
    """What the verifier said beside the reward: the fields that are named as such, else those that the task does not
    have, or has with another value."""
    named = verifier_fields(row)
    if named is not None:
        return {key: value for key, value in row.items() if key in named}
    return {
        key: value
        for key, value in row.items()
        if key != PARAMS and not is_of_attempt(key) and (key not in task or task[key] != value)
    }


def with_details(row: TaskRow, details: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, TaskRow]]:
    """The row with the verifier's fields beside the task's, as NeMo Gym's servers answer, and their names; and, for the
    field OURS, what the task itself has under these names."""
    said = {key: value for key, value in details.items() if key != PARAMS and not is_of_attempt(key)}
    echoed = {key: row[key] for key in said if key in row}
    return {**row, **said, DETAILS: sorted(said)}, {ECHOED: echoed} if said else {}
