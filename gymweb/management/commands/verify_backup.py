"""`manage.py verify_backup`: compare the files of a backup with their checksums."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gymweb.backups.backup_manifests import BackupError
from gymweb.backups.backup_restoring import verify_backup


class Command(BaseCommand):
    help = "Check that a backup is complete and undamaged. Nothing is changed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR", help="a backup, or a folder of backups: the newest one")

    def handle(self, *, folder: Path, **options: Any) -> None:
        try:
            backup, manifest = verify_backup(folder)
        except (BackupError, OSError) as problem:
            raise CommandError(str(problem)) from problem
        self.stdout.write(f"{backup} is complete: {len(manifest.files):,} files of GymWeb {manifest.gymweb}")
