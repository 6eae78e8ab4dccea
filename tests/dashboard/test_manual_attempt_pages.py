"""The pages for manual attempts and for verifier cases."""

import json

import pytest

from apps.gym.loop.trials.players import reward_of
from tests.dashboard.pages import squeezed
from tests.factories import make_dataset, make_environment

URL = "/environments/sums/try/"
CASES = "/environments/sums/cases/"
HTMX = {"HX-Request": "true"}
ROW = {"responses_create_params": {"input": "What is <b>6 * 7</b>?"}, "expected_answer": "42"}


@pytest.fixture(autouse=True)
def environment(db):
    return make_environment(slug="sums", name="Sums", builtin="calculator")


def send(pages, act, *, moves=(), headers=None, **given):
    body = {"row": json.dumps(ROW), "seed": "0", "moves": json.dumps(list(moves)), "act": act, **given}
    return pages.post(URL, body, headers=headers or {})


def moves_of(reply):
    return reply.context["form"].initial["moves"]


def test_the_page_begins_with_a_task_and_its_tools(pages):
    assert f'href="{URL}"' in pages.get("/environments/sums/").text
    page = pages.get(URL).text
    assert "Results appear here." in page
    assert '<option value="calculator">' in page
    assert "&quot;expected_answer&quot;" in page
    assert "style=" not in page


def test_an_attempt_is_played_step_by_step_and_verified(pages):
    seeded = send(pages, "begin")
    assert (seeded.status_code, moves_of(seeded)) == (200, [])
    assert "Add the next action" in seeded.text
    assert "What is &lt;b&gt;6 * 7&lt;/b&gt;?" in seeded.text
    called = send(pages, "call", tool="calculator", arguments='{"expression": "6 * 7"}', headers=HTMX)
    page = squeezed(called.text)
    assert "<title>" not in page
    assert "Call <code>calculator</code>" in page
    assert "42" in page
    first = [{"calls": [{"name": "calculator", "arguments": {"expression": "6 * 7"}}]}]
    assert moves_of(called) == first
    verified = send(pages, "verify", moves=first, answer="\\boxed{42}")
    assert moves_of(verified) == [*first, {"text": "\\boxed{42}"}]
    assert "reward 1" in squeezed(verified.text)
    again = send(pages, "begin", moves=first)
    assert moves_of(again) == []


def test_a_reply_goes_on_without_a_verdict_where_the_environment_goes_on(pages):
    assert moves_of(send(pages, "reply", answer="hm")) == [{"text": "hm"}]
    assert moves_of(send(pages, "reply", answer="")) == []


def test_errors_are_beside_their_fields_and_input_is_kept(pages):
    reply = send(pages, "call", row="{oops", headers=HTMX)
    assert (reply.status_code, list(reply.context["form"].errors)) == (422, ["row"])
    assert "{oops" in reply.text
    wrong = send(pages, "begin", row='{"responses_create_params": {"input": 3}}')
    assert list(wrong.context["form"].errors) == ["row"]
    assert list(send(pages, "call", tool="abacus").context["form"].errors) == ["tool"]


def test_a_failure_is_shown_in_place_of_a_verdict(pages):
    page = squeezed(send(pages, "verify", row='{"x": 1}', answer="42").text)
    assert 'class="event error trouble"' in page
    assert "expected_answer" in page


def test_the_cases_are_listed_and_run(pages):
    listed = pages.get(CASES).text
    assert f'href="{CASES}"' in pages.get("/environments/sums/").text
    assert "one off" in listed
    assert "Run cases" in listed
    page = squeezed(pages.post(CASES, headers=HTMX).text)
    assert "<title>" not in page
    assert "all passed" in page
    assert page.count("passed</span>") == len(pages.get(CASES).context["cases"])


def test_an_environment_without_cases_says_so(pages):
    make_environment(slug="plain", adapter="declared", builtin="")
    assert "has no cases" in pages.get("/environments/plain/cases/").text
    assert "plain has no cases" in pages.post("/environments/plain/cases/").text
    assert "/environments/plain/cases/" not in pages.get("/environments/plain/").text


def test_credentials_of_a_task_are_masked_and_its_unedited_row_is_verified_as_uploaded(pages, environment):
    secret = "ghp_" + "a1B2c3D4e" * 4
    row = {"responses_create_params": {"input": f"Repeat {secret}"}, "expected_answer": secret}
    exact = make_environment(slug="words", name="Words", builtin="exact_match")
    task = make_dataset([row], environment=exact, slug="words").latest_version().tasks.get()
    url = f"/environments/words/try/?task={task.pk}"
    shown = pages.get(url)
    assert (secret in shown.text, "[REDACTED:github_token]" in shown.text) == (False, True)
    form = shown.context["form"].initial
    body = {"row": json.dumps(form["row"]), "task": form["task"], "seed": "0", "moves": "[]", "act": "verify"}
    played = pages.post(url, {**body, "answer": secret})
    assert reward_of(played.context["played"].events) == 1.0
    assert secret not in str(played.context["trace"])
    edited = pages.post(url, {**body, "row": json.dumps({**form["row"], "expected_answer": "4"}), "answer": "4"})
    assert reward_of(edited.context["played"].events) == 1.0
