import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from apps.environments.environment_health import probe_environment
from apps.policies.models import Health
from tests.examples.processes import weather_server
from tests.factories import make_environment

pytestmark = pytest.mark.django_db


def test_a_running_server_is_healthy_and_its_tools_are_named(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    with weather_server() as base_url:
        environment = make_environment(adapter="http", builtin="", base_url=base_url)
        checked = probe_environment(environment=environment)
    checked.refresh_from_db()
    assert checked.health == Health.HEALTHY
    assert re.fullmatch(r"reachable; .*\([\d.]+ ms\); tools: get_weather", checked.health_message)
    assert checked.health_checked_at is not None


def test_a_server_that_is_not_there_is_unhealthy_and_says_why(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        environment = make_environment(adapter="http", builtin="", base_url=base_url)
        checked = probe_environment(environment=environment)
    checked.refresh_from_db()
    assert checked.health == Health.UNHEALTHY
    assert checked.health_message.startswith(base_url)


def test_an_address_that_is_no_longer_allowed_is_unhealthy_and_names_the_setting(settings):
    settings.OUTBOUND_ALLOW = []
    environment = make_environment(adapter="http", builtin="", base_url="http://127.0.0.1:8101")
    assert "GYMWEB_OUTBOUND_ALLOW" in probe_environment(environment=environment).health_message


def test_a_built_in_is_healthy():
    checked = probe_environment(environment=make_environment(builtin="calculator"))
    assert checked.health == Health.HEALTHY
    assert checked.health_message.endswith("tools: calculator")


def test_a_missing_built_in_is_unhealthy():
    checked = probe_environment(environment=make_environment(builtin="chess"))
    assert checked.health == Health.UNHEALTHY
    assert ("'chess'" in checked.health_message, "GYMWEB_ENVIRONMENTS" in checked.health_message) == (True, True)


class Garbled(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"no\x00thing\n" + b"here" * 1000
        self.send_response(500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        return None


def test_messages_of_servers_are_stored_without_control_characters(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    with HTTPServer(("127.0.0.1", 0), Garbled) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        base_url = f"http://127.0.0.1:{server.server_port}"
        checked = probe_environment(environment=make_environment(adapter="http", builtin="", base_url=base_url))
        server.shutdown()
        thread.join()
    checked.refresh_from_db()
    assert checked.health == Health.UNHEALTHY
    assert checked.health_message.startswith("GET / returned 500")
    assert "no thing here" in checked.health_message
    assert len(checked.health_message) <= 500
