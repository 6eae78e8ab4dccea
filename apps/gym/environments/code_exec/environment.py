"""Code execution: a tool that runs Python, and a function that must pass hidden tests."""

import json
import math
from typing import Annotated, Any, ClassVar

import msgspec

from apps.gym.code_blocks import find_block
from apps.gym.environments.protocol import BuiltinEnvironment, ToolRefused, read_single_text
from apps.gym.errors import EnvironmentFault, VerifierError
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.sandbox.choosing import the_sandbox
from apps.gym.sandbox.protocol import Limits, Outcome, SandboxMissing
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json, item_type, text_of

MAX_CODE = 100_000
_PYTHON = frozenset({"python", "python3", "py", "py3"})
_OUTPUT = 1024**2
_WAITS = 3.0
"""Wall-clock limit as a multiple of the CPU limit, because other programs share the CPU."""
_SHOWN = 200
_TOLERANCE = 1e-9

PROGRAM = """
import json, os, sys
given = json.loads(sys.stdin.buffer.read())
results = os.fdopen(os.dup(1), "w")
null = os.open("/dev/null", os.O_WRONLY)
os.dup2(null, 1)

def attempt(work):
    try:
        return {"value": work()}
    except BaseException as problem:
        return {"error": f"{type(problem).__name__}: {problem}"[:500]}

def tell(result):
    try:
        return json.dumps(result)
    except BaseException as problem:
        return json.dumps({"error": f"gave what is no JSON value: {type(problem).__name__}"})

space = {"__name__": "answer"}
def load():
    exec(compile(given["code"], "answer.py", "exec"), space)
    if not callable(space.get(given["entry_point"])):
        raise NameError("there is no function " + given["entry_point"])

loaded = attempt(load)
if "error" in loaded:
    print(tell(loaded), file=results)
else:
    for arguments in given["inputs"]:
        print(tell(attempt(lambda: space[given["entry_point"]](*arguments))), file=results, flush=True)
"""


class HiddenTest(msgspec.Struct, frozen=True):
    args: list[Any]
    expected: Any


class HiddenTests(msgspec.Struct, frozen=True):
    """The fields of a row that define its tests. `time_limit` is CPU seconds for all tests together."""

    hidden_tests: list[HiddenTest]
    entry_point: str = "solve"
    time_limit: Annotated[int, msgspec.Meta(ge=1, le=60)] = 5

    @property
    def limits(self) -> Limits:
        seconds = max(10.0, _WAITS * self.time_limit)
        return Limits(seconds=seconds, cpu_seconds=self.time_limit, output=_OUTPUT, most_output=2 * _OUTPUT)


class Tally(msgspec.Struct, frozen=True):
    """The number of passed tests, and what happened in the first one that failed."""

    passed: int
    total: int
    told: str


def read_tests(row: TaskRow) -> HiddenTests:
    """Return the hidden tests of a row. Raises VerifierError if they are missing or invalid."""
    try:
        tests = msgspec.convert({key: row[key] for key in HiddenTests.__struct_fields__ if key in row}, HiddenTests)
    except msgspec.ValidationError as problem:
        raise VerifierError(f"the task's tests cannot be read: {problem}").permanent() from None
    if not tests.hidden_tests:
        raise VerifierError("the task has no hidden_tests").permanent()
    return tests


def find_code(items: list[Item]) -> str:
    """Return the last Python block of the assistant's messages, else the last without a language, else ""."""
    said = (text_of(item) for item in items if item_type(item) == "message" and item.get("role") == "assistant")
    return find_block(said, _PYTHON) or ""


def run_tests(code: str, tests: HiddenTests) -> Tally:
    """Run the hidden tests against the code. Raises SandboxMissing."""
    total = len(tests.hidden_tests)
    given = {"code": code, "entry_point": tests.entry_point, "inputs": [test.args for test in tests.hidden_tests]}
    # Not orjson: integers may have more than 64 bits.
    outcome = the_sandbox().run(PROGRAM, stdin=json.dumps(given).encode(errors="replace"), limits=tests.limits)
    results = _read_results(outcome.stdout)
    if len(results) == 1 and total > 1 and "error" in results[0]:
        return Tally(0, total, cut(str(results[0]["error"]), _SHOWN))
    passed, told = 0, ""
    for number, test in enumerate(tests.hidden_tests):
        result = results[number] if number < len(results) else {"error": _explain(outcome, tests.limits)}
        if "value" in result and _is_same(result["value"], test.expected):
            passed += 1
        else:
            told = told or f"test {number + 1}: {_describe(result)}"
    # Lines beyond the tests can only come from the code under test.
    if len(results) > total:
        return Tally(0, total, "the program returned more results than tests")
    return Tally(passed, total, told)


