"""The commands of docs/use/sft_to_rl.md run as they are written, against a real server, and end in four folders."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.docs.test_commands import ROOT
from tests.gymweb.serving import serving
from tests.migrated import lay_out_for

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "use" / "sft_to_rl.md").read_text()


def rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_guide_ends_in_files_for_all_three_uses(tmp_path: Path) -> None:
    var = tmp_path / "var"
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "GYMWEB_VAR": str(var),
        "GYMWEB_DATABASE_URL": f"sqlite:///{tmp_path}/gymweb.sqlite3",
        "GYMWEB_REDIS_URL": "",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    lay_out_for(environment)
    work = tmp_path / "work"
    work.mkdir()
    # The guide starts in a clone: commands reach manage.py and the programs of its environment from there.
    (work / "manage.py").symlink_to(ROOT / "manage.py")
    (work / ".venv" / "bin").mkdir(parents=True)
    (work / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (work / ".venv" / "bin" / "python").chmod(0o755)
    commands = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))

    def run(script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=work,
            env=environment,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    run(".venv/bin/python manage.py create_user ada --role admin --link")
    with serving(var, **environment) as served:
        environment["GYMWEB_URL"] = f"http://127.0.0.1:{served.port}"
        key = run(".venv/bin/python manage.py create_api_key ada --name laptop --scope admin")
        environment["GYMWEB_KEY"] = key.split()[-1]
        run(commands)
    demonstrations, pairs, prompts = (rows(work / name) for name in ("sft", "dpo", "prompts"))
    scored = pq.read_table(work / "scored" / "train.parquet").to_pylist()
    assert min(len(each) for each in (demonstrations, pairs, prompts)) > 10
    assert {row["reward"] for row in scored} == {0.0, 1.0}
    # Each task gives at most two demonstrations, and one pair at most.
    tasks = {row["task_index"] for row in scored}
    assert len(demonstrations) <= 2 * len(tasks)
    assert len(pairs) <= len({row["task_index"] for row in scored if not row["zero_variance"]})
    assert len(prompts) == len({row["task_index"] for row in scored if not row["zero_variance"]})
