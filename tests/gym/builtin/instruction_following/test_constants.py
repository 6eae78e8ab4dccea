"""No text that is given to every task is paid for many of them."""

import random
from math import prod, sqrt

import pytest

from apps.gym.environments.instruction_following import kit
from apps.gym.environments.instruction_following.constraints import ENDS, MAKERS, STARTS, TOPICS
from apps.gym.environments.instruction_following.environment import InstructionFollowing
from apps.gym.environments.instruction_following.kit import KIT
from apps.gym.environments.instruction_following.writing import write_answer
from apps.gym.environments.task_generation import DIFFICULTIES, generate_tasks
from apps.gym.verifiers.instructions.ifeval_checks import CONSTRAINTS
from tests.gym.verifiers.replies import attempt, says


@pytest.mark.parametrize("maker", MAKERS)
def test_a_text_meets_no_larger_part_of_the_draws_of_a_constraint_than_it_says(maker):
    dice = random.Random(1)
    topic = "a lost suitcase"
    drawn = [maker(dice, topic) for _ in range(600)]
    chance = drawn[0].chance
    assert {one.chance for one in drawn} == {chance}
    for one in drawn[:3]:
        # What is written for one of them is what meets most of the others too.
        text = write_answer(one.checks)
        met = sum(all(CONSTRAINTS[name].follows(text, given) for name, given in other.checks) for other in drawn)
        assert met / len(drawn) <= chance + 4 * sqrt(chance / len(drawn))


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_the_constraints_of_a_task_are_met_together_by_no_text_for_many(difficulty, monkeypatch):
    chosen = []
    choose = kit._choose

    def keep(*given):
        chosen.append(choose(*given))
        return chosen[-1]

    monkeypatch.setattr(kit, "_choose", keep)
    rows = list(generate_tasks(KIT, count=100, seed=2, difficulty=difficulty))
    assert len(chosen) >= len(rows)
    assert max(prod(one.chance for one in asked) for asked in chosen) <= kit.MOST_CHANCE <= 0.1


def test_where_tasks_are_drawn_without_that_rule_the_search_finds_a_text_that_is_paid(monkeypatch):
    monkeypatch.setattr(kit, "MOST_CHANCE", 1.0)
    monkeypatch.setattr(kit, "_TASKS", 40)
    found = kit.find_constant.__wrapped__("easy")
    rows = list(generate_tasks(KIT, count=200, seed=4, difficulty="easy"))
    paid = [InstructionFollowing(row).verify(attempt(says(found))).value for row in rows]
    assert sum(paid) / len(paid) > 0.15


def test_no_phrase_is_met_by_another():
    assert [(one, other) for one in STARTS for other in STARTS if one != other and one.startswith(other)] == []
    assert [(one, other) for one in ENDS for other in ENDS if one != other and one.endswith(other)] == []
    assert len(set(STARTS)) == 63
    assert len(set(ENDS)) == 28


def test_every_topic_has_a_word_of_its_own():
    assert len(set(TOPICS.values())) == len(TOPICS) == 20


def test_impossible_constraints_are_explained():
    with pytest.raises(ValueError, match="no text follows all of"):
        write_answer([("length_constraints:number_words", {"num_words": 0, "relation": "less than"})])
