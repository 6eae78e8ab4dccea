import pytest
from django.core.exceptions import ValidationError

from apps.accounts.models import AuditEntry
from apps.environments.manual_attempts import play_session, suggest_row
from apps.environments.verifier_cases import CasesNotRun, find_cases, prove_environment
from apps.gym.environments.calculator.environment import Calculator
from apps.gym.environments.task_generation import Case, say
from apps.gym.rewards import Reward
from apps.gym.traces.events import event_kind
from apps.gym.written import Environment as Written
from apps.gym.written.registry import WRITTEN
from tests.factories import make_environment, make_policy_model, make_user

pytestmark = pytest.mark.django_db
ROW = {"responses_create_params": {"input": "What is 6 * 7?"}, "expected_answer": "42"}
CALL = {"calls": [{"name": "calculator", "arguments": {"expression": "6 * 7"}}]}


def play(moves, *, environment=None, row=ROW, **given):
    return play_session(
        environment=environment or make_environment(builtin="calculator"), row=row, moves=moves, user=None, **given
    )


def kinds(played):
    return [event_kind(event) for event in played.events]


def test_a_session_is_seeded_and_waits_for_the_next_move():
    played = play([])
    assert kinds(played) == ["session", "prompt"]
    assert [tool["name"] for tool in played.events[0].tools] == ["calculator"]
    assert (played.verdict, played.failure) == (None, None)


def test_a_tool_is_called_and_its_output_read():
    played = play([CALL])
    assert kinds(played) == ["session", "prompt", "model_call", "tool_result"]
    assert played.events[-1].output == '{"result": 42}'
    wrong = play([{"calls": [{"name": "calculator", "arguments": "{oops"}]}])
    assert wrong.events[-1].error == "invalid_arguments"


def test_a_typed_reply_is_verified():
    right = play([CALL, {"text": "\\boxed{42}"}], verify=True)
    assert (right.verdict.reward, right.verdict.stop_reason) == (1.0, "answered")
    assert play([{"text": "\\boxed{41}"}], verify=True).verdict.reward == 0.0
    # Amid the attempt, as one that reached its last step.
    assert play([CALL], verify=True).verdict.stop_reason == "max_steps"


def test_the_log_says_that_it_was_done_and_nothing_else_is_stored():
    user = make_user()
    environment = make_environment(slug="sums", builtin="calculator")
    play_session(environment=environment, row=ROW, moves=[CALL], user=user)
    entry = AuditEntry.objects.get(target="sums")
    assert (entry.action, entry.user, entry.detail["moves"], entry.detail["verified"]) == (
        "environment.try",
        user,
        1,
        False,
    )


def test_an_environment_error_is_part_of_the_result():
    away = make_environment(slug="away", adapter="http", builtin="", base_url="http://127.0.0.1:9")
    failure = play([CALL], environment=away).failure
    assert (failure.kind, "127.0.0.1:9 is not a public address" in failure.message) == ("environment_error", True)
    unverifiable = play([{"text": "42"}], row={"responses_create_params": {"input": "?"}}, verify=True)
    assert (unverifiable.failure.kind, unverifiable.verdict) == ("verifier_error", None)


def test_a_row_without_a_prompt_is_one_for_its_verifier_alone():
    assert play([{"text": "7"}], row={"expected_answer": 7}, verify=True).verdict.reward == 1.0


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"moves": [{"text": 3}]}, "moves", "at `$[0].text`"),
        ({"moves": [{"calls": [{}]}]}, "moves", "missing required field `name`"),
        ({"moves": [{"text": "a"}] * 51}, "moves", "most 50 actions"),
        ({"moves": [], "verify": True}, "moves", "Add at least one action"),
        ({"moves": [{"text": "x" * 500_001}]}, "moves", "at most 500,000 characters"),
        ({"moves": [{"calls": [{"name": "a", "arguments": {"n": 10**30}}]}]}, "moves", "cannot be sent as JSON"),
        ({"moves": [], "row": {"n": 10**30}}, "row", "cannot be sent as JSON"),
        ({"moves": [], "row": {"responses_create_params": {"input": 3}}}, "row", "/responses_create_params/input"),
        ({"moves": [], "row": []}, "row", "must be an object"),
    ],
)
def test_what_cannot_be_played_is_said_by_field(given, field, words):
    with pytest.raises(ValidationError) as refused:
        play(**given)
    ((name, (message,)),) = refused.value.message_dict.items()
    assert (name, words in message) == (field, True)