def _read_results(output: bytes) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for line in output.split(b"\n"):
        if not line:
            continue
        try:
            result = json.loads(line)
        except (ValueError, RecursionError):
            result = {"error": "the program's output is not JSON"}
        results.append(result if isinstance(result, dict) else {"error": "the program's output is not a result"})
    return results


def _describe(result: dict[str, Any]) -> str:
    if "value" not in result:
        return cut(str(result.get("error", "no value")), _SHOWN)
    return f"gave {cut(json.dumps(result['value']), _SHOWN)}"


def _explain(outcome: Outcome, limits: Limits) -> str:
    if outcome.ending == "too_long":
        return f"stopped after {limits.seconds:g} s"
    if outcome.ending == "too_much_output" or outcome.cut:
        return "too much output"
    if outcome.ending == "too_much_memory":
        return "memory limit exceeded"
    if outcome.status in (128 + 9, -9, 128 + 24, -24):
        return f"stopped after {limits.cpu_seconds} s of processor time"
    last = outcome.stderr.decode(errors="replace").strip().splitlines()
    return f"the program ended early{': ' + last[-1] if last else ''}"


def _is_same(value: Any, expected: Any) -> bool:
    """Compare JSON values of the same type; floats may differ in their last digits."""
    if isinstance(expected, float) and isinstance(value, float):
        return math.isclose(value, expected, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    if type(value) is not type(expected):
        return False
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(_is_same, value, expected))
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(_is_same(value[key], expected[key]) for key in expected)
    return bool(value == expected)


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
    "too_long": f"stopped after {_LIMITS.seconds:g} s",
    "too_much_output": f"stopped: it wrote more than {_LIMITS.most_output:,} bytes",
    "too_much_memory": "stopped: memory limit exceeded",
}


class CodeExec(BuiltinEnvironment):
    """A tool whose output is `{"exit_code", "stdout", "stderr"}`, with `note` if it was stopped or cut."""

    name: ClassVar[str] = "code_exec"
    description: ClassVar[str] = (
        "One tool, run_python{code}, in a sandbox. The function in the last ```python block must pass the row's "
        "hidden_tests."
    )
    tools: ClassVar[list[Tool]] = [RUN_PYTHON]
    needs: ClassVar[frozenset[str]] = frozenset({"hidden_tests"})
    runs_on_loop: ClassVar[bool] = False

    def run_python(self, arguments: dict[str, Any]) -> str:
        code = read_single_text(arguments, "code", 'run_python takes one argument, {"code": "text"}')
        if len(code) > MAX_CODE:
            raise ToolRefused("too_large", f"a program can have at most {MAX_CODE:,} characters")
        try:
            outcome = the_sandbox().run(code, limits=_LIMITS)
        except SandboxMissing as missing:
            raise EnvironmentFault(str(missing)).permanent().misconfigured() from None
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

    def verify(self, response: dict[str, Any]) -> Reward:
        tests = read_tests(self.row)
        code = find_code(response["output"])
        if not code or len(code) > MAX_CODE:
            told = f"more than {MAX_CODE:,} characters of code" if code else "no block of Python in the messages"
            return Reward(value=0.0, components={"tests": 0.0}, explanation=f"{told[0].upper()}{told[1:]}.")
        try:
            result = run_tests(code, tests)
        except SandboxMissing as missing:
            raise VerifierError(str(missing)).permanent().misconfigured() from None
        told = f"; {result.told}" if result.told else ""
        return Reward(
            value=float(result.passed == result.total),
            components={"tests": result.passed / result.total},
            explanation=f"{result.passed} of {result.total} hidden tests passed{told}.",
        )

    @staticmethod
    def find_problem() -> str:
        """Return why the environment cannot be used on this machine, or an empty text."""
        return the_sandbox().find_problem()

    @staticmethod
    def describe_place() -> str:
        """Return where the code runs, for health checks."""
        return f"code runs in {the_sandbox().describe()}"


def _text(output: bytes) -> str:
    return output.decode(errors="replace").replace("\0", "�")
