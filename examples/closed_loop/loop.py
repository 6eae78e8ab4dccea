"""The closed loop on one machine without a GPU: collect, export, fine-tune, serve, collect again, compare.

`make closed-loop` builds what it needs and starts this. For each seed, the weaker checkpoint of examples/tiny_policy
attempts training tasks on a real vLLM. Its rewarded attempts are exported, TRL trains on them, vLLM serves the new
weights, and both weights attempt the same held-out tasks. Every step is a GymWeb command, printed as it runs. The last
line on standard output is one JSON object. The exit status is 1 if the reward did not rise for some seed.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gymweb.settings")
os.environ.setdefault("GYMWEB_OUTBOUND_ALLOW", "127.0.0.1")

import django  # noqa: E402 - after its settings are named

django.setup()

from django.conf import settings  # noqa: E402

from apps.agents.agent_changes import save_agent  # noqa: E402
from apps.agents.models import Agent  # noqa: E402
from apps.gym.metrics.paired_comparison import Interval  # noqa: E402
from apps.rollouts.metrics.collection_comparison import contrast_collections  # noqa: E402
from apps.rollouts.models import Collection  # noqa: E402
from scripts.build_environment import CannotBuild, environment_folder, is_complete  # noqa: E402
from scripts.tiny_policy.tasks import draw_rows  # noqa: E402

DATASET = "closed-loop"
MODEL = "closed-loop"
AGENT = "closed-loop"
BASE = ROOT / "examples" / "tiny_policy" / "half"
SAMPLING = {"temperature": 1.0, "max_output_tokens": 64}
TRAIN, HELD_OUT = "train", "held_out"
SERVED = re.compile(r"is served at \S+")
START_SECONDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", type=int, default=500, help="to train on")
    parser.add_argument("--held-out", type=int, default=500, help="to measure on")
    parser.add_argument("--repeats", type=int, default=4, help="attempts at each task, on both sides")
    parser.add_argument("--seats", type=int, default=32, help="attempts at a time; default: %(default)s")
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--rate", type=float, default=5e-4)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server stops too
    began = time.perf_counter()
    try:
        rows = Loop(options).run()
    except (CannotBuild, CommandFailed) as problem:
        sys.exit(f"The loop was not closed. {problem}")
    print(table(rows))
    summary = {"seeds": rows, "seconds": round(time.perf_counter() - began)}
    print(json.dumps(summary))
    sys.exit(not all(row["low"] > 0 for row in rows))


class CommandFailed(Exception):
    """Raised if a command fails. The message is the command and the end of its output."""


class Loop:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.python = {name: _python_of(name) for name in ("vllm", "trainers")}
        self.folder = Path(settings.VAR_DIR) / "closed-loop"
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> list[dict[str, Any]]:
        """Return a row of the table for each seed."""
        seeds: list[int] = self.options.seeds
        manage("migrate", "--verbosity", 0)
        self.load_tasks()
        self.add_agent()
        with self.serving(BASE, "base"):
            trained_on = {seed: self.collect(TRAIN, seed, "base") for seed in seeds}
            before = {seed: self.collect(HELD_OUT, seed, "base") for seed in seeds}
        weights = {seed: self.fine_tune(trained_on[seed], seed) for seed in seeds}
        after = {}
        for seed in seeds:
            with self.serving(weights[seed], f"trained-{seed}"):
                after[seed] = self.collect(HELD_OUT, seed, f"trained-{seed}")
        return [compare(seed, before[seed], after[seed]) | self.digest(seed) for seed in seeds]

    def digest(self, seed: int) -> dict[str, str]:
        """Return digests of the training rows and of the new weights: runs with equal ones differ only afterwards."""
        manifest = json.loads((self.folder / f"demonstrations-{seed}" / "manifest.json").read_text(encoding="utf-8"))
        with (self.folder / f"trained-{seed}" / "model.safetensors").open("rb") as weights:
            digests = {"rows": manifest["sha256"], "weights": hashlib.file_digest(weights, "sha256").hexdigest()}
        return {name: digest[:16] for name, digest in digests.items()}

    def load_tasks(self) -> None:
        """Load training and held-out tasks as two splits of one dataset.

        No expression is in both: its checksum decides the split, and the weaker checkpoint has not seen the held-out
        ones.
        """
        rows = [
            {**row, "id": f"{split}-{number}", "split": split}
            for split, wanted, seed in ((TRAIN, self.options.tasks, 101), (HELD_OUT, self.options.held_out, 102))
            for number, row in enumerate(distinct_rows(wanted, seed=seed, held_out=split == HELD_OUT))
        ]
        sides = [{question_of(row) for row in rows if row["split"] == split} for split in (TRAIN, HELD_OUT)]
        assert not sides[0] & sides[1], "a held-out question stands among those to train on"
        path = self.folder / "tasks.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        manage("upload_tasks", path, "--dataset", DATASET, "--environment", "calculator")

    def add_agent(self) -> None:
        """Add the agent. Its calls have no grammar, so that their tokens can be trained on."""
        if not Agent.objects.filter(slug=AGENT).exists():
            agent = Agent(slug=AGENT, name="Closed loop", strict_tools=Agent.StrictTools.NEVER)
            save_agent(agent=agent, user=None)

    def collect(self, split: str, seed: int, version: str) -> int:
        """Collect rollouts, and return the id of the collection."""
        said = manage(
            *("collect", "--dataset", DATASET, "--agent", AGENT, "--model", MODEL, "--split", split),
            *("--repeats", self.options.repeats),
            *("--seed", seed, "--sampling", json.dumps(SAMPLING), "--seats", self.options.seats),
            *("--name", f"Closed loop: {version} on {split}, seed {seed}", "--json"),
        )
        report = _json_in(said)
        print(
            f"  mean reward {report['mean_reward']:.3f} of {report['rollouts']} rollouts", file=sys.stderr, flush=True
        )
        return int(report["collection"])

    def fine_tune(self, collection: int, seed: int) -> Path:
        """Return the folder of new weights, trained on rewarded attempts."""
        export, out = self.folder / f"demonstrations-{seed}", self.folder / f"trained-{seed}"
        manage(
            *("export", "--collection", collection, "--format", "trl_sft_tokens", "--out", export),
            *("--min-reward", 1.0, "--filter", f'splits=["{TRAIN}"]'),
        )
        # An earlier run may have left it.
        shutil.rmtree(out, ignore_errors=True)
        said = run(
            *(self.python["trainers"], HERE / "fine_tune.py", BASE, export, out),
            *("--seed", seed, "--epochs", self.options.epochs, "--rate", self.options.rate),
        )
        _say(f"  {said.splitlines()[-1]}")
        return out

    @contextlib.contextmanager
    def serving(self, weights: Path, version: str) -> Iterator[None]:
        """Run vLLM with these weights, as that version of the policy model."""
        words = ["vllm_serve", weights, "--slug", MODEL, "--weights-version", version, "--port", _free_port()]
        command = _manage(*words, "--python", self.python["vllm"], "--max-model-len", 1024)
        _tell(command)
        log = self.folder / f"vllm-{version}.log"
        with log.open("w", encoding="utf-8") as stream:
            server = subprocess.Popen(command, stdout=stream, stderr=stream, cwd=ROOT)
        try:
            until = time.monotonic() + START_SECONDS
            while not SERVED.search(log.read_text(encoding="utf-8", errors="replace")):
                if server.poll() is not None or time.monotonic() > until:
                    raise CommandFailed(
                        f"vLLM did not come up: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}"
                    )
                time.sleep(0.2)
            yield
        finally:
            server.terminate()
            server.wait()


def compare(seed: int, before: int, after: int) -> dict[str, Any]:
    """Compare both collections over the same tasks: the difference by task, with a bootstrap interval over tasks."""
    sides = [Collection.objects.get(pk=pk) for pk in (before, after)]
    found = contrast_collections(*sides)
    interval = found.interval or Interval(0.0, 0.0, 0.0)
    return {
        "seed": seed,
        "tasks": found.tasks,
        "rollouts": [side.rewarded for side in sides],
        "before": round(found.mean_reward or 0.0, 4),
        "after": round(found.other_mean_reward or 0.0, 4),
        "difference": round(interval.mean, 4),
        "low": round(interval.low, 4),
        "high": round(interval.high, 4),
        "newly_solved": found.newly_solved,
        "no_longer_solved": found.no_longer_solved,
        "page": f"/collections/compare/?a={before}&b={after}",
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["seed  tasks  before  after   difference  95 % interval      compared at (make serve)"]
    for row in rows:
        interval = f"{row['low']:+.3f} … {row['high']:+.3f}"
        lines.append(
            f"{row['seed']:<4}  {row['tasks']:<5}  {row['before']:.3f}   {row['after']:.3f}   {row['difference']:+.3f}"
            f"      {interval}    http://127.0.0.1:8000{row['page']}"
        )
    return "\n".join(lines)


def distinct_rows(wanted: int, *, seed: int, held_out: bool) -> list[dict[str, Any]]:
    """Return `wanted` tasks with different questions."""
    found: dict[str, dict[str, Any]] = {}
    for row in draw_rows(wanted * 3, seed=seed, held_out=held_out):
        found.setdefault(question_of(row), row)
    if len(found) < wanted:
        raise CommandFailed(f"There are only {len(found)} different tasks of the kind; {wanted} are wanted.")
    return list(found.values())[:wanted]


def question_of(row: dict[str, Any]) -> str:
    text: str = row["responses_create_params"]["input"][-1]["content"]
    return text


def manage(*words: object) -> str:
    return run(*_manage(*words))


def run(*words: object) -> str:
    """Run a command and return its output. Raise CommandFailed."""
    command = [str(word) for word in words]
    _tell(command)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailed(
            f"{shlex.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}"
        )
    return done.stdout


def _manage(*words: object) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), *map(str, words)]


def _tell(command: list[str]) -> None:
    known = {sys.executable: "python"}
    shown = [known.get(word, word).removeprefix(f"{ROOT}/") for word in command]
    _say(f"+ {shlex.join(shown)}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _json_in(said: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    return found


def _python_of(name: str) -> Path:
    folder = environment_folder(name)
    if not is_complete(folder):
        raise CannotBuild(f"The environment {name!r} is not built: make {name}.")
    return folder / "bin" / "python"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
