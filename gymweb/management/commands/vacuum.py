"""`manage.py vacuum`: return free pages of the SQLite file to the disk."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection

from apps.accounts.disk_space import DiskFull, check_growth, show_bytes, truncate_write_ahead_log
from apps.rollouts.free_pages import count_free_pages, free_step, is_incremental


class Command(BaseCommand):
    help = (
        "Return free pages of the SQLite file to the disk. The first run on a file of an earlier version rewrites it; "
        "stop all processes before that run."
    )

    def handle(self, **options: Any) -> None:
        if connection.vendor != "sqlite":
            self.stdout.write("PostgreSQL does this itself (autovacuum). Nothing was changed.")
            return
        path = Path(connection.settings_dict["NAME"])
        before = path.stat().st_size
        if is_incremental():
            while count_free_pages():
                free_step()
        else:
            self._rewrite(before)
        truncate_write_ahead_log()
        after = path.stat().st_size
        self.stdout.write(f"{path}: {show_bytes(after)}, {show_bytes(max(0, before - after))} less")

    def _rewrite(self, size: int) -> None:
        try:
            check_growth(size)
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")
                cursor.execute("VACUUM")
        except DiskFull as problem:
            raise CommandError(f"Rewriting the file needs a copy of it. {problem}") from problem
        except OperationalError as problem:
            raise CommandError(f"The file was not rewritten: {problem}. Stop all processes first.") from problem
