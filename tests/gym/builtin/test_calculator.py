import pytest

from apps.gym.environments.calculator.environment import Calculator
from apps.gym.environments.kits import KITS
from apps.gym.environments.protocol import ToolRefused
from apps.gym.environments.task_generation import generate_tasks
from tests.gym.verifiers.replies import response

ROW = {"responses_create_params": {"input": "What is 6 * 7?"}, "expected_answer": "42"}


def test_the_tool_gives_its_result_as_json():
    calculator = Calculator(ROW)
    assert calculator.call_tool("calculator", {"expression": "6 * 7"}) == '{"result": 42}'
    assert calculator.call_tool("calculator", {"expression": "7 / 2"}) == '{"result": 3.5}'
    assert calculator.call_tool("calculator", {"expression": "2 ** 100"}) == f'{{"result": {2**100}}}'


@pytest.mark.parametrize("arguments", [{}, {"expression": 6}, {"expression": "1", "digits": 2}, {"formula": "1"}])
def test_wrong_arguments_are_refused_with_the_right_form(arguments):
    with pytest.raises(ToolRefused, match="takes one argument") as caught:
        Calculator(ROW).call_tool("calculator", arguments)
    assert caught.value.error == "bad_arguments"


def test_a_calculation_without_a_result_is_refused_with_its_reason():
    with pytest.raises(ToolRefused, match="division by zero") as caught:
        Calculator(ROW).call_tool("calculator", {"expression": "1 / 0"})
    assert caught.value.error == "calculation_error"


def test_another_tool_is_refused_with_the_names_there_are():
    with pytest.raises(ToolRefused, match="no tool named 'eval'; the tools are: calculator") as caught:
        Calculator(ROW).call_tool("eval", {})
    assert caught.value.error == "unknown_tool"


def test_the_final_answer_is_verified_as_a_number():
    calculator = Calculator(ROW)
    assert calculator.verify(response("6 * 7 is\n42.0")).value == 1.0
    assert calculator.verify(response("41")).value == 0.0
    assert calculator.respond([]) is None


def test_no_task_of_one_split_is_a_task_of_the_other_in_other_words():
    asked = {"train": set(), "validation": set()}
    for row in generate_tasks(KITS["calculator"], count=1000, seed=7, difficulty="easy"):
        asked[row["split"]].add(frozenset(row["expression"].split(" * ")))
    assert len(asked["train"]) == 800
    assert len(asked["validation"]) == 200
    assert asked["train"] & asked["validation"] == set()
