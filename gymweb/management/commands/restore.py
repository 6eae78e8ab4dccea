"""`manage.py restore`: restore a backup, and migrate it to this version."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.disk_space import DiskFull
from gymweb.backups.backup_manifests import BackupError
from gymweb.backups.backup_restoring import explain_secret_key, restore_backup


class Command(BaseCommand):
    help = "Restore a backup into this installation, and migrate it to this version. Stop all processes first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR", help="a backup, or a folder of backups: the newest one")
        parser.add_argument("--replace", action="store_true", help="delete the data of this installation first")

    def handle(self, *, folder: Path, replace: bool, **options: Any) -> None:
        try:
            backup, manifest = restore_backup(folder, replace=replace)
        except (BackupError, DiskFull, OSError) as problem:
            raise CommandError(str(problem)) from problem
        if warning := explain_secret_key(manifest):
            self.stderr.write(warning)
        self.stdout.write(f"Restored {backup} of GymWeb {manifest.gymweb}. Start the processes.")
