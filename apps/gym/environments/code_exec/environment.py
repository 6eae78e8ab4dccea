"""Code exec: one tool that runs Python, and a function that has to pass tests which nobody sees."""

from typing import Any, ClassVar

from apps.gym.environments.code_exec.testing import MAX_CODE, find_code, read_tests, run_tests
from apps.gym.environments.protocol import ToolRefused, unknown_tool
from apps.gym.errors import EnvironmentFault, VerifierError
from apps.gym.rewards import Reward
from apps.gym.sandbox.choosing import the_sandbox
from apps.gym.sandbox.protocol import Limits, SandboxMissing
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json

RUN_PYTHON: Tool = {
    "type": "function",
    "name": "run_python",
    "description": "Run a Python program and read what it prints. Each call starts from nothing: no files, names or "
    "packages of earlier calls, and no network.",
    "parameters": {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The whole program, such as print(6 * 7)"}},
        "required": ["code"],
        "additionalProperties": False,
    },
    "strict": True,
}
_LIMITS = Limits()
_ENDINGS = {
    "too_long": f"stopped: not done after {_LIMITS.seconds:g} s",
    "too_much_output": f"stopped: it wrote more than {_LIMITS.most_output:,} bytes",
    "too_much_memory": "stopped: it held too much memory",
}


class CodeExec:
    """Output of the tool: `{"exit_code", "stdout", "stderr"}`, and `note` where it was stopped or cut."""

    name: ClassVar[str] = "code_exec"
    description: ClassVar[str] = (
        "One tool, run_python{code}, in a sandbox. The function in the last ```python block must give what the row's "
        "hidden_tests expect."
    )
    tools: ClassVar[list[Tool]] = [RUN_PYTHON]
    needs: ClassVar[frozenset[str]] = frozenset({"hidden_tests"})
    quick: ClassVar[bool] = False
    asks_judge: ClassVar[bool] = False

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        if name != "run_python":
            raise unknown_tool(name, self.tools)
        code = arguments.get("code")
        if not isinstance(code, str) or len(arguments) != 1:
            raise ToolRefused("bad_arguments", 'run_python takes one argument, {"code": "text"}')
        if len(code) > MAX_CODE:
            raise ToolRefused("too_large", f"a program has at most {MAX_CODE:,} characters")
        try:
            outcome = the_sandbox().run(code, limits=_LIMITS)
        except SandboxMissing as missing:
            raise EnvironmentFault(str(missing)).lasting().ours() from None
        told: dict[str, Any] = {
            "exit_code": outcome.status,
            "stdout": _text(outcome.stdout),
            "stderr": _text(outcome.stderr),
        }
        if outcome.ending != "exited":
            told["note"] = _ENDINGS[outcome.ending]
        elif outcome.cut:
            told["note"] = f"only the first {_LIMITS.output:,} bytes of each output are shown"
        return dump_json(told)

    def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        tests = read_tests(self.row)
        code = find_code(response["output"])
        if not code or len(code) > MAX_CODE:
            told = f"more than {MAX_CODE:,} characters of code" if code else "no block of Python in the messages"
            return Reward(value=0.0, components={"tests": 0.0}, explanation=f"{told[0].upper()}{told[1:]}.")
        try:
            result = run_tests(code, tests)
        except SandboxMissing as missing:
            raise VerifierError(str(missing)).lasting().ours() from None
        told = f"; {result.told}" if result.told else ""
        return Reward(
            value=float(result.passed == result.total),
            components={"tests": result.passed / result.total},
            explanation=f"{result.passed} of {result.total} hidden tests passed{told}.",
        )

    @staticmethod
    def find_problem() -> str:
        """Why it cannot be used on this machine, or nothing."""
        return the_sandbox().find_problem()

    @staticmethod
    def describe_place() -> str:
        """Where the code runs, for whoever asks whether the environment is well."""
        return f"code runs in {the_sandbox().describe()}"


def _text(output: bytes) -> str:
    return output.decode(errors="replace").replace("\0", "�")
