from django.apps import AppConfig
from django.core.checks import Tags, register


class GymWebConfig(AppConfig):
    name = "gymweb"

    def ready(self) -> None:
        from apps.rollouts.checks import PROCESS_STARTS, SEVERAL_PROCESSES
        from gymweb import checks

        register(checks.check_sqlite)
        register(checks.check_folder)
        register(checks.check_postgres, Tags.database)
        register(checks.check_tables, PROCESS_STARTS, deploy=True)
        register(checks.check_secret_key, SEVERAL_PROCESSES, deploy=True)
