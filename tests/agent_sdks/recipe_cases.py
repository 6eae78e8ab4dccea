"""The scripted replies for each agent package, and what its trace must contain."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.agent_sdks.scripted_model import Reply

TASK = "What is 6 * 70 + 80?"
MULTIPLY = Reply(tool="multiply", arguments={"a": 6, "b": 70})
ADD = Reply("Next, I add 80.", "add", {"a": 420, "b": 80})
"""A text beside a tool call, which some clients drop when they resend it."""
ANSWER = Reply("The answer is \\boxed{500}.")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run of a recipe, with the values of its trace by call. The defaults are those of a loop with two tools."""

    replies: tuple[Reply, ...] = (MULTIPLY, ADD, ANSWER)
    aside: Reply | None = None
    """The reply to requests without tools."""
    parents: tuple[int, ...] = (0, 1, 2)
    lineages: tuple[int, ...] = (1, 1, 1)
    reasons: tuple[str, ...] = ("first", "", "")
    spawned: dict[int, int] = field(default_factory=dict)
    """The call that started a subagent, by its first call."""
    path: tuple[int, ...] = (1, 2, 3)
    why: str = "answer"
    edited: dict[int, list[str]] = field(default_factory=dict)
    """Notes by call."""
    authors: dict[str, int] = field(default_factory=lambda: {"sampled": 3})
    """Texts and tool calls in the last request of the main path, by author."""
    tool_calls: int = 2
    rows: int = 3
    """Rows of trl_sft_turns for the whole conversation: one for each sampled turn."""
    finish: dict[str, Any] = field(default_factory=dict)


def _shell(tool: str, number: int, text: str = "") -> Reply:
    return Reply(text, tool, {"command": f"echo {number}", "is_background": False})


def _file(program: str, text: str) -> Reply:
    return Reply(f"{text}\n\nanswer.py\n```\n{program}\n```")


def _react(thought: str, call: Reply) -> Reply:
    fields = {"next_thought": thought, "next_tool_name": call.tool, "next_tool_args": json.dumps(call.arguments)}
    texts = [f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()]
    return Reply("\n\n".join([*texts, "[[ ## completed ## ]]"]))


