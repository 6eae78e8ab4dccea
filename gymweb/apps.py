from typing import Any

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.db.backends.signals import connection_created

from gymweb.optional_packages import left_out


def note_connection(**kwargs: Any) -> None:
    """Record that the database works: every request and background job opens a connection."""
    from apps.accounts.outage_log import DATABASE

    DATABASE.works()


def import_rest_framework() -> None:
    """Import Django REST framework without packages of its browsable API and test client: 5 MB of each process."""
    with left_out("pygments", "requests"):
        import rest_framework.compat  # noqa: F401


class GymWebConfig(AppConfig):
    name = "gymweb"

    def ready(self) -> None:
        from apps.rollouts.checks import PROCESS_STARTS, SEVERAL_PROCESSES
        from gymweb import checks

        import_rest_framework()
        connection_created.connect(note_connection)
        register(checks.check_sqlite)
        register(checks.check_folder)
        register(checks.check_telemetry)
        register(checks.check_single_sign_on)
        register(checks.check_postgres, Tags.database)
        register(checks.check_tables, PROCESS_STARTS, deploy=True)
        register(checks.check_secret_key, SEVERAL_PROCESSES, deploy=True)
