from django.apps import AppConfig
from django.conf import settings

from apps.gym.sandbox.choosing import Choice, choose_sandbox


class EnvironmentsConfig(AppConfig):
    name = "apps.environments"

    def ready(self) -> None:
        choose_sandbox(Choice(kind=settings.SANDBOX, python=settings.SANDBOX_PYTHON, at_once=settings.SANDBOX_AT_ONCE))
