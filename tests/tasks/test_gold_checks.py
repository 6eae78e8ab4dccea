"""After loading, the gold answers of tasks are scored by their own verifier: a wrong mapping is found at once."""

import io
import json

import pytest

from apps.environments.models import Adapter
from apps.tasks import gold_checks
from apps.tasks.gold_checks import can_check, check_gold_answers, describe_check
from apps.tasks.models import DatasetVersion
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_jobs import upload_file
from tests.dashboard.pages import signed_in
from tests.factories import make_dataset, make_environment, make_user

pytestmark = pytest.mark.django_db

GSM8K = "She sold 48/2 = <<48/2=24>>24 clips in May.\nTogether 48+24 = <<48+24=72>>72.\n#### 72"
MATH = "The sum of the roots is $-b/a$, so the answer is $\\boxed{42}$."
SHORT = {"input": "question", "expected_answer": "answer"}
CALL = {"name": "get_weather", "arguments": {"city": "Bern"}}


def load(verifier, *rows, builtin=None, mapping=None):
    given = {"builtin": builtin} if builtin else {"adapter": Adapter.DECLARED, "builtin": "", "verifier": verifier}
    dataset = make_dataset(rows=[], environment=make_environment(**given))
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    upload = upload_file(
        dataset=dataset, stream=io.BytesIO(content), filename="tasks.jsonl", choices=Choices(mapping=mapping)
    )
    assert upload.version is not None, upload.message
    return upload.version


PLANTED = {
    "GSM8K with its derivation": ({"type": "exact_match"}, {"question": "How many?", "answer": GSM8K}, SHORT),
    "MATH with its solution": (
        {"type": "exact_match"},
        {"problem": "Find it.", "solution": MATH},
        {"input": "problem", "expected_answer": "solution"},
    ),
    "reasoning before the answer": (
        {"type": "string_match"},
        {"question": "How many?", "answer": "<think>6 times 7, so</think>\n42"},
        None,
    ),
    "the prompt as the answer": (
        {"type": "exact_match"},
        {"question": "How many?", "count": "42"},
        {"input": "question", "fields": {"expected_answer": "question"}},
    ),
    "calls in the form of Chat Completions": (
        {"type": "tool_calls"},
        {"question": "Is it raining?", "calls": [{"type": "function", "function": CALL}]},
        {"input": "question", "fields": {"expected_answers": "calls"}},
    ),
}
RIGHT = {
    "a short answer": ({"type": "exact_match"}, {"question": "How many?", "answer": "72"}, None),
    "a solution that the verifier reads": ({"type": "math"}, {"question": "Find it.", "answer": "$\\boxed{42}$"}, None),
    "calls": (
        {"type": "tool_calls"},
        {"question": "Is it raining?", "calls": [CALL]},
        {"input": "question", "fields": {"expected_answers": "calls"}},
    ),
    "a letter": (
        {"type": "multiple_choice"},
        {"question": "Which?", "options": [{"A": "Mars"}, {"B": "Venus"}], "answer": "B"},
        None,
    ),
    "a hybrid with a part that needs no answer": (
        {
            "type": "hybrid",
            "components": [
                {"name": "right", "verifier": {"type": "numeric"}},
                {"name": "boxed", "verifier": {"type": "regex", "wanted": ["boxed"]}},
            ],
        },
        {"question": "How many?", "answer": "42"},
        None,
    ),
}


@pytest.mark.parametrize(("verifier", "row", "mapping"), PLANTED.values(), ids=PLANTED)
def test_every_planted_wrong_mapping_is_found_right_after_loading(verifier, row, mapping):
    version = load(verifier, row, row, mapping=mapping)
    assert (version.gold_check["less"], version.gold_check["full"], version.gold_next) == (2, 0, None)
    assert "2 of 2 expected answers get less than full reward" in describe_check(version)
    page = signed_in().get(f"/datasets/{version.dataset.slug}/").text
    assert "2 of 2 expected answers get less than full reward" in page


@pytest.mark.parametrize(("verifier", "row", "mapping"), RIGHT.values(), ids=RIGHT)
def test_a_right_mapping_gets_full_reward(verifier, row, mapping):
    version = load(verifier, row, mapping=mapping)
    assert (version.gold_check["full"], version.gold_check["less"]) == (1, 0), version.gold_check


def test_an_environment_of_its_own_is_checked_by_its_solver():
    version = load(
        None,
        {"question": "q", "answer": GSM8K},
        {"question": "q", "answer": "72"},
        builtin="exact_match",
        mapping=SHORT,
    )
    assert [version.gold_check[name] for name in ("full", "less", "unknown")] == [1, 1, 0]
    (less,) = version.gold_check["first"]
    assert (less["number"], less["reward"]) == (1, 0.0)


def test_the_first_tasks_are_scored_at_once_and_all_in_the_background(monkeypatch):
    monkeypatch.setattr(gold_checks, "SAMPLE", 3)
    monkeypatch.setattr(gold_checks, "CHUNK", 4)
    rows = [{"question": f"{n}?", "answer": "42" if n % 2 else GSM8K} for n in range(10)]
    version = load({"type": "exact_match"}, *rows, mapping=SHORT)
    assert (version.gold_next, version.gold_check["less"], version.gold_check["full"]) == (3, 2, 1)
    assert "2 of the first 3 expected answers" in describe_check(version)
    done = [check_gold_answers() for _ in range(4)]
    assert done == [True, True, False, False] or done == [True, True, True, False]
    version = DatasetVersion.objects.get(pk=version.pk)
    assert (version.gold_next, version.gold_check["less"], version.gold_check["full"]) == (None, 5, 5)


