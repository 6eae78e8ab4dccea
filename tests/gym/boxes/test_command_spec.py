import pytest

from apps.gym.boxes.command_presets import PRESETS
from apps.gym.boxes.command_run import write_instruction
from apps.gym.boxes.command_spec import PLACEHOLDERS, CommandSpec, fill_command, find_spec_problems
from apps.gym.boxes.mounts import find_mount_problem, mount_arguments

VALUES = {name: f"<{name}>" for name in PLACEHOLDERS}


def test_placeholders_are_filled_in_once_and_other_braces_are_kept():
    spec = CommandSpec(
        command=["run", "{instruction}", "{unknown}"],
        variables={"A": '{"key": "{api_key}"}'},
        files={"c.toml": "{model}{model}"},
    )
    filled = fill_command(spec, {**VALUES, "instruction": "print {api_key}"})
    assert filled.command == ["run", "print {api_key}", "{unknown}"]
    assert filled.variables == {"A": '{"key": "<api_key>"}'}
    assert filled.files == {"c.toml": "<model><model>"}


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({}, "command"),
        ({"command": [""]}, "command"),
        ({"command": "run"}, "command"),
        ({"command": ["a"], "variables": {"A B": ""}}, "variables"),
        ({"command": ["a"], "files": {"/etc/passwd": ""}}, "files"),
        ({"command": ["a"], "files": {"a/../../b": ""}}, "files"),
        ({"command": ["a"], "files": {"a/": ""}}, "files"),
        ({"command": ["a"], "answer_file": ".."}, "answer_file"),
        ({"command": ["a"], "artifacts": ["ok", "/x"]}, "artifacts"),
        ({"command": ["a"], "shell": True}, "shell"),
    ],
)
def test_wrong_settings_are_named(settings, option):
    assert list(find_spec_problems(settings)) == [option]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid_and_fill_in_key_and_task(name):
    spec = PRESETS[name].spec
    assert not find_spec_problems({field: getattr(spec, field) for field in spec.__struct_fields__})
    filled = fill_command(spec, VALUES)
    assert "<instruction>" in filled.command
    assert "<api_key>" in filled.variables.values()


@pytest.mark.parametrize(
    ("mount", "is_allowed"),
    [
        ("allowed", True),
        ("allowed/tools", True),
        ("allowed/link", False),
        ("allowed/../secret", False),
        ("allowed/var", False),
        ("allowed/var/agents", True),
        ("secret", False),
        ("", False),
    ],
)
def test_only_allowed_folders_without_secrets_are_mounted(tmp_path, mount, is_allowed):
    for folder in ("allowed/tools", "allowed/var/agents", "secret"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "allowed" / "link").symlink_to(tmp_path / "secret")
    allowed = [str(tmp_path / "allowed"), str(tmp_path / "allowed" / "var" / "agents")]
    hidden = [str(tmp_path / "allowed" / "var")]
    problem = find_mount_problem(str(tmp_path / mount), allowed=allowed, hidden=hidden)
    assert (problem == "") is is_allowed


def test_folders_of_the_sandbox_cannot_be_hidden_by_a_mount():
    assert "would hide" in find_mount_problem("/", allowed=["/"], hidden=[])
    assert find_mount_problem("relative", allowed=["/"], hidden=[])


def test_an_empty_folder_covers_a_hidden_one_and_a_mount_in_it_comes_later(tmp_path):
    (tmp_path / "var" / "agents").mkdir(parents=True)
    var, agents = str(tmp_path / "var"), str(tmp_path / "var" / "agents")
    words = mount_arguments([agents, str(tmp_path)], [var, "/nowhere"])
    assert words.index(str(tmp_path)) < words.index(var) < words.index(agents)
    assert words[words.index(var) - 1] == "--tmpfs"
    assert words[-2:] == ["--remount-ro", var]


def test_a_single_question_is_its_text_and_a_conversation_has_headings():
    system, task = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}
    assert write_instruction([system, task]) == "Be brief.\n\n2 + 2?"
    example = {"role": "assistant", "content": "4"}
    assert write_instruction([task, example, task]) == "User: 2 + 2?\n\nAssistant: 4\n\nUser: 2 + 2?"
