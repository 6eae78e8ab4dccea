from django.apps import AppConfig
from django.core.checks import register


class PoliciesConfig(AppConfig):
    name = "apps.policies"

    def ready(self) -> None:
        from apps.policies.checks import check_outbound_allow

        register(check_outbound_allow)
