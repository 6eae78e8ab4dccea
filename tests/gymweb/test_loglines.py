"""What a refused page leaves in the server's log."""

import io
import logging.config
from copy import deepcopy

import pytest
from django.conf import settings

from apps.accounts.models import Role
from tests.dashboard.pages import signed_in


@pytest.fixture
def log():
    """Everything that the configured handler writes."""
    written = io.StringIO()
    config = deepcopy(settings.LOGGING)
    config["handlers"]["stderr"]["stream"] = written
    logging.config.dictConfig(config)
    yield written
    logging.config.dictConfig(settings.LOGGING)


@pytest.mark.django_db
def test_a_refused_page_is_one_line_in_the_log(log):
    assert signed_in(Role.VIEWER).get("/people/").status_code == 403
    line = "WARNING django.request Forbidden (Permission denied): /people/: Your role does not have the permission"
    assert log.getvalue().count("\n") == 1
    assert line in log.getvalue()


def test_any_other_failure_keeps_its_traceback(log):
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("django.request").exception("it broke")
    assert log.getvalue().endswith("ValueError: broken\n")
    assert "Traceback" in log.getvalue()