def test_no_judge_is_asked_by_hand():
    judge = make_policy_model(slug="judge", mistake_rate=0.0)
    environment = make_environment(slug="essays", builtin="judged", judge_model=judge)
    with pytest.raises(ValidationError, match="A judge model runs only in a collection"):
        play([{"text": "An essay."}], environment=environment, verify=True)
    assert kinds(play([], environment=environment)) == ["session", "prompt"]


def test_a_row_to_begin_with_is_of_the_environments_own_making():
    assert suggest_row(make_environment(slug="a", builtin="calculator"))["difficulty"] == "easy"
    assert suggest_row(make_environment(slug="b", adapter="declared", builtin="")) == {}


def test_cases_are_run_against_the_environments_own_verifier():
    verifier = {"type": "contains", "wanted": ["no such text"]}
    environment = make_environment(slug="sums", builtin="calculator", verifier=verifier, verifies=False)
    results = prove_environment(environment=environment, user=make_user())
    assert [(result.case.name, result.problem) for result in results if result.problem] == []
    assert len(results) == len(find_cases(environment))
    entry = AuditEntry.objects.get(target="sums", action="environment.prove")
    assert (entry.detail["cases"], entry.detail["failed"]) == (len(results), 0)


def test_a_verifier_that_is_wrong_is_found_out(monkeypatch):
    monkeypatch.setattr(Calculator, "verify", lambda self, response: Reward(value=1.0))
    results = prove_environment(environment=make_environment(builtin="calculator"), user=None)
    failed = {result.case.name: result.problem for result in results if not result.passed}
    assert failed["silence"] == "the reward is 1, expected 0"
    assert "solved" not in failed


def test_an_environment_without_cases_says_so():
    environment = make_environment(slug="d", adapter="declared", builtin="")
    assert find_cases(environment) == []
    with pytest.raises(CasesNotRun, match="d has no cases"):
        prove_environment(environment=environment, user=None)


class Leaving(Written):
    """Leaves where it should verify."""

    async def respond(self, items):
        return "go on" if self.row.get("talks") else None

    async def verify(self, attempt):
        raise SystemExit(3)

    @staticmethod
    def cases():
        row = {"responses_create_params": {"input": "?"}}
        return [Case(name="own", kind="zero reward", row=row, play=say("x"), reward=0.0)]


def test_an_exception_of_a_written_environment_is_part_of_the_result(monkeypatch):
    monkeypatch.setitem(WRITTEN, "leaving", Leaving)
    environment = make_environment(slug="leaving", builtin="leaving")
    left = play([{"text": "x"}], environment=environment, verify=True).failure
    assert (left.kind, left.message) == ("verifier_error", "leaving: verify: SystemExit: 3")
    talked = play([{"text": "x"}], environment=environment, row={"talks": True}, verify=True).failure
    assert (talked.kind, talked.message) == (
        "environment_error",
        "leaving: respond: TypeError: returned str, expected a list of items or None",
    )
    # It makes no tasks, and has a case of its own all the same.
    (result,) = prove_environment(environment=environment, user=None)
    assert (result.case.name, result.problem) == ("own", "verifier_error: leaving: verify: SystemExit: 3")


def test_a_kit_that_breaks_leaves_the_page_and_is_told_when_its_cases_are_run(monkeypatch):
    class Halting(Leaving):
        @staticmethod
        def make_task(dice, difficulty):
            raise SystemExit("no tasks")

        solve = staticmethod(say("x"))

    monkeypatch.setitem(WRITTEN, "halting", Halting)
    environment = make_environment(slug="halting", builtin="halting")
    assert (find_cases(environment), suggest_row(environment)) == ([], {})
    with pytest.raises(CasesNotRun, match="halting: make_task: SystemExit: no tasks"):
        prove_environment(environment=environment, user=None)
