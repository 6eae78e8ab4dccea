"""The options of `gymweb`: generated from the API's schema, and read as their fields say."""

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml
from gymweb_client.cli import app as app_module
from gymweb_client.cli import connection, fields
from gymweb_client.cli.app import FUNCTIONS, build_app
from gymweb_client.cli.connection import NotSignedIn, WrongUsage, find_connection, store_profile
from gymweb_client.cli.declarations import GROUPS, WORKFLOWS, operations_used
from gymweb_client.cli.fields import declare_parameter, join_values
from gymweb_client.cli.output import clean
from typer.main import get_command

from scripts.client_operations import OPERATIONS_PATH, read_operations, render

SCHEMA_PATH = Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"


@pytest.fixture(scope="module")
def schema() -> Any:
    return yaml.load(SCHEMA_PATH.read_bytes(), Loader=yaml.CSafeLoader)


def find_command(*names: str) -> Any:
    command: Any = get_command(build_app())
    for name in names:
        command = command.commands[name]
    return command


def options_of(*names: str) -> set[str]:
    return {option for parameter in find_command(*names).params for option in parameter.opts}


def test_operations_equal_the_schema(schema: Any) -> None:
    assert OPERATIONS_PATH.read_text() == render(read_operations(schema, operations_used()))


def test_a_new_field_of_an_operation_is_an_option_without_further_edits(
    schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = copy.deepcopy(schema)
    added = {"type": "integer", "minimum": 2, "description": "Lives of a cat.", "nullable": True}
    changed["components"]["schemas"]["PlanRequest"]["properties"]["lives"] = added
    operations = read_operations(changed, operations_used())
    assert "--lives" not in options_of("collect")
    for module in (fields, app_module):
        monkeypatch.setattr(module, "load_operations", lambda: operations)
    assert "--lives" in options_of("collect")
    context = find_command("collect").make_context("collect", ["--dataset", "x", "--lives", "9"])
    assert context.params["body_lives"] == 9


def test_every_declared_command_can_be_built_and_every_workflow_has_its_function() -> None:
    tree = find_command()
    assert {name: set(group.commands) for name, group in tree.commands.items() if name in GROUPS} == {
        name: set(group) | {place.split()[1] for place in WORKFLOWS if place.startswith(f"{name} ")}
        for name, group in GROUPS.items()
    }
    assert list(FUNCTIONS) == list(WORKFLOWS)


def test_the_columns_of_tables_are_members_of_the_answers(schema: Any) -> None:
    operations = {
        operation["operationId"]: operation
        for methods in schema["paths"].values()
        for operation in methods.values()
        if isinstance(operation, dict)
    }

    def resolve(shape: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in shape:
            shape = schema["components"]["schemas"][shape["$ref"].rpartition("/")[2]]
        results = shape.get("properties", {}).get("results", shape)
        return resolve(results["items"]) if "items" in results else shape

    for command in (command for group in GROUPS.values() for command in group.values() if command.columns):
        (answer,) = operations[command.operation]["responses"]["200"]["content"].values()
        assert set(command.columns.split()) <= set(resolve(answer["schema"])["properties"]), command.operation


NUMBER = {"name": "n", "in": "body", "type": "integer", "min": 1, "max": 9, "nullable": True}
NAMES = {"name": "tags", "in": "body", "type": "array", "items": "string", "choices": ["a", "b"]}
OBJECT = {"name": "sampling", "in": "body", "type": "object"}
OBJECTS = {"name": "criteria", "in": "body", "type": "array", "items": "object"}
SECRET = {"name": "api_key", "in": "body", "type": "string", "secret": True}
SECRETS = {"name": "headers", "in": "body", "type": "object", "secret": True}


def read(field: dict[str, Any], *texts: str) -> Any:
    parser = declare_parameter(field, set(), is_argument=False, is_optional=False).default.parser
    values = [parser(text) for text in texts]
    return join_values(field, values if field["type"] in {"array", "object"} else values[0])


@pytest.mark.parametrize(
    ("field", "texts", "expected"),
    [
        (NUMBER, ["9"], 9),
        (NUMBER, ["none"], None),
        (NAMES, ["a", "b"], ["a", "b"]),
        (NAMES, ["[]"], []),
        (OBJECT, ["temperature=0.7", "stop=x=y", '{"seed": 1}'], {"temperature": 0.7, "stop": "x=y", "seed": 1}),
        (OBJECTS, ['[{"key": 1}]', '{"key": 2}'], [{"key": 1}, {"key": 2}]),
        (SECRET, ["SOME_KEY"], "hidden"),
        (SECRETS, ["SOME_HEADERS"], {"Authorization": "hidden"}),
    ],
)
def test_texts_become_the_values_that_the_api_takes(
    field: dict[str, Any], texts: list[str], expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "hidden")
    monkeypatch.setenv("SOME_HEADERS", '{"Authorization": "hidden"}')
    assert read(field, *texts) == expected


def test_values_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text('{"key": 1}\n{"key": 2}\n')
    assert read(OBJECTS, f"@{tmp_path / 'lines.jsonl'}") == [{"key": 1}, {"key": 2}]


@pytest.mark.parametrize(
    ("field", "text", "problem"),
    [
        (NUMBER, "0", "at least 1"),
        (NUMBER, "10", "at most 9"),
        (NUMBER, "nine", "not a whole number"),
        (NAMES, "c", "not one of: a, b"),
        (OBJECT, "{", "Invalid JSON"),
        (OBJECT, "@missing.json", "No such file"),
        (SECRET, "NO_SUCH_VARIABLE", "not set"),
        (SECRETS, "NO_SUCH_VARIABLE", "not set"),
    ],
)
def test_an_invalid_value_is_refused_with_the_reason(field: dict[str, Any], text: str, problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        read(field, text)


def test_secrets_are_no_words_of_a_command_line() -> None:
    assert {"--api-key-env", "--api-key"} & options_of("models", "create") == {"--api-key-env"}


def test_the_server_comes_from_the_command_line_then_the_environment_then_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("URL", "TOKEN", "KEY"):
        monkeypatch.delenv(f"GYMWEB_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_connection("", "") is None
    assert store_profile("lab", "https://lab.example", "gw_lab").stat().st_mode & 0o777 == 0o600
    store_profile("home", "https://home.example", "gw_home")
    assert find_connection("", "") == ("https://lab.example", "gw_lab")
    assert find_connection("", "home") == ("https://home.example", "gw_home")
    assert find_connection("https://home.example/api/v1/", "") == ("https://home.example", "gw_home")
    monkeypatch.setenv("GYMWEB_URL", "https://home.example")
    assert find_connection("", "") == ("https://home.example", "gw_home")
    assert find_connection("", "lab") == ("https://lab.example", "gw_lab")
    monkeypatch.setenv("GYMWEB_TOKEN", "gw_other")
    assert find_connection("", "") == ("https://home.example", "gw_other")
    # A key from the environment is for its own server, not for a profile's.
    assert find_connection("", "lab") == ("https://lab.example", "gw_lab")
    monkeypatch.delenv("GYMWEB_TOKEN")
    for url, profile, refused in (
        ("https://new.example", "", NotSignedIn),
        ("", "new", NotSignedIn),
        ("ftp://new.example", "", WrongUsage),
        ("https://lab.example", "lab", WrongUsage),
    ):
        with pytest.raises(refused):
            find_connection(url, profile)
    connection.config_path().write_text("profiles = 1")
    with pytest.raises(WrongUsage, match=r"config\.toml"):
        find_connection("", "")


def test_replies_of_models_cannot_steer_a_terminal() -> None:
    assert clean("a\x1b[2J\u202eb\n\tc") == "a�[2J�b\n\tc"


def test_every_function_of_a_workflow_is_explained() -> None:
    assert [place for place, run in FUNCTIONS.items() if not inspect.getdoc(run)] == []
