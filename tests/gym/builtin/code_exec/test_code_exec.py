import asyncio
import json

import pytest

from apps.gym.environments.code_exec import kit, steps
from apps.gym.environments.code_exec.environment import (
    CodeExec,
    HiddenTest,
    HiddenTests,
    find_code,
    read_tests,
    run_tests,
)
from apps.gym.environments.protocol import ToolRefused
from apps.gym.environments.task_generation import DIFFICULTIES, generate_tasks
from apps.gym.errors import EnvironmentFault, VerifierError
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.sandbox.choosing import Choice, choose_sandbox, the_sandbox
from tests.gym.sandbox.needing import needs_sandbox
from tests.gym.verifiers.replies import response

ROW = {"hidden_tests": [{"args": [2, 3], "expected": 5}, {"args": [0, 0], "expected": 0}], "entry_point": "add"}
RIGHT = "```python\ndef add(a, b):\n    return a + b\n```"


@pytest.fixture
def no_sandbox():
    before = the_sandbox().choice
    choose_sandbox(Choice(kind="none"))
    yield
    choose_sandbox(before)


def run(code):
    return json.loads(CodeExec(ROW).call_tool("run_python", {"code": code}))


@needs_sandbox
def test_the_tool_returns_output_and_exit_status():
    assert run("print('ö' * 2)") == {"exit_code": 0, "stdout": "öö\n", "stderr": ""}
    failed = run("1 / 0")
    assert (failed["exit_code"], failed["stderr"].splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")
    long = run("print('x' * 100_000)")
    assert (len(long["stdout"]), long["note"]) == (16_000, "only the first 16,000 bytes of each output are shown")
    endless = run("while True: print('x' * 10_000)")
    assert endless["note"] == "stopped: it wrote more than 1,048,576 bytes"
    assert run("print(chr(0))")["stdout"] == "�\n"


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("run_python", {}, "bad_arguments"),
        ("run_python", {"code": 3}, "bad_arguments"),
        ("run_python", {"code": "1", "more": 1}, "bad_arguments"),
        ("run_python", {"code": "#" * 100_001}, "too_large"),
        ("python", {"code": "1"}, "unknown_tool"),
    ],
)
def test_a_call_that_cannot_be_is_refused(name, arguments, error):
    with pytest.raises(ToolRefused) as refused:
        CodeExec(ROW).call_tool(name, arguments)
    assert refused.value.error == error


@needs_sandbox
def test_all_hidden_tests_must_pass_and_their_part_is_a_component():
    verify = CodeExec(ROW).verify
    right = verify(response(RIGHT))
    assert (right.value, right.components) == (1.0, {"tests": 1.0})
    assert right.explanation.startswith("2 of 2 ")
    half = verify(response("```python\ndef add(a, b):\n    return a * b\n```"))
    assert (half.value, half.components) == (0.0, {"tests": 0.5})
    assert (half.explanation.startswith("1 of 2 "), "test 1: gave 6" in half.explanation) == (True, True)
    broken = verify(response("```python\ndef add(a):\n    return a\n```"))
    assert broken.explanation.startswith("0 of 2 ")
    assert "test 1: TypeError: add()" in broken.explanation
    printed = verify(response(RIGHT.replace("    return", "    print('noise' * 1000)\n    return")))
    assert printed.value == 1.0
    unmarked = verify(response("It is 5."))
    assert (unmarked.value, "No block of Python" in unmarked.explanation) == (0.0, True)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (RIGHT, "def add(a, b):\n    return a + b"),
        ("```py\na\n```\ntext\n```\nb\n```", "a"),
        ("```text\nplan\n```\n" + RIGHT, "def add(a, b):\n    return a + b"),
        ("```js\nlet a\n```", ""),
        ("  ```Python3  \n  a\n  ```", "a"),
        ("```" + " " * 100_000 + "x", ""),
    ],
)
def test_the_last_block_of_python_counts(text, code):
    assert find_code(response(text)["output"]) == code


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, "missing required field `hidden_tests`"),
        ({"hidden_tests": []}, "has no hidden_tests"),
        (
            {"hidden_tests": [{"args": 3, "expected": 1}]},
            r"Expected `array`, got `int` - at `\$\.hidden",
        ),
        ({"hidden_tests": [{"args": [], "expected": 1}], "time_limit": 0}, "Expected `int` >= 1"),
    ],
)
def test_a_row_whose_tests_cannot_be_read_is_a_verifier_error(row, words):
    with pytest.raises(VerifierError, match=words) as refused:
        read_tests(row)
    assert not refused.value.transient


