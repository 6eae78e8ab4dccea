"""Code on a collection's page that connects an external agent."""

import ast
import re

import pytest

from apps.accounts.models import Role
from apps.dashboard.overview.agent_snippets import write_snippets
from tests.dashboard.markup import faults
from tests.dashboard.pages import signed_in, squeezed
from tests.factories import make_agent, make_collection

pytestmark = pytest.mark.django_db


def test_the_page_of_a_collection_has_code_with_its_id_and_the_address_of_the_server():
    collection = make_collection(agent=make_agent(kind="external"), total=3)
    page = squeezed(signed_in(Role.ENGINEER).get(f"/collections/{collection.pk}/", HTTP_HOST="localhost").text)
    assert faults(page) == []
    assert f"gym.attempt({collection.pk}, " in page
    assert "http://localhost/api/v1/attempts/" in page
    assert re.findall(r'data-copy="connect-([a-z-]+)"', page) == ["openai", "openai-agents", "anthropic", "curl"]
    assert "3 rollouts wait for an agent" in page


@pytest.mark.parametrize(("kind", "state"), [("builtin", "running"), ("external", "completed")])
def test_other_collections_have_none(kind, state):
    collection = make_collection(agent=make_agent(kind=kind), state=state, total=3)
    page = signed_in(Role.ENGINEER).get(f"/collections/{collection.pk}/").text
    assert ('data-copy="connect-' in page, "waits-for-agent" in page) == (False, False)


@pytest.mark.parametrize("ended", [0, 2])
def test_a_collection_without_queued_rollouts_waits_for_no_agent(ended):
    collection = make_collection(agent=make_agent(kind="external"), total=2, completed=ended)
    page = signed_in(Role.ENGINEER).get(f"/collections/{collection.pk}/").text
    assert ("waits-for-agent" in page) is (ended == 0)


def test_the_python_code_is_valid():
    snippets = [one for one in write_snippets("https://gym.example", 12) if one.packages]
    assert len(snippets) == 3
    for snippet in snippets:
        names = {node.names[0].name for node in ast.walk(ast.parse(snippet.code)) if isinstance(node, ast.Import)}
        assert snippet.slug.replace("openai-", "") in names
