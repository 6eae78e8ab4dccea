import json
import sys
from textwrap import dedent

import pytest

from apps.gym.written import Environment, discovery
from apps.gym.written.discovery import load_environments
from apps.gym.written.registry import PROBLEMS, WRITTEN, find_environment, find_kit, list_kits, list_names

FILE = dedent(
    '''
    from apps.gym.written import Environment
    class {name}(Environment):
        """A custom environment."""
    '''
)


@pytest.fixture(autouse=True)
def as_before():
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = path
    load_environments([])


def write(folder, name, text):
    (folder / name).write_text(text)
    return str(folder / name)


def test_each_file_of_a_folder_is_one_but_for_its_tests(tmp_path):
    write(tmp_path, "orchard.py", FILE.format(name="Orchard"))
    write(tmp_path, "quarry.py", "from orchard import Orchard\n" + FILE.format(name="Quarry"))
    write(tmp_path, "test_orchard.py", "raise ValueError('a test is not imported')")
    load_environments([str(tmp_path)])
    assert (sorted(WRITTEN), PROBLEMS) == (["orchard", "quarry"], [])
    assert find_environment("quarry") is WRITTEN["quarry"]
    assert find_environment("calculator").name == "calculator"
    assert {"orchard", "calculator"} <= set(list_names())
    assert "orchard" not in list_kits()
    assert find_kit("orchard") is None
    # The same again is the same.
    before = WRITTEN["orchard"]
    load_environments([str(tmp_path)])
    assert WRITTEN["orchard"] is before


def test_a_file_and_a_module_are_found_too(tmp_path, monkeypatch):
    place = write(tmp_path, "meadow.py", FILE.format(name="Meadow"))
    (tmp_path / "packed").mkdir()
    write(tmp_path / "packed", "__init__.py", "")
    write(tmp_path / "packed", "brook.py", FILE.format(name="Brook"))
    monkeypatch.syspath_prepend(tmp_path)
    load_environments([place, "packed.brook"])
    assert (sorted(WRITTEN), PROBLEMS) == (["brook", "meadow"], [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import no_such_module", "line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:", "SyntaxError: "),
        ("x = 1\nraise SystemExit(3)", "line 2: SystemExit: 3"),
        ("import json\njson.loads('{')", f"{json.decoder.__file__}, line "),
        ("x = 1", "ValueError: no class in it is an Environment"),
        (FILE.format(name="Calculator"), "ValueError: an environment named calculator is built in"),
        (
            FILE.format(name="Tall")
            + "\n    from apps.gym.written import tool\n    @tool\n    async def go(self, x): 'Go.'",
            "TypeError: Tall, line 7: the tool go: give x a type, for example x: str",
        ),
    ],
)
def test_what_cannot_be_loaded_is_said_and_keeps_nothing_else_from_working(tmp_path, text, problem, caplog):
    write(tmp_path, "aaa_broken.py", text)
    write(tmp_path, "well.py", FILE.format(name="Well"))
    load_environments([str(tmp_path)])
    assert sorted(WRITTEN) == ["well"]
    (told,) = PROBLEMS
    assert told.startswith(f"{tmp_path}/aaa_broken.py: {problem}")
    assert "an environment could not be loaded" in caplog.text


def test_a_class_that_cannot_be_used_hides_no_other_of_its_file(tmp_path):
    tool = "\n    from apps.gym.written import tool\n    @tool\n    async def seed(self): 'Go.'"
    write(tmp_path, "several.py", FILE.format(name="Straight") + FILE.format(name="Bent") + tool)
    load_environments([str(tmp_path)])
    assert sorted(WRITTEN) == ["straight"]
    (told,) = PROBLEMS
    assert told.startswith(f"{tmp_path}/several.py: TypeError: Bent, line 11: the tool seed: GymWeb, ")


def test_places_that_are_none_are_said(tmp_path):
    (tmp_path / "empty").mkdir()
    load_environments([str(tmp_path / "empty"), str(tmp_path / "gone.py"), "no_module_of_that_name"])
    assert [told.split(": ", 1)[1] for told in PROBLEMS] == [
        "ValueError: the folder has no Python file with an environment",
        "FileNotFoundError: there is no such folder or file",
        "ModuleNotFoundError: No module named 'no_module_of_that_name'",
    ]


def test_no_file_takes_the_name_of_a_module_that_is_there(tmp_path):
    write(tmp_path, "json.py", FILE.format(name="Json"))
    load_environments([str(tmp_path)])
    [problem] = PROBLEMS
    assert problem.startswith(f"{tmp_path}/json.py: ImportError: ")


def test_two_of_one_name_are_one_too_many(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, f"twin_{folder}.py", FILE.format(name="Twin"))
    load_environments([str(tmp_path / "a"), str(tmp_path / "b")])
    assert [f"{tmp_path}/b/twin_b.py: ValueError: two environments are named twin"] == PROBLEMS


def test_an_installed_package_is_found_by_its_entry_point(tmp_path, monkeypatch):
    write(tmp_path, "harvest.py", FILE.format(name="Harvest"))
    for name, value in (("harvest", "harvest:Harvest"), ("gone", "no_such_package:Gone"), ("other", "json:dumps")):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[{discovery.ENTRY_POINTS}]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(tmp_path)
    load_environments([])
    assert sorted(WRITTEN) == ["harvest"]
    assert sorted(PROBLEMS)[0] == "the entry point json:dumps: ValueError: no class in it is an Environment"
    assert sorted(PROBLEMS)[1] == (
        "the entry point no_such_package:Gone: ModuleNotFoundError: No module named 'no_such_package'"
    )
    assert issubclass(WRITTEN["harvest"], Environment)
