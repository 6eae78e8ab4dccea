"""A real vLLM server, from the environment of `make vllm`; without it every test here is skipped by name."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.build_environment import environment_folder, is_complete
from scripts.tiny_policy.tasks import draw_rows
from tests.faults.installation import Installation
from tests.vllm.serving import Bench, Vllm

SEED = 2


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("a model server needs the machine for itself: make test-vllm")
    folder = environment_folder("vllm")
    if not is_complete(folder):
        pytest.skip("vLLM's environment is not built on this machine: make vllm")
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def bench(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """An installation on SQLite with 100 tasks that the tiny policy has not seen, in the dataset `sums`."""
    folder = tmp_path_factory.mktemp("vllm")
    url = f"sqlite:///{folder}/gymweb.sqlite3"
    with contextlib.closing(Installation(folder, database_url=url)) as installation:
        bench = Bench(installation, vllm_python)
        bench.manage("migrate", "--verbosity", 0)
        bench.upload("sums", draw_rows(100, seed=SEED, held_out=True))
        yield bench
        bench.stop()


@pytest.fixture
def strong(bench: Bench) -> Vllm:
    return bench.serve("strong", "--max-model-len", 400)


@pytest.fixture
def half(bench: Bench) -> Vllm:
    return bench.serve("half", "--max-model-len", 1024)


@pytest.fixture
def random_model(bench: Bench) -> Vllm:
    return bench.serve("random", "--max-model-len", 1024)


@pytest.fixture
def show(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Print the figures of a test, one JSON object a line."""

    def print_figures(**figures: object) -> None:
        print(json.dumps({"test": request.node.name, **figures}))

    return print_figures
