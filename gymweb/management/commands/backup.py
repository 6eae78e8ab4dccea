"""`manage.py backup`: write a backup of the database and the files while GymWeb runs."""

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.disk_space import DiskFull, show_bytes
from gymweb.backups.backup_manifests import BackupError
from gymweb.backups.backup_writing import write_backup


class Command(BaseCommand):
    help = "Back up the database, uploads and exports into a new folder in DIR. GymWeb may run meanwhile."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR", help="folder of all backups, created if needed")
        parser.add_argument(
            "--with-secret-key", action="store_true", help="include the key that decrypts API keys of models"
        )
        parser.add_argument("--full", action="store_true", help="copy unchanged files too, instead of linking them")
        parser.add_argument(
            "--keep",
            type=_read_count,
            metavar="N",
            help="keep the N newest backups of this installation, delete its others",
        )

    def handle(self, *, folder: Path, with_secret_key: bool, full: bool, keep: int | None, **options: Any) -> None:
        try:
            target, manifest, deletion = write_backup(folder, with_secret_key=with_secret_key, full=full, keep=keep)
        except (BackupError, DiskFull, OSError) as problem:
            raise CommandError(f"No backup was written. {problem}") from problem
        for name in manifest.missing:
            self.stderr.write(f"Missing in GYMWEB_VAR, so not in the backup: {name}")
        self.stdout.write(f"{target}: {len(manifest.files):,} files, {show_bytes(manifest.total_bytes)}")
        if deletion.deleted:
            self.stdout.write(f"Deleted: {', '.join(deletion.deleted)}")
        for reason, names in deletion.others.items():
            self.stdout.write(f"Not deleted, {reason}: {', '.join(names)}")


def _read_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError("give a whole number of at least 1")
    return int(text)
