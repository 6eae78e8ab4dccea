"""The circuit breaker of a policy model or an environment, as a read-only part of either."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.rollouts.models import Breaker


class BreakerSerializer(serializers.ModelSerializer[Breaker]):
    class Meta:
        model = Breaker
        fields = ["state", "failures", "message", "opened_at", "retry_at"]


@extend_schema_field(BreakerSerializer)
class BreakerField(serializers.Field[Any, Any, Any, Any]):
    """An endpoint that never failed has no row, and is shown as a closed breaker."""

    def __init__(self) -> None:
        super().__init__(source="*", read_only=True)

    def to_representation(self, value: PolicyModel | Environment) -> Any:
        return BreakerSerializer(getattr(value, "breaker", None) or Breaker()).data
