"""Decide which keys of a rollout row belong to its task, its attempt or its verifier."""

from collections.abc import Mapping
from typing import Any

from apps.gym.tasks.parameters import PARAMS
from apps.gym.traces.items import TaskRow

DETAILS = "_gymweb_details"
"""Field of a row or verdict in which GymWeb lists the fields that belong to the verifier."""
OURS = "gymweb"
"""Field of an exported row for data that NeMo Gym has no field for."""
ECHOED = "task"
"""Key under OURS: the task's own fields if the verifier's have the same names."""
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
"""Keys of a rollout row that belong to the attempt, as do all keys that start with one of PREFIXES."""
PREFIXES = ("_ng_", "ng_", "_gymweb")

_SAID = (
    "accuracy correctness equivalence_score error_message error_type extracted_answer failure_kind failure_reason "
    "follow_instruction_list format info judge_evaluations judge_passed library_reward mask_sample match_details "
    "num_correct num_expected num_predicted order_instruction_following_failure original_term_minefield_hit "
    "parsed_option parsed_synonym_values player predicted_calls result schema_valid score set_overlap task_name "
    "terminated total_reward truncated value"
)
_VERIFIERS_SAY = frozenset(_SAID.split())
"""Fields that the public resource servers add to a row when they verify it.

They are removed from a row whose task is unavailable and that does not list them: sent back to `/verify`, they would
break it.
"""


def is_of_attempt(key: str) -> bool:
    return key in _OF_THE_ATTEMPT or key.startswith(PREFIXES)


def own_task(row: Mapping[str, Any]) -> TaskRow:
    """Return the task of a rollout row, without the fields of the attempt and the verifier."""
    named = verifier_fields(row)
    said = _VERIFIERS_SAY if named is None else named
    task = {key: value for key, value in row.items() if not is_of_attempt(key) and key not in said}
    if isinstance(config := task.get("instance_config"), dict) and "mask_sample" in config:
        # NeMo Gym's agents write the mask of an attempt into the task's configuration, too.
        task["instance_config"] = {key: value for key, value in config.items() if key != "mask_sample"}
    if named is None:
        return task
    ours = row.get(OURS)
    echoed = ours.get(ECHOED) if isinstance(ours, dict) else None
    if not isinstance(echoed, dict):
        # GymWeb's servers repeat only the task's expected answer.
        echoed = {key: row[key] for key in _REPEATED if key in row}
    return {**task, **{key: echoed[key] for key in named if key in echoed}}


def verifier_fields(row: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the fields that the row declares as verifier output; None without a declaration.

    Request and attempt fields never belong to it.
    """
    named = row.get(DETAILS)
    if not isinstance(named, list):
        return None
    return frozenset(key for key in named if isinstance(key, str) and key != PARAMS and not is_of_attempt(key))


def verifier_details(row: Mapping[str, Any], task: TaskRow) -> dict[str, Any]:
    """Return the verifier output besides the reward.

    These are the declared fields, otherwise the fields that the task lacks or that differ.
    """
    named = verifier_fields(row)
    if named is not None:
        return {key: value for key, value in row.items() if key in named}
    return {
        key: value
        for key, value in row.items()
        if key != PARAMS and not is_of_attempt(key) and (key not in task or task[key] != value)
    }


def with_details(row: TaskRow, details: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, TaskRow]]:
    """Return the row with the verifier's fields and their names, as NeMo Gym's servers do.

    The second value is for the field OURS: the task's own values of these names.
    """
    said = {key: value for key, value in details.items() if key != PARAMS and not is_of_attempt(key)}
    echoed = {key: row[key] for key in said if key in row}
    return {**row, **said, DETAILS: sorted(said)}, {ECHOED: echoed} if said else {}
