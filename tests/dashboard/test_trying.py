"""The page to try a model: one prompt, one reply, read as a trace."""

import pytest

from tests.dashboard.pages import squeezed
from tests.factories import make_policy_model

URL = "/models/rules/try/"
HTMX = {"HX-Request": "true"}


@pytest.fixture(autouse=True)
def model(db):
    return make_policy_model(slug="rules", name="Rules", mistake_rate=0.0)


def test_the_page_offers_a_tool_to_begin_with_and_works_without_a_script(pages):
    page = pages.get(URL).text
    assert "&quot;name&quot;: &quot;calculator&quot;" in page
    assert "reply appears" in page
    assert f'href="{URL}"' in pages.get("/models/rules/").text
    page = squeezed(pages.post(URL, {"prompt": "What is 2 + 2?", "tools": "", "sampling": ""}).text)
    assert "<title>Try Rules" in page
    assert 'class="event model_call" id="e1"' in page
    assert "What is 2 + 2?" in page
    assert "style=" not in page


def test_a_call_of_a_tool_is_shown_as_one_that_was_not_run(pages):
    tools = '[{"name": "calculator", "parameters": {"type": "object", "properties": {"expression": {}}}}]'
    page = squeezed(pages.post(URL, {"prompt": "What is 21 * 3?", "tools": tools}, headers=HTMX).text)
    assert "<title>" not in page
    assert "Call <code>calculator</code>" in page
    assert "Not run" in page


def test_all_errors_are_beside_their_fields_and_input_is_kept(pages):
    given = {"prompt": "1?", "system": "Be brief.", "tools": '[{"name": "a b"}]', "sampling": '{"temperature": 9}'}
    reply = pages.post(URL, given, headers=HTMX)
    assert reply.status_code == 422
    errors = reply.context["form"].errors
    assert errors.keys() == {"tools", "sampling"}
    assert (errors["tools"][0].startswith("/0/name "), "'a b'" in errors["tools"][0]) == (True, True)
    assert [part in errors["sampling"][0] for part in ("temperature", "from 0 to 2", "not 9")] == [True] * 3
    assert "Be brief." in reply.text
    assert "[{&quot;name&quot;: &quot;a b&quot;}]" in reply.text
    assert pages.post(URL, {"prompt": ""}).context["form"].errors.keys() == {"prompt"}
    (not_json,) = pages.post(URL, {"prompt": "1?", "tools": "[}"}).context["form"].errors["tools"]
    assert "line 1, column 2" in not_json


def test_an_error_of_the_endpoint_is_read_in_place_of_the_reply(pages, model):
    model.provider, model.base_url, model.model_name = "compatible", "http://10.0.0.1/v1", "m"
    model.save()
    page = squeezed(pages.post(URL, {"prompt": "<b>1?</b>"}).text)
    assert 'class="event error trouble"' in page
    assert "10.0.0.1:80 is not a public address" in page
    assert "&lt;b&gt;1?&lt;/b&gt;" in page


def test_a_viewer_is_offered_no_trial(viewer_pages):
    assert URL not in viewer_pages.get("/models/rules/").text
    assert viewer_pages.get(URL).status_code == 403
