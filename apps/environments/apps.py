from django.apps import AppConfig
from django.conf import settings
from django.core.checks import register

from apps.gym.sandbox.choosing import Choice, choose_sandbox
from apps.gym.written.discovery import load_environments


class EnvironmentsConfig(AppConfig):
    name = "apps.environments"

    def ready(self) -> None:
        from apps.environments.checks import check_written_environments

        choose_sandbox(
            Choice(
                kind=settings.SANDBOX,
                python=settings.SANDBOX_PYTHON,
                at_once=settings.SANDBOX_AT_ONCE,
                memory_mb=settings.SANDBOX_MEMORY_MB,
            )
        )
        load_environments(settings.ENVIRONMENTS)
        register(check_written_environments)
