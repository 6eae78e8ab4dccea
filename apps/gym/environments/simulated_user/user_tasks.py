"""Tasks of a simulated user, in the shape of tau2's tasks (sierra-research/tau2-bench, data_model/tasks.py)."""

from typing import Annotated, Any, Literal

import msgspec

from apps.gym.environments.protocol import ToolRefused
from apps.gym.environments.simulated_user.library_desk import USER_TOOLS, Library, check_assertion, use_tool
from apps.gym.errors import JudgeError, VerifierError
from apps.gym.traces.items import Item, TaskRow, Tool, as_object, input_items, item_type, message, text_of
from apps.gym.wires.protocol import USER_ROLE

Side = Literal["assistant", "user"]
Basis = Literal["DB", "ENV_ASSERTION", "NL_ASSERTION", "ACTION", "COMMUNICATE"]
STOP_WORDS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
"""The user writes one of them to end the conversation."""


class Instructions(msgspec.Struct, frozen=True):
    domain: str = ""
    reason_for_call: str = ""
    known_info: str | None = None
    unknown_info: str | None = None
    task_instructions: str = ""


class Scenario(msgspec.Struct, frozen=True):
    instructions: Instructions | str
    persona: str | None = None


class InitialCall(msgspec.Struct, frozen=True):
    func_name: str
    arguments: dict[str, Any] = {}
    env_type: Side = "assistant"


class InitialData(msgspec.Struct, frozen=True):
    agent_data: dict[str, Any] | None = None
    user_data: dict[str, Any] | None = None


class InitialState(msgspec.Struct, frozen=True):
    initialization_data: InitialData | None = None
    initialization_actions: list[InitialCall] | None = None
    message_history: list[Any] | None = None


class Action(msgspec.Struct, frozen=True):
    """An expected call. `compare_args` lists the arguments that ACTION compares; None: all."""

    name: str
    arguments: dict[str, Any] = {}
    requestor: Side = "assistant"
    compare_args: list[str] | None = None

    def matches(self, name: str, arguments: dict[str, Any]) -> bool:
        compared = arguments.keys() if self.compare_args is None else self.compare_args
        expected, given = ({key: one[key] for key in compared if key in one} for one in (self.arguments, arguments))
        return name == self.name and expected == given


class Assertion(msgspec.Struct, frozen=True):
    """An assertion about the final state."""

    func_name: str
    arguments: dict[str, Any] = {}
    env_type: Side = "assistant"
    assert_value: bool = True
    message: str | None = None


class Criteria(msgspec.Struct, frozen=True):
    actions: list[Action] | None = None
    env_assertions: list[Assertion] | None = None
    communicate_info: list[str] | None = None
    nl_assertions: list[str] | None = None
    reward_basis: Annotated[tuple[Basis, ...], msgspec.Meta(min_length=1)] = ("DB", "COMMUNICATE")


class UserTask(msgspec.Struct, frozen=True):
    """The fields of a row that this environment reads. Other fields are ignored."""

    user_scenario: Scenario
    evaluation_criteria: Criteria
    initial_state: InitialState | None = None
    user_tools: list[str] | None = None

    def begin(self) -> Library:
        """Return the library before the conversation."""
        initial = self.initial_state or InitialState()
        data = initial.initialization_data or InitialData()
        library = Library(data.agent_data, data.user_data)
        for call in initial.initialization_actions or []:
            use_tool(library, call.env_type, call.func_name, call.arguments)
        return library

    def expect(self) -> Library:
        """Return the library after the expected actions."""
        library = self.begin()
        for action in self.evaluation_criteria.actions or []:
            use_tool(library, action.requestor, action.name, action.arguments)
        return library

    def tools_of_user(self) -> list[Tool]:
        return [tool for tool in USER_TOOLS if self.user_tools is None or tool["name"] in self.user_tools]


def read_task(row: TaskRow, *, has_judge: bool) -> UserTask:
    """Return the task of a row.

    Raises VerifierError for a row whose attempts could not be scored, and JudgeError for one that lacks a judge.
    """
    try:
        task = msgspec.convert({name: row[name] for name in UserTask.__struct_fields__ if name in row}, UserTask)
        library = task.expect()
        unknown = sorted(set(task.user_tools or []) - {str(tool["name"]) for tool in USER_TOOLS})
        if unknown:
            raise ValueError(f"user_tools has the unknown tool {unknown[0]!r}")
        for assertion in task.evaluation_criteria.env_assertions or []:
            check_assertion(library, assertion.func_name, assertion.arguments)
    except (msgspec.ValidationError, ToolRefused, ValueError) as problem:
        raise VerifierError(f"the task row cannot be used by simulated_user: {problem}").permanent() from None
    if "NL_ASSERTION" in task.evaluation_criteria.reward_basis and not has_judge:
        told = "needs a judge: choose a user model for the environment. Trials by hand have no judge"
        raise JudgeError(f"the task row's reward basis NL_ASSERTION {told}").permanent()
    if task.initial_state and task.initial_state.message_history:
        told = "is not supported. Write the messages into `responses_create_params.input`"
        raise VerifierError(f"the task row's `message_history` {told}").permanent()
    return task


def user_conversation(task: UserTask, row: TaskRow) -> list[Item]:
    """Return the conversation of the user model before its first reply: its scenario, and the prompt's messages.

    The roles are swapped: messages of the agent have the role user, and messages of the user have the role
    assistant.
    """
    swapped: dict[object, Literal["assistant", "user"]] = {"user": "assistant", "assistant": "user"}
    opening = [item for item in input_items(row) if item_type(item) == "message" and item.get("role") in swapped]
    return [
        message("system", _user_prompt(task)),
        # Many chat templates need a user message first.
        message("user", "Hello. How can I help you?"),
        *(message(swapped[item.get("role")], text_of(item)) for item in opening),
    ]


def _user_prompt(task: UserTask) -> str:
    scenario = task.user_scenario
    instructions = scenario.instructions
    fields = msgspec.structs.asdict(instructions) if isinstance(instructions, Instructions) else {"": instructions}
    parts = {"persona": scenario.persona, **fields}
    told = [f"{name.replace('_', ' ').capitalize()}: {text}".removeprefix(": ") for name, text in parts.items() if text]
    return f"{_RULES}\n\n" + "\n\n".join(told)


_RULES = f"""\
{USER_ROLE} who contacts an assistant. You write the messages of the user, one at a time.

- Write one short message, and only what you need to say at this point. Do not tell everything at once.
- Follow the scenario below. Do not invent facts: say that you do not know them.
- Your tools act on your own things. Use one only when the assistant asks you to, or the scenario tells you to.
- When the assistant has done what you want, write {STOP_WORDS[0]}.
- When the assistant transfers you to a person, write {STOP_WORDS[1]}.
- When the scenario does not tell you how to continue, write {STOP_WORDS[2]}.

# Scenario"""


def read_calls(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the user's tool calls of a response, each with `turn`, `name` and `arguments`."""
    given = response.get("user_calls")
    return [one for one in map(as_object, given if isinstance(given, list) else []) if isinstance(one.get("name"), str)]
