import io
import json

import pytest
from django.core.management import CommandError, call_command

from apps.policies.installation_redactor import forget_redactor
from apps.policies.models import RedactionPattern

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def read_anew():
    forget_redactor()
    yield
    forget_redactor()


def run(*arguments):
    out, errors = io.StringIO(), io.StringIO()
    call_command("redaction", *arguments, stdout=out, stderr=errors)
    return out.getvalue(), errors.getvalue()


def test_patterns_are_added_listed_and_deleted():
    assert run("list")[0] == "There are no patterns besides the built-in rules.\n"
    assert run("add", "prefix", "corp.", "--least", "6")[0] == "prefix    corp.  +6\n"
    listed = json.loads(run("add", "name", "Badge", "--json")[0])
    assert listed == {
        "patterns": [{"kind": "name", "text": "Badge", "least": 16}, {"kind": "prefix", "text": "corp.", "least": 6}]
    }
    assert run("delete", "prefix", "corp.")[0] == "name      Badge\n"
    assert RedactionPattern.objects.get().text == "Badge"


def test_a_text_is_tried(monkeypatch):
    run("add", "prefix", "corp.", "--least", "6")
    monkeypatch.setattr("sys.stdin", io.StringIO("badge corp.abc123"))
    assert run("try") == ("badge [REDACTED:pattern]\n", "pattern × 1\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("badge"))
    assert json.loads(run("try", "--json")[0]) == {"clean": "badge", "counts": {}}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "name", "content"], "A trace has keys of this name"),
        (["add", "prefix", "ab"], "A beginning has at least 3 characters."),
        (["delete", "name", "nothing"], "There is no pattern name 'nothing'."),
    ],
)
def test_what_cannot_be_is_refused(arguments, said):
    with pytest.raises(CommandError, match=said):
        run(*arguments)