CASES: dict[str, Case] = {
    "pydantic_ai_agent": Case(),
    # Each time, all tool results except the latest are cleared.
    "langchain_context_editing": Case(
        replies=(MULTIPLY, ADD, Reply(tool="add", arguments={"a": 500, "b": 0}), ANSWER),
        parents=(0, 1, 1, 1),
        lineages=(1, 1, 1, 1),
        reasons=("first", "", "", ""),
        path=(1, 4),
        edited={3: ["replaced 1 item at item 3"], 4: ["replaced 1 item at item 6"]},
        authors={"sampled": 4},
        tool_calls=3,
        rows=4,
    ),
    # The third call asks for the summary.
    "langchain_summarization": Case(
        aside=Reply("The product of 6 and 70 is 420."),
        parents=(0, 1, 0, 0),
        lineages=(1, 1, 2, 1),
        reasons=("first", "", "auxiliary", "compaction"),
        path=(4,),
        edited={4: ["replaced 1 item at item 1"]},
        authors={"sampled": 2},
    ),
    # A tool call is resent as a text.
    "smolagents_agent": Case(
        replies=(MULTIPLY, ADD, Reply(tool="final_answer", arguments={"answer": "\\boxed{500}"})),
        parents=(0, 0, 0),
        reasons=("first", "rewritten", "rewritten"),
        path=(3,),
        edited={2: ["replaced 1 item at item 2"], 3: ["replaced 2 items at item 4"]},
        authors={"rerendered": 2},
        tool_calls=3,
    ),
    # The manager calls another agent, which has a system prompt of its own.
    "smolagents_team": Case(
        replies=(
            Reply(tool="solver", arguments={"task": "Multiply 6 by 70, then add 80."}),
            MULTIPLY,
            ADD,
            Reply(tool="final_answer", arguments={"answer": "The result is 500."}),
            Reply(tool="final_answer", arguments={"answer": "\\boxed{500}"}),
        ),
        parents=(0, 0, 0, 0, 0),
        lineages=(1, 2, 2, 2, 1),
        reasons=("first", "subagent", "rewritten", "rewritten", "rewritten"),
        spawned={2: 1},
        path=(5,),
        edited={
            3: ["replaced 1 item at item 2"],
            4: ["replaced 2 items at item 4"],
            5: ["replaced 1 item at item 2"],
        },
        authors={"rerendered": 1},
        tool_calls=5,
        rows=2,
    ),
    "agent_framework_agent": Case(),
    "ai_sdk_agent": Case(),
    "google_adk_agent": Case(),
    # Both agents declare one conversation. The second one gets the call of the first as a text of the user.
    "google_adk_transfer": Case(
        replies=(Reply(tool="transfer_to_agent", arguments={"agent_name": "solver"}), MULTIPLY, ADD, ANSWER),
        parents=(0, 0, 2, 3),
        lineages=(1, 1, 1, 1),
        reasons=("first", "rewritten", "", ""),
        path=(2, 3, 4),
        edited={2: ["replaced 1 item at item 2"]},
        tool_calls=3,
        rows=4,
    ),
    "strands_agent": Case(),
    "pi": Case(replies=(_shell("bash", 420), _shell("bash", 500, "Next, I add 80."), ANSWER)),
    # The client adds an acknowledgement of its first message.
    "qwen_code": Case(
        replies=(_shell("run_shell_command", 420), _shell("run_shell_command", 500, "Next, I add 80."), ANSWER),
        authors={"injected": 1, "sampled": 3},
    ),
    # Each request has the current files before the last message. The turns that aider adds are an example of a
    # conversation, and acknowledgements of files and edits.
    "aider": Case(
        replies=(
            _file("print(6 * 70 + eighty)", "I write it."),
            _file("print(6 * 70 + 80", "I name 80."),
            _file("print(6 * 70 + 80)", "It prints 500."),
        ),
        parents=(0, 0, 0),
        reasons=("first", "rewritten", "rewritten"),
        path=(3,),
        why="contains",
        edited={
            2: ["replaced 1 item at item 5", "replaced 1 item at item 11"],
            3: ["replaced 1 item at item 9", "replaced 1 item at item 15"],
        },
        authors={"injected": 5, "sampled": 2},
        tool_calls=0,
    ),
    "openhands": Case(
        replies=(
            Reply(tool="terminal", arguments={"command": "echo 420", "security_risk": "LOW"}),
            Reply("Next, I add 80.", "terminal", {"command": "echo 500", "security_risk": "LOW"}),
            Reply(tool="finish", arguments={"message": ANSWER.text}),
        ),
        aside=Reply("Product and sum"),
        tool_calls=3,
    ),
    # Tools are called in texts. A last call with another system prompt writes the answer.
    "dspy_react": Case(
        replies=(
            _react("I multiply 6 by 70 first.", MULTIPLY),
            _react("The product is 420, so I add 80.", ADD),
            _react("The sum is 500, so I am done.", Reply(tool="finish")),
            Reply("[[ ## reasoning ## ]]\nThe sum is 500.\n\n[[ ## answer ## ]]\n500\n\n[[ ## completed ## ]]"),
        ),
        parents=(0, 0, 0, 0),
        lineages=(1, 1, 1, 1),
        reasons=("first", "rewritten", "rewritten", "rewritten"),
        path=(4,),
        why="contains",
        edited={call: ["replaced 1 item at item 1"] for call in (2, 3, 4)},
        authors={},
        tool_calls=0,
        rows=4,
    ),
    "crewai_agent": Case(edited={3: ["dropped the text beside tool calls"]}),
}