def test_the_detected_mapping_of_gsm8k_takes_the_answer_after_the_hashes():
    version = load({"type": "exact_match"}, {"question": "How many?", "answer": GSM8K})
    row = version.tasks.get().row
    assert (row["expected_answer"], row["answer"], version.gold_check["full"]) == ("72", GSM8K, 1)


def test_answers_are_checked_again_after_the_verifier_was_corrected(client):
    version = load({"type": "exact_match"}, {"question": "How many?", "answer": "72 clips"}, mapping=SHORT)
    environment = version.dataset.environment
    environment.verifier = {"type": "numeric"}
    environment.save()
    user = make_user()
    client.force_login(user)
    address = f"/datasets/{version.dataset.slug}/"
    assert "Score expected answers again" in client.get(address).text
    assert client.post(f"{address}check/?v={version.number}").status_code == 302
    asked = DatasetVersion.objects.get(pk=version.pk)
    assert (asked.gold_next, asked.gold_check) == (0, None)
    assert check_gold_answers()
    again = client.post(f"/api/v1{address}versions/{version.number}/gold/")
    assert (again.status_code, again.json()["gold"]["complete"]) == (202, False)


def test_a_server_of_others_cannot_be_asked_to_check(client):
    far = make_environment(adapter=Adapter.HTTP, builtin="", base_url="http://127.0.0.1:1", slug="far")
    dataset = make_dataset(environment=far)
    client.force_login(make_user())
    refused = client.post(f"/api/v1/datasets/{dataset.slug}/versions/1/gold/")
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (409, "not-checkable")


def test_servers_of_others_and_environments_without_verification_are_not_checked():
    assert not can_check(make_environment(adapter=Adapter.HTTP, builtin="", base_url="http://127.0.0.1:1", slug="far"))
    assert not can_check(make_environment(verifies=False, slug="people"))
    version = load({"type": "regex", "wanted": ["a"]}, {"question": "q", "answer": "a"})
    assert (version.gold_check["unknown"], describe_check(version)) == (1, "")


@pytest.mark.parametrize(("unknown", "told"), [(0, "All 38 "), (2, "38 of 40 ")])
def test_tasks_without_a_score_are_counted_in_the_message(unknown: int, told: str):
    version = DatasetVersion(gold_check={"full": 38, "less": 0, "unknown": unknown})
    assert told in describe_check(version)


def test_a_verifier_that_accepts_a_wrong_copy_of_the_answer_is_told_with_the_copies(client):
    rows = [{"question": "How many?", "answer": answer} for answer in ("100", "7")]
    version = load({"type": "numeric", "absolute_tolerance": 150}, *rows)
    assert [version.gold_check[name] for name in ("full", "near", "texts")] == [2, 2, 0]
    assert version.gold_check["copies"][0] == {
        "task": version.tasks.first().pk,
        "number": 1,
        "change": "digit",
        "accepts": "200",
    }
    client.force_login(make_user())
    address = f"/datasets/{version.dataset.slug}/"
    page = client.get(address).text
    assert "The verifier also accepts a wrong copy of 2 expected answers, so it may reward wrong answers." in page
    assert "Choose another verifier" in page
    tasks = [each["task"] for each in version.gold_check["copies"]]
    assert client.post(f"{address}mark/", {"action": "retire", "task": tasks}).status_code == 302
    assert all(task.is_retired for task in version.tasks.all())


@pytest.mark.parametrize(
    ("verifier", "answer", "change", "accepts"),
    [
        ({"type": "numeric", "absolute_tolerance": 1}, "100", "digit", "101"),
        ({"type": "numeric", "relative_tolerance": 0.05}, "1234", "digit", "1235"),
        ({"type": "numeric", "absolute_tolerance": 3}, "-1", "sign", "1"),
        ({"type": "string_match"}, "1969", "digit", "1960"),
    ],
)
def test_near_copies_that_are_accepted_are_told(verifier, answer, change, accepts):
    version = load(verifier, {"question": "How many?", "answer": answer})
    (copy,) = version.gold_check["copies"]
    assert (copy["change"], copy["accepts"]) == (change, accepts)


def test_expected_answers_that_are_no_mathematics_are_counted():
    version = load({"type": "math"}, *({"question": "Find it.", "answer": one} for one in (r"x\equiv 3 \pmod 7", "12")))
    assert [version.gold_check[name] for name in ("full", "near", "texts")] == [2, 0, 1]
    assert version.gold_check["unread"] == [
        {"task": version.tasks.first().pk, "number": 1, "expected": r"x\equiv 3 \pmod 7"}
    ]
    page = signed_in().get(f"/datasets/{version.dataset.slug}/").text
    assert "1 expected answer is no mathematics that the verifier can read" in page
    assert r"<code>x\equiv 3 \pmod 7</code>" in page
