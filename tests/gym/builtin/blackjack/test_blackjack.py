import random

import pytest

from apps.gym.environments.blackjack.blackjack_rules import Round, basic_strategy, count
from apps.gym.environments.blackjack.environment import Blackjack, read_action
from apps.gym.environments.blackjack.kit import deal
from apps.gym.errors import EnvironmentFault

PARAMS = {"responses_create_params": {"input": "Play."}}


@pytest.mark.parametrize(
    ("cards", "hand"),
    [
        (["A", "K"], (21, True)),
        (["A", "A"], (12, True)),
        (["A", "A", "9"], (21, True)),
        (["A", "6", "K"], (17, False)),
        (["10", "J", "2"], (22, False)),
    ],
)
def test_an_ace_counts_eleven_where_it_can(cards, hand):
    assert count(cards) == hand


@pytest.mark.parametrize(
    ("cards", "shown", "action"),
    [
        (["10", "6"], "7", "hit"),
        (["10", "6"], "6", "stand"),
        (["10", "2"], "3", "hit"),
        (["10", "2"], "4", "stand"),
        (["A", "7"], "8", "stand"),
        (["A", "7"], "9", "hit"),
        (["A", "6"], "6", "hit"),
        (["5", "6"], "6", "hit"),
        (["10", "7"], "A", "stand"),
    ],
)
def test_basic_strategy(cards, shown, action):
    assert basic_strategy(cards, shown) == action


@pytest.mark.parametrize(
    ("cards", "actions", "result"),
    [
        (["10", "9", "10", "8"], ["stand"], 1),
        (["10", "8", "10", "8"], ["stand"], 0),
        (["10", "7", "10", "8"], ["stand"], -1),
        (["10", "6", "10", "8", "9"], ["hit"], -1),
        (["10", "6", "10", "8", "5"], ["hit"], 1),
        (["10", "2", "10", "6", "K"], ["stand"], 1),
        (["10", "9", "A", "6", "5"], ["stand"], 1),
        (["5", "4", "10", "8", "2"], ["hit"], None),
    ],
)
def test_a_round(cards, actions, result):
    played = Round(cards)
    for action in actions:
        played.act(action)
    assert played.result == result


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("hit", "hit"),
        ("I could hit.\nStand.", "stand"),
        ("hit or stand", None),
        ("hitting", None),
        ("", None),
        ("```\nhit\n```", "hit"),
        ("I have 12.\n**Stand**\n---", "stand"),
    ],
)
def test_the_action_is_the_one_that_the_last_line_names(reply, action):
    assert read_action(reply) == action


def test_no_simple_way_to_play_reaches_the_target():
    for seed in range(30):
        rounds, target = deal(random.Random(seed), 5)
        for always in ("hit", "stand"):
            results = []
            for cards in rounds:
                played = Round(list(cards))
                while played.result is None:
                    played.act(always)
                results.append(played.result)
            assert sum(results) < target


def test_a_row_that_is_no_game_is_a_fault_of_the_environment():
    for rounds in ([], [["A"]], [["A", "K", "Q", "1"]], "AKQ10"):
        with pytest.raises(EnvironmentFault, match="the task row's `rounds` must be 1 to 50 lists"):
            Blackjack({**PARAMS, "rounds": rounds, "target": 1}).reset()
    with pytest.raises(EnvironmentFault, match="`target` must be a whole number"):
        Blackjack({**PARAMS, "rounds": [["A", "K", "Q", "9"]], "target": "1"}).reset()
