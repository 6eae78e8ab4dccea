"""Hidden tests: their inputs go into the sandbox, the values that come out are compared here.

What is expected never enters the sandbox, and what comes out is read as JSON values alone: code that takes over its
whole process can only say which values its function gives.
"""

import json
import math
from typing import Annotated, Any

import msgspec

from apps.gym.code_blocks import find_block
from apps.gym.errors import VerifierError
from apps.gym.redaction.shortening import cut
from apps.gym.sandbox.choosing import the_sandbox
from apps.gym.sandbox.protocol import Limits, Outcome
from apps.gym.traces.items import Item, TaskRow, item_type, text_of

MAX_CODE = 100_000
_PYTHON = frozenset({"python", "python3", "py", "py3"})
_OUTPUT = 1024**2
_WAITS = 3.0
"""How many times its processor time a program may take on the clock: others want the processor too."""
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
    """The fields of a row that its tests are made of. `time_limit` is seconds of processor time for all of them."""

    hidden_tests: list[HiddenTest]
    entry_point: str = "solve"
    time_limit: Annotated[int, msgspec.Meta(ge=1, le=60)] = 5

    @property
    def limits(self) -> Limits:
        seconds = max(10.0, _WAITS * self.time_limit)
        return Limits(seconds=seconds, cpu_seconds=self.time_limit, output=_OUTPUT, most_output=2 * _OUTPUT)


class Tally(msgspec.Struct, frozen=True):
    """How many passed, and of the first that did not what happened."""

    passed: int
    total: int
    told: str


def read_tests(row: TaskRow) -> HiddenTests:
    """Raises VerifierError."""
    try:
        tests = msgspec.convert({key: row[key] for key in HiddenTests.__struct_fields__ if key in row}, HiddenTests)
    except msgspec.ValidationError as problem:
        raise VerifierError(f"the task's tests cannot be read: {problem}").lasting() from None
    if not tests.hidden_tests:
        raise VerifierError("the task has no hidden_tests").lasting()
    return tests


def find_code(items: list[Item]) -> str:
    """The last block of Python in the assistant's messages, else the last that names no language; or nothing."""
    said = (text_of(item) for item in items if item_type(item) == "message" and item.get("role") == "assistant")
    return find_block(said, _PYTHON) or ""


def run_tests(code: str, tests: HiddenTests) -> Tally:
    """Raises SandboxMissing."""
    total = len(tests.hidden_tests)
    given = {"code": code, "entry_point": tests.entry_point, "inputs": [test.args for test in tests.hidden_tests]}
    # Not orjson: whole numbers may have more than 64 bits.
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
    # Lines beyond the tests were written by nobody but the code itself.
    if len(results) > total:
        return Tally(0, total, "more results than tests came back")
    return Tally(passed, total, told)


def _read_results(output: bytes) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for line in output.split(b"\n"):
        if not line:
            continue
        try:
            result = json.loads(line)
        except (ValueError, RecursionError):
            result = {"error": "what came back is no JSON"}
        results.append(result if isinstance(result, dict) else {"error": "what came back is no result"})
    return results


def _describe(result: dict[str, Any]) -> str:
    if "value" not in result:
        return cut(str(result.get("error", "no value")), _SHOWN)
    return f"gave {cut(json.dumps(result['value']), _SHOWN)}"


def _explain(outcome: Outcome, limits: Limits) -> str:
    if outcome.ending == "too_long":
        return f"not done after {limits.seconds:g} s"
    if outcome.ending == "too_much_output" or outcome.cut:
        return "too much output"
    if outcome.ending == "too_much_memory":
        return "it held too much memory"
    if outcome.status in (128 + 9, -9, 128 + 24, -24):
        return f"stopped after {limits.cpu_seconds} s of processor time"
    last = outcome.stderr.decode(errors="replace").strip().splitlines()
    return f"the program ended early{': ' + last[-1] if last else ''}"


def _is_same(value: Any, expected: Any) -> bool:
    """Equal as JSON values of the same type; numbers with a point may differ in their last digits."""
    if isinstance(expected, float) and isinstance(value, float):
        return math.isclose(value, expected, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    if type(value) is not type(expected):
        return False
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(_is_same, value, expected))
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(_is_same(value[key], expected[key]) for key in expected)
    return bool(value == expected)
