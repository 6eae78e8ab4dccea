"""`manage.py migrate`: Django's command, which refuses a database that is older than 0.2.0."""

from typing import Any

from django.core.management import CommandError
from django.core.management.commands import migrate
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

from gymweb.migration_state import find_gap
from gymweb.schema_changes import SchemaAutodetector


class Command(migrate.Command):
    autodetector = SchemaAutodetector

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        # Django would only skip the apps whose replaced migrations are not all applied.
        if gap := find_gap(MigrationRecorder(connection).applied_migrations()):
            raise CommandError(f"Cannot migrate: {gap}.")
        if connection.vendor == "postgresql":
            # On a slow machine, Django works for longer than the limit between two statements.
            with connection.cursor() as cursor:
                cursor.execute("SET idle_in_transaction_session_timeout = 0")
        super().handle(*args, **options)
