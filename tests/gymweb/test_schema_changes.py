"""Which changes of models need a migration, and what new migrations contain."""

import re

import pytest
from django.core.management import call_command

from apps.agents.models import Agent
from apps.policies.models import PolicyModel

pytestmark = pytest.mark.django_db


def make_migrations() -> None:
    call_command("makemigrations", "--check", "--dry-run", "--verbosity", "3")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("help_text", "Another help text"),
        ("choices", [("responses", "Responses"), ("chat", "Chat"), ("another", "Another")]),
        ("_verbose_name", "another label"),
        ("_error_messages", {"invalid": "Another message"}),
        ("_validators", [print]),
    ],
)
def test_texts_and_choices_need_no_migration(attribute, value, monkeypatch):
    monkeypatch.setattr(PolicyModel._meta.get_field("wire"), attribute, value)
    make_migrations()


def test_texts_of_models_and_constraints_need_no_migration(monkeypatch):
    monkeypatch.setitem(Agent._meta.original_attrs, "verbose_name", "another label")
    monkeypatch.setattr(Agent._meta.constraints[0], "violation_error_message", "Another message")
    make_migrations()


def test_other_changes_need_a_migration_without_texts(monkeypatch, capsys):
    field = PolicyModel._meta.get_field("wire")
    assert field.choices
    monkeypatch.setattr(field, "max_length", 17)
    monkeypatch.setattr(field, "help_text", "Another help text")
    with pytest.raises(SystemExit):
        make_migrations()
    [altered] = re.findall(r"field=models\.(.*),\n", capsys.readouterr().out)
    assert altered == f"CharField(default={field.default.value!r}, max_length=17)"
