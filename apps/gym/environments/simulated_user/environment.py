"""Simulated user: a second model plays a library's user, and the final records must be as the row's criteria say."""

from typing import Any, ClassVar

from apps.gym.environments.protocol import BuiltinEnvironment, ToolRefused
from apps.gym.environments.simulated_user.library_desk import AGENT_TOOLS, Library, check_assertion, use_tool
from apps.gym.environments.simulated_user.user_tasks import (
    Basis,
    Side,
    UserTask,
    read_calls,
    read_task,
    user_conversation,
)
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, answered_calls, as_object, assistant_text, dump_json

Calls = list[tuple[Side, str, dict[str, Any]]]


class SimulatedUser(BuiltinEnvironment):
    """The session asks the user model for its messages; see apps.gym.resources.inprocess."""

    name: ClassVar[str] = "simulated_user"
    description: ClassVar[str] = (
        "Twelve library-desk tools. A second model plays the user, who has tools too. Reward 1.0 if the attempt meets "
        "the row's evaluation_criteria."
    )
    tools: ClassVar[list[Tool]] = AGENT_TOOLS
    takes_turns: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"user_scenario", "evaluation_criteria"})

    @classmethod
    def check_row(cls, row: TaskRow, *, has_judge: bool) -> None:
        read_task(row, has_judge=has_judge)

    def __init__(self, row: TaskRow, *, has_judge: bool = False) -> None:
        """Raise VerifierError or JudgeError for a row whose attempts could not be scored."""
        super().__init__(row)
        self.task: UserTask = read_task(row, has_judge=has_judge)
        self.user_conversation = user_conversation(self.task, row)
        self.user_tools = self.task.tools_of_user()
        criteria = self.task.evaluation_criteria
        self.nl_assertions = (criteria.nl_assertions or []) if "NL_ASSERTION" in criteria.reward_basis else []
        self._library = self.task.begin()

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        return dump_json(use_tool(self._library, "assistant", name, arguments))

    def call_user_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """Return the output of one of the user's own tools. Raises ToolRefused."""
        return dump_json(use_tool(self._library, "user", name, arguments))

    def verify(self, response: dict[str, Any]) -> Reward:
        """Replay the calls of agent and user, so that only row and response are needed.

        The product of the criteria in `reward_basis`, except NL_ASSERTION, which needs a judge.
        """
        library = self.task.begin()
        calls = _interleave(response)
        for side, name, arguments in calls:
            try:
                use_tool(library, side, name, arguments)
            except ToolRefused:
                continue
        problems = self._find_problems(library, calls, assistant_text(list(response.get("output") or [])))
        if response.get("status") == "incomplete":
            problems.setdefault("DB", []).append("the attempt was cut off")
        parts = {name.lower(): float(not found) for name, found in problems.items()}
        told = "; ".join(problem for found in problems.values() for problem in found)
        return Reward(
            value=float(all(parts.values())), components=parts, explanation=told or "all criteria in code are met"
        )

    def _find_problems(self, library: Library, calls: Calls, said: str) -> dict[Basis, list[str]]:
        criteria, expected = self.task.evaluation_criteria, self.task.expect()
        said = said.lower().replace(",", "")
        found: dict[Basis, list[str]] = {
            "DB": [
                f"the final records of the {side} differ"
                for side, given, wanted in (
                    ("desk", library.agent, expected.agent),
                    ("user", library.user, expected.user),
                )
                if given != wanted
            ],
            "ACTION": [
                f"the {action.requestor} did not call {action.name} as expected"
                for action in criteria.actions or []
                if not any(side == action.requestor and action.matches(name, given) for side, name, given in calls)
            ],
            "ENV_ASSERTION": [
                one.message or f"{one.func_name} is not {one.assert_value}"
                for one in criteria.env_assertions or []
                if check_assertion(library, one.func_name, one.arguments) != one.assert_value
            ],
            "COMMUNICATE": [
                f"the assistant did not say {info!r}"
                for info in criteria.communicate_info or []
                if info.lower().replace(",", "") not in said
            ],
        }
        return {name: problems for name, problems in found.items() if name in criteria.reward_basis}


def _interleave(response: dict[str, Any]) -> Calls:
    """Return the calls of both sides in order. Each user message of the output ends a turn with the user's calls."""
    turns: list[list[Item]] = [[]]
    for item in response.get("output") or []:
        turns[-1].append(item)
        if item.get("role") == "user":
            turns.append([])
    own = read_calls(response)
    calls: Calls = []
    for number, items in enumerate(turns):
        calls += [("assistant", name, arguments) for name, arguments in answered_calls(items)]
        calls += [("user", one["name"], as_object(one.get("arguments"))) for one in own if one.get("turn") == number]
    return calls
