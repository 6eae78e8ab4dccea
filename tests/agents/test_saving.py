import re

import pytest
from django.core.exceptions import ValidationError

from apps.accounts.models import AuditEntry
from apps.agents.agent_changes import find_problem, save_agent
from apps.agents.models import Agent
from tests.factories import make_agent, make_user

CALL = {"type": "function_call", "call_id": "c1", "name": "calculator", "arguments": '{"expression": "1+1"}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": '{"result": 2}'}
CONVERSATION = [
    {"role": "user", "content": "What is 1 + 1?"},
    {"type": "reasoning", "summary": []},
    CALL,
    OUTPUT,
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "2"}]},
]


@pytest.mark.django_db
def test_a_default_agent_exists_after_migrating():
    agent = Agent.objects.get(slug="default")
    assert (agent.name, agent.system_prompt, agent.examples, agent.sampling) == ("Default", "", [], {})


@pytest.mark.django_db
def test_an_agent_is_saved_with_its_examples_and_the_log_says_who_did_it():
    user = make_user()
    saved = save_agent(agent=Agent(slug="careful", name="Careful", examples=CONVERSATION), user=user)
    assert Agent.objects.get(slug="careful").examples == CONVERSATION
    save_agent(agent=saved, user=user)
    entries = AuditEntry.objects.filter(target="careful").order_by("id").values_list("user", "action")
    assert list(entries) == [(user.pk, "agent.create"), (user.pk, "agent.change")]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sampling": []}, "sampling"),
        ({"sampling": {"max_output_tokens": 0}}, "sampling"),
        ({"sampling": "hot"}, "sampling"),
        ({"examples": {}}, "examples"),
        ({"examples": [{"role": "user"}]}, "examples"),
        ({"max_steps": 0}, "max_steps"),
        ({"slug": "no spaces"}, "slug"),
    ],
)
def test_a_wrong_agent_is_refused_by_field_and_not_saved(fields, field):
    with pytest.raises(ValidationError) as caught:
        save_agent(agent=Agent(**{"slug": "wrong", "name": "Wrong", **fields}), user=None)
    assert list(caught.value.message_dict) == [field]
    assert not Agent.objects.filter(name="Wrong").exists()


@pytest.mark.django_db
def test_a_slug_is_used_once():
    agent = make_agent()
    with pytest.raises(ValidationError) as caught:
        save_agent(agent=Agent(slug=agent.slug, name="Second"), user=None)
    assert list(caught.value.message_dict) == ["slug"]


@pytest.mark.parametrize(
    ("examples", "problem"),
    [
        ([], "^$"),
        (CONVERSATION, "^$"),
        ("text", "a JSON list"),
        (["text"], "Item 1 is not an object"),
        ([{"role": "robot", "content": "x"}], "Item 1 .*user, assistant, system, developer"),
        ([{"role": "user", "content": 5}], "Item 1 has no content"),
        ([{"type": 5}], "Item 1 .*not text"),
        ([{**CALL, "arguments": {}}], "Item 1 .*without 'arguments'"),
        ([CALL], "'c1' has no function_call_output"),
        ([OUTPUT], "Item 1 .*does not precede"),
        ([CALL, OUTPUT, OUTPUT], "Item 3 .*does not precede"),
        ([CALL, {**OUTPUT, "output": None}], "Item 2 .*without an output"),
        ([CALL, {**OUTPUT, "call_id": []}], "Item 2 .*does not precede"),
    ],
)
def test_examples_are_a_conversation_or_a_problem_with_its_place(examples, problem):
    assert re.search(problem, find_problem(examples))
