"""Exports made by GymWeb here, and the trainers that load them, from the environment of `make trainers`.

Without that environment every test here is skipped by name.
"""

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.db import transaction
from django.test import override_settings

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.exporters.registry import FORMATS
from apps.pairs.models import PairSet
from apps.pairs.pair_sets import PairOrder, build_pairs
from apps.rollouts.models import Collection
from scripts.build_environment import environment_folder, is_complete
from tests.factories import make_collection, make_dataset, make_rollout, make_row
from tests.trainers.plans import INEXACT, MALFORMED, Plan, capture, draw_plans, plan_with, trace_of

HERE = Path(__file__).parent
SEED = 9
TASKS, ATTEMPTS = 30, 3
SECONDS = 540
OPEN_COLUMNS = [slug for slug, format in FORMATS.items() if format.open_columns]

Program = Callable[..., None]


class Exports(NamedTuple):
    """Folders of exports by their names, and the facts that they were made of by rollout id."""

    folder: Path
    plans: dict[int, Plan]
    malformed: dict[int, Plan]
    inexact: dict[int, Plan]
    manifests: dict[str, dict[str, Any]]

    def path(self, name: str) -> Path:
        return self.folder / name

    def rows(self, name: str, split: str = "train") -> list[dict[str, Any]]:
        """The lines of a file of JSON lines."""
        text = (self.path(name) / f"{split}.jsonl").read_text()
        return [json.loads(line) for line in text.split("\n") if line]

    def pair_of(self, name: str) -> dict[int, tuple[Plan, Plan]]:
        """The facts of chosen and rejected by the id of the pair."""
        ids = ((row["pair_id"], row["chosen_rollout_id"], row["rejected_rollout_id"]) for row in self.rows(name))
        return {pair: (self.plans[chosen], self.plans[rejected]) for pair, chosen, rejected in ids}


def named(slug: str, encoding: str) -> str:
    """The folder of a format in an encoding; with a dot in it, it would be taken for a file."""
    return f"{slug}-{encoding.replace('.', '-')}"


@pytest.fixture(scope="session")
def trainers_python() -> Path:
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("trainers need the machine for themselves: make test-trainers")
    return find_python("trainers")


def find_python(environment: str) -> Path:
    folder = environment_folder(environment)
    if not is_complete(folder):
        pytest.skip(f"the environment {environment} is not built on this machine: make trainers")
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def run_program(trainers_python: Path) -> Program:
    """Run one of `programs/` in the trainers' environment or another one, with one thread."""

    def run(name: str, *words: object, seconds: float = SECONDS, python: Path = trainers_python) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("GYMWEB_", "DJANGO_"))}
        env = {**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [str(python), str(HERE / "programs" / name), *map(str, words)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=seconds)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]

    return run


@contextmanager
def rows_for_a_while(blocker: Any, exports: Path) -> Iterator[None]:
    """The test database may be written to meanwhile, and holds nothing of it afterwards."""
    with blocker.unblock(), override_settings(EXPORTS_DIR=exports), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="session")
def exports(
    trainers_python: Path, django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Exports:
    folder = tmp_path_factory.mktemp("exports")
    with rows_for_a_while(django_db_blocker, folder):
        return Writer(folder).write()


class Writer:
    """Writes exports of one collection, of `tasks` drawn tasks and of attempts with odd arguments."""

    def __init__(self, folder: Path, tasks: int = TASKS) -> None:
        self.folder = folder
        self.plans: dict[int, Plan] = {}
        self.malformed: dict[int, Plan] = {}
        self.inexact: dict[int, Plan] = {}
        self.manifests: dict[str, dict[str, Any]] = {}
        self.collection, self.pair_set = self._collect(tasks)

    def _collect(self, drawn: int) -> tuple[Collection, PairSet]:
        dice = random.Random(SEED)
        groups = draw_plans(dice, tasks=drawn, attempts=ATTEMPTS)
        odd = [plan_with(arguments) for arguments in (*MALFORMED, *INEXACT)]
        rows = [self._row(group[0], f"task-{number}") for number, group in enumerate(groups)]
        rows += [self._row(plan, f"odd-{number}") for number, plan in enumerate(odd)]
        collection = make_collection(dataset=make_dataset(rows))
        tasks = list(collection.version.tasks.order_by("index"))
        for task, group in zip(tasks, groups, strict=False):
            for plan in group:
                capture(dice, plan)
                made = make_rollout(collection, task=task, reward=plan["reward"], trace=trace_of(plan))
                self.plans[made.pk] = plan
        for number, (task, plan) in enumerate(zip(tasks[drawn:], odd, strict=True)):
            made = make_rollout(collection, task=task, reward=1.0, trace=trace_of(plan))
            (self.malformed if number < len(MALFORMED) else self.inexact)[made.pk] = plan
        return collection, build_pairs(PairOrder(collection=collection))

    def _row(self, plan: Plan, name: str) -> dict[str, Any]:
        opening = [{"role": one["role"], "content": one["text"]} for one in plan["prompt"]]
        params = {"input": opening, "tools": plan["tools"]}
        answer = make_row(answer=f"the answer of {name}")
        return {**answer, "id": name, "code": "007", "due": "2024-01-01", "responses_create_params": params}

    def write(self) -> Exports:
        for slug, format in FORMATS.items():
            if format.trainer == "TRL":
                for encoding in format.encodings:
                    self.export(named(slug, encoding), slug, encoding=encoding, validation_share=0.2)
                self.export(slug, slug, encoding="jsonl")
        for slug in ("trl_dpo", "trl_reward"):
            self.export(f"{slug}_step", slug, options={"level": "step"})
        self.export("trl_dpo_implicit", "trl_dpo", options={"prompt": "implicit"})
        self.export("trl_sft_inline", "trl_sft", options={"reasoning": "inline"})
        self.export("trl_sft_dropped", "trl_sft", options={"reasoning": "dropped"})
        as_text = {"arguments": "text", "malformed": "text", "tools": "text"}
        self.export("trl_sft_text", "trl_sft", options=as_text)
        self.export("trl_sft_any", "trl_sft", options={"numbers": "any"})
        self.export("unsloth_sft", "unsloth_sft")
        for slug in OPEN_COLUMNS:
            self.export(slug, slug)
        return Exports(self.folder, self.plans, self.malformed, self.inexact, self.manifests)

    def export(self, name: str, slug: str, **choices: Any) -> None:
        pairs = FORMATS[slug].row_kind == "preferences"
        filters = {"min_reward": -1.0} if FORMATS[slug].row_kind == "demonstrations" else {}
        order = queue_export(
            ExportOrder(
                format=slug,
                collection=self.collection,
                pair_set=self.pair_set if pairs else None,
                filters=filters,
                **{"encoding": "jsonl", **choices},
            )
        )
        written = write_export(export=order, path=self.folder / name)
        assert (written.state, written.message) == ("ready", "")
        self.manifests[name] = written.manifest


@pytest.fixture(scope="session")
def show(request: pytest.FixtureRequest) -> Callable[..., None]:
    def print_figures(**figures: object) -> None:
        print(json.dumps(figures))

    return print_figures
