"""Environments that the operator wrote: rows, pages and connections like others, and what `manage.py check` says."""

import pytest
from asgiref.sync import async_to_sync

from apps.environments.checks import check_written_environments
from apps.environments.environment_changes import save_environment
from apps.environments.models import Environment
from apps.environments.resource_servers import connect_environment
from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.errors import EnvironmentFault
from apps.gym.written.discovery import load_environments
from apps.tasks.file_tasks import fields_needed
from tests.factories import make_user

FILE = '''
from apps.gym.written import Environment, tool

class Lighthouse(Environment):
    """Lights up."""
    needs = ["ships"]

    @tool
    async def light(self) -> str:
        """Light it."""
        return "lit"

    async def verify(self, attempt):
        return 1.0
'''


@pytest.fixture
def lighthouse(tmp_path):
    (tmp_path / "lighthouse.py").write_text(FILE)
    load_environments([str(tmp_path / "lighthouse.py")])
    yield
    load_environments([])


@pytest.mark.django_db
def test_an_environment_that_was_written_is_saved_connected_and_shown_like_others(lighthouse, client):
    client.force_login(make_user())
    given = {"slug": "coast", "name": "Coast", "adapter": "builtin", "builtin": "lighthouse"}
    environment = save_environment(environment=Environment(**given), user=None)
    server = connect_environment(environment, Outbound(OutboundPolicy()))
    probe = async_to_sync(server.probe)()
    assert (probe.healthy, probe.message, [tool["name"] for tool in probe.tools]) == (
        True,
        "custom environment, defined in lighthouse",
        ["light"],
    )
    assert fields_needed(environment) == {"ships"}
    page = client.get("/environments/coast/").text
    assert "Lights up." in page
    assert "Light it." in page
    assert '<option value="lighthouse"' in client.get("/environments/new/").text
    load_environments([])
    with pytest.raises(EnvironmentFault, match="unknown environment 'lighthouse'"):
        connect_environment(environment, Outbound(OutboundPolicy()))


def test_what_could_not_be_loaded_is_a_warning(tmp_path):
    (tmp_path / "fog.py").write_text("1 / 0")
    load_environments([str(tmp_path)])
    try:
        (warning,) = check_written_environments()
        assert warning.id == "environments.W001"
        assert f"{tmp_path}/fog.py: line 1: ZeroDivisionError" in warning.msg
    finally:
        load_environments([])
    assert check_written_environments() == []
