"""The taskset beside exported prompts yields their rows. verifiers is not installed: classes stand in for its own that
only keep their arguments."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from tests.factories import make_collection, make_dataset, make_rollout, make_row


class Kept:
    def __init__(self, *given, **named):
        self.given = given
        self.__dict__.update(named)

    def __class_getitem__(cls, kinds):
        return cls


@pytest.fixture
def verifiers(monkeypatch):
    module = ModuleType("verifiers.v1")
    for name in ("TasksetConfig", "TaskData", "State", "TaskConfig", "Trace", "Task"):
        setattr(module, name, type(name, (Kept,), {}))
    module.Taskset = type("Taskset", (Kept,), {"__init__": lambda self, config: setattr(self, "config", config)})
    module.reward = lambda function: function
    package = ModuleType("verifiers")
    package.v1 = module
    monkeypatch.setitem(sys.modules, "verifiers", package)
    monkeypatch.setitem(sys.modules, "verifiers.v1", module)


def export(collection, **fields):
    for task in collection.version.tasks.all():
        make_rollout(collection, task=task)
    order = ExportOrder(format="verifiers_prompts", collection=collection, **fields)
    return write_export(export=queue_export(order))


@pytest.mark.django_db
def test_the_taskset_yields_the_rows_of_a_split(verifiers, settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    rows = [make_row(f"{number}\u2028?", f"00{number}", id=f"t{number}") for number in range(8)]
    collection = make_collection(dataset=make_dataset(rows))
    folder = Path(export(collection, validation_share=0.4).path)
    spec = importlib.util.spec_from_file_location("gymweb_tasks", folder / "gymweb_tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.__all__ == ["GymWebTaskset"]
    found = []
    for split in ("train", "validation"):
        tasks = list(module.GymWebTaskset(SimpleNamespace(split=split, task="settings")).load())
        assert {task.given[1] for task in tasks} == {"settings"}
        found += [task.given[0] for task in tasks]
    found.sort(key=lambda data: data.answer)
    assert [(data.answer, data.prompt[0]["content"]) for data in found] == [
        (row["expected_answer"], row["responses_create_params"]["input"][0]["content"]) for row in rows
    ]
    assert [data.id for data in found] == [data.info["task_id"] for data in found]
    assert len({data.id for data in found}) == 8


@pytest.mark.django_db
def test_parquet_has_no_taskset(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    written = export(make_collection(), encoding="parquet")
    assert [one.name for one in Path(written.path).glob("*.p*")] == ["train.parquet"]
