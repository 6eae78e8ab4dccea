from django.apps import AppConfig
from django.core.checks import register


class RolloutsConfig(AppConfig):
    name = "apps.rollouts"

    def ready(self) -> None:
        from apps.rollouts import checks

        register(checks.check_settings)
        register(checks.check_hosts, checks.WORKER_STARTS, deploy=True)
        register(checks.check_layer, checks.SEVERAL_PROCESSES, deploy=True)
