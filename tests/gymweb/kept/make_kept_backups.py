"""Write the backups of version 0.2.0 that test_upgrades.py restores, each with its row counts and a trace.

Run it in a checkout of commit 27155339, with the path of this folder as argument:

    PYTHONPATH=. python …/tests/gymweb/kept/make_kept_backups.py …/tests/gymweb/kept
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from scripts.servers import own_settings, postgres

SEED = """
import django
django.setup()
from django.core.management import call_command
from apps.accounts.models import Role
from apps.rollouts.plans import sample_data
from tests.browser.seed_pages import main
from tests.factories import make_user
sample_data.make_arithmetic_rows.__defaults__ = (6,)
sample_data.REPEATS = 4
call_command("migrate", verbosity=0)
make_user(Role.ENGINEER, username="erika")
main()
"""
READ = """
import json
import django
django.setup()
from django.apps import apps
from apps.rollouts.models import Rollout, TraceEvent
from gymweb.migration_state import find_mismatch
models = [model for model in apps.get_models() if model._meta.app_label not in ("auth", "contenttypes")]
rollout = Rollout.objects.filter(status="completed").order_by("pk")[0]
events = TraceEvent.objects.filter(rollout=rollout).order_by("attempt", "seq")
print(json.dumps({
    "rows": {model._meta.db_table: model._default_manager.count() for model in models},
    "trace": [[event.kind, event.payload] for event in events],
    "mismatch": find_mismatch(),
}))
"""


def write_backup(kind: str, target: Path, **settings: str) -> None:
    """Fill an installation with the rows of the page tests, and archive its backup and its contents."""
    with tempfile.TemporaryDirectory() as folder:
        var, kept = Path(folder) / "var", Path(folder) / "kept"
        var.mkdir(mode=0o700)
        kept.mkdir()
        env = {**os.environ, **own_settings(var, **settings)}
        for words in (["-c", SEED], ["manage.py", "backup", f"{kept}/backups"]):
            subprocess.run([sys.executable, *words], env=env, check=True)
        (kept / "contents.json").write_bytes(subprocess.check_output([sys.executable, "-c", READ], env=env))
        with tarfile.open(target / f"{kind}.tar.xz", "w:xz", preset=9) as archive:
            archive.add(kept, arcname=".")


def main(target: Path) -> None:
    write_backup("sqlite", target)
    with postgres() as server:
        write_backup("postgresql", target, GYMWEB_DATABASE_URL=server.url)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
