"""What answers replies is tried by hand as any other environment."""

import pytest

from apps.environments.manual_attempts import play_session
from apps.environments.verifier_cases import prove_environment
from apps.gym.traces.events import event_kind
from tests.factories import make_environment

pytestmark = pytest.mark.django_db

BOARD = {
    "responses_create_params": {"input": "Push."},
    "board": ["######", "#@$ .#", "######"],
    "max_moves": 8,
}
THING = {"responses_create_params": {"input": "Ask."}, "secret": "oak", "most_questions": 3}


@pytest.mark.parametrize(
    ("builtin", "row", "said", "seen"),
    [
        ("sokoban", BOARD, ["Moves: right", "Moves: right"], "Solved."),
        ("twenty_questions", THING, ["Is it a plant?", "Guess: oak"], "2 questions left."),
    ],
)
def test_a_game_is_played_by_hand(builtin, row, said, seen):
    environment = make_environment(builtin=builtin)
    moves = [{"text": text} for text in said]
    begun = play_session(environment=environment, row=row, moves=moves[:1], user=None)
    assert (event_kind(begun.events[-1]), begun.verdict) == ("environment_turn", None)
    ended = play_session(environment=environment, row=row, moves=moves, user=None, verify=True)
    assert (ended.verdict.reward, ended.verdict.stop_reason) == (1.0, "environment_done")
    told = [event for event in ended.events if event_kind(event) == "environment_turn"]
    assert told[-1].items[0]["content"].endswith(seen)


@pytest.mark.parametrize("builtin", ["sokoban", "twenty_questions", "workplace"])
def test_its_cases_are_proved(builtin):
    results = prove_environment(environment=make_environment(builtin=builtin), user=None)
    assert [result.problem for result in results if not result.passed] == []
    assert len(results) > 8