@needs_sandbox
@pytest.mark.parametrize(
    ("expected", "expression", "passes"),
    [
        (1, "1", True),
        (1, "1.0", False),
        (1, "True", False),
        (0.1 + 0.2, "0.3", True),
        (0.5, "0.50001", False),
        ([1, [2]], "(1, (2,))", True),
        ({"a": [1]}, "{'a': [1]}", True),
        ({"a": 1}, "{'a': 1, 'b': 2}", False),
        ({"1": 2}, "{1: 2}", True),
        (None, "None", True),
        (None, "0", False),
        ("ö", "'ö'", True),
        ([1], "{1}", False),
        (10**40, "10**40", True),
    ],
)
def test_values_are_compared_as_json_values_of_the_same_type(expected, expression, passes):
    tests = HiddenTests(hidden_tests=[HiddenTest(args=[], expected=expected)] * 2)
    assert run_tests(f"def solve():\n    return {expression}", tests).passed == 2 * passes


def test_without_a_sandbox_an_attempt_fails_and_has_no_reward(no_sandbox):
    async def attempt():
        server = InProcessServer("code_exec", name="code")
        probe = await server.probe()
        session = await server.seed_session(ROW, seed=1)
        with pytest.raises(EnvironmentFault, match="code cannot be run here: GYMWEB_SANDBOX is none") as fault:
            await session.call_tool("run_python", {"code": "print(1)"})
        with pytest.raises(VerifierError, match="code cannot be run here") as error:
            await session.verify(response(RIGHT))
        return probe, fault.value.is_misconfigured, error.value.is_misconfigured

    probe, *ours = asyncio.run(attempt())
    assert (probe.healthy, probe.message) == (False, "code cannot be run here: GYMWEB_SANDBOX is none")
    assert ours == [True, True]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param("bubblewrap", "code runs in bubblewrap", marks=needs_sandbox),
        (
            "unprivileged_process",
            "unprivileged_process, which does not isolate: code reaches the network, reads every file",
        ),
    ],
)
def test_a_health_check_says_where_code_runs_and_what_that_lacks(kind, words):
    before = the_sandbox().choice
    choose_sandbox(Choice(kind=kind))
    try:
        probe = asyncio.run(InProcessServer("code_exec", name="code").probe())
    finally:
        choose_sandbox(before)
    assert (probe.healthy, words in probe.message) == (True, True)


def test_every_step_is_drawn_and_tested():
    rows = list(generate_tasks(kit.KIT, count=600, seed=1))
    drawn = {name for row in rows for name, _ in row["steps"][:-1]}
    assert drawn == {step.__name__ for step in steps.NUMBERED}
    assert {row["steps"][-1] for row in rows} == {step.__name__ for step in steps.RETURNED}
    assert all([] in [test["args"][0] for test in row["hidden_tests"]] for row in rows)
    by_steps = {json.dumps(row["steps"]): row["hidden_tests"] for row in generate_tasks(kit.KIT, count=600, seed=2)}
    same = [row for row in rows if json.dumps(row["steps"]) in by_steps]
    assert len(same) > 10
    assert [row for row in same if by_steps[json.dumps(row["steps"])] != row["hidden_tests"]] == []


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_every_step_of_an_exercise_and_every_number_makes_a_difference_to_its_hidden_tests(difficulty):
    for row in generate_tasks(kit.KIT, count=60, seed=11, difficulty=difficulty):
        *chosen, last = row["steps"]

        def passes(changed, row=row, last=last):
            return all(solve(changed, last, test["args"][0]) == test["expected"] for test in row["hidden_tests"])

        assert passes(chosen)
        for at, (name, number) in enumerate(chosen):
            before, after = chosen[:at], chosen[at + 1 :]
            assert not passes([*before, *after])
            assert not passes([*before, [name, number + 1], *after])
            assert name == "digit_sums" or not passes([*before, [name, number - 1], *after])


def test_a_step_that_does_nothing_is_found():
    tests = [{"args": [[at, 3, 1, -at]], "expected": max(at, 3) - min(-at, 1)} for at in range(12)]
    found = list(kit.find_doubts([["rotate", 3]], "spread", tests))
    assert found == [([], "spread"), ([["rotate", 2]], "spread"), ([["rotate", 4]], "spread")]


def test_two_steps_exchanged_are_found_where_their_order_matters():
    # Lists of one number each tell neither pair apart.
    lists = [[at] * 4 for at in range(1, 9)]
    commuting = [["drop_multiples", 2], ["keep_above", 3]]
    ordered = [["turn_blocks", 2], ["every_nth", 2]]
    for chosen, doubts in ((commuting, []), (ordered, [(ordered[::-1], "total")])):
        tests = [{"args": [values], "expected": solve(chosen, "total", values)} for values in lists]
        assert [one for one in kit.find_doubts(chosen, "total", tests) if one[0] == chosen[::-1]] == doubts


def solve(chosen, last, values):
    for name, number in chosen:
        values = getattr(steps, name)(values, number)
    return getattr(steps, last)(values)
