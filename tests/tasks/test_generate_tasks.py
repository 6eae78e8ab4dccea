import json

import pytest
from django.core.management import CommandError, call_command

from apps.environments.models import Environment
from apps.gym.environments.workplace.office_tools import TOOLS
from apps.tasks.models import Task
from tests.factories import make_environment

pytestmark = pytest.mark.django_db


def test_a_file_of_tasks_is_the_same_for_the_same_seed(tmp_path, capsys):
    for name in ("a", "b"):
        call_command("generate_tasks", "calculator", count=20, seed=3, out=str(tmp_path / name))
    call_command("generate_tasks", "calculator", count=20, seed=4, out="-")
    first, again = ((tmp_path / name).read_text() for name in ("a", "b"))
    other = capsys.readouterr().out.split("20 tasks\n")[-1]
    assert first == again
    assert [json.loads(line)["difficulty"] for line in first.splitlines()[:4]] == ["easy", "medium", "hard", "easy"]
    assert len(other.splitlines()) == 20
    assert other != first


def test_a_dataset_of_tasks_has_both_splits(capsys):
    environment = Environment.objects.get(slug="calculator")
    call_command("generate_tasks", "calculator", count=50, dataset="sums", difficulty="hard")
    assert capsys.readouterr().out == "sums@v1: 50 tasks\n"
    tasks = Task.objects.filter(dataset__slug="sums", dataset__environment=environment)
    assert sorted(tasks.values_list("split", flat=True)) == ["train"] * 40 + ["validation"] * 10
    assert {task.row["difficulty"] for task in tasks} == {"hard"}


def test_the_tools_go_into_the_rows_where_that_is_wanted(tmp_path):
    rows = []
    for options in ({}, {"tools": True}):
        call_command("generate_tasks", "workplace", count=1, out=str(tmp_path / "tasks.jsonl"), **options)
        rows.append(json.loads((tmp_path / "tasks.jsonl").read_text()))
    bare, told = rows
    assert [tool["name"] for tool in told["responses_create_params"].pop("tools")] == [tool["name"] for tool in TOOLS]
    assert told == bare


def test_an_environment_is_named_by_its_slug_too(tmp_path):
    make_environment(slug="my-sums", builtin="calculator")
    call_command("generate_tasks", "my-sums", count=3, out=str(tmp_path / "tasks.jsonl"))
    assert len((tmp_path / "tasks.jsonl").read_text().splitlines()) == 3


def test_a_built_in_environment_that_is_no_row_yet_becomes_one():
    Environment.objects.filter(slug="code_exec").delete()
    for _ in range(2):
        call_command("generate_tasks", "code_exec", count=3, dataset="code")
    (environment,) = Environment.objects.filter(slug="code_exec")
    assert (environment.name, environment.adapter, environment.builtin) == ("Code execution", "builtin", "code_exec")


def test_what_cannot_be_is_said(tmp_path):
    with pytest.raises(CommandError, match=r"chess: only .*calculator, .* can generate tasks"):
        call_command("generate_tasks", "chess", out="-")
    with pytest.raises(CommandError, match="--count must be at least 1"):
        call_command("generate_tasks", "calculator", count=0, out="-")
    with pytest.raises(CommandError, match="cannot be written: Is a directory"):
        call_command("generate_tasks", "calculator", count=1, out=str(tmp_path))
    make_environment(slug="other", builtin="exact_match")
    call_command("generate_tasks", "calculator", count=1, dataset="sums")
    with pytest.raises(CommandError, match="has the environment calculator, not other"):
        call_command("generate_tasks", "other", count=1, dataset="sums")
