import pytest

from apps.environments.models import Environment
from apps.environments.resource_servers import connect_environment
from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.errors import EnvironmentFault
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.own_verifier import UnverifiedServer

OUTBOUND = Outbound(OutboundPolicy())


def test_a_built_in_is_served_in_process():
    server = connect_environment(Environment(slug="sums", adapter="builtin", builtin="calculator"), OUTBOUND)
    assert isinstance(server, InProcessServer)
    assert server.name == "sums"


def test_a_resource_server_gets_the_limits_of_its_row():
    environment = Environment(
        slug="lab",
        adapter="http",
        base_url="https://lab.example.org",
        call_timeout=7.0,
        verify_timeout=9.0,
    )
    server = connect_environment(environment, OUTBOUND)
    assert isinstance(server, HttpResourceServer)
    assert (server.name, server.call_timeout, server.verify_timeout) == ("lab", 7.0, 9.0)
    environment.verifies = False
    assert isinstance(connect_environment(environment, OUTBOUND), UnverifiedServer)


def test_a_missing_built_in_is_an_environment_error():
    with pytest.raises(EnvironmentFault, match="unknown environment 'chess'"):
        connect_environment(Environment(slug="old", adapter="builtin", builtin="chess"), OUTBOUND)
