"""Circuit breaker and throttle of a policy model or environment, as read-only fields."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.api.framework.declared_fields import DeclaredFields
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.rollouts.models import Breaker, Throttle


class BreakerSerializer(serializers.ModelSerializer[Breaker]):
    rollouts = serializers.ListField(
        child=serializers.IntegerField(), read_only=True, help_text="Ids of the rollouts whose calls failed last."
    )

    class Meta:
        model = Breaker
        fields = ["state", "failures", "message", "opened_at", "retry_at", "rollouts"]


@extend_schema_field(BreakerSerializer)
class BreakerField(serializers.Field[Any, Any, Any, Any]):
    """The circuit breaker of an endpoint. Without a row it is closed."""

    def __init__(self) -> None:
        super().__init__(source="*", read_only=True)

    def to_representation(self, value: PolicyModel | Environment) -> Any:
        return BreakerSerializer(getattr(value, "breaker", None) or Breaker()).data


class ThrottleSerializer(serializers.ModelSerializer[Throttle]):
    is_throttled = serializers.SerializerMethodField(help_text="True while calls are rate limited.")
    paused_until = serializers.SerializerMethodField(help_text="No calls start before this time; null if they may.")
    rate = serializers.FloatField(
        read_only=True, allow_null=True, help_text="Current rate limit, in requests per second."
    )

    class Meta:
        model = Throttle
        fields = ["is_throttled", "paused_until", "rate", "concurrency", "message", "quota_message", "quota_at"]

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_paused_until(self, throttle: Throttle) -> str | None:
        until = throttle.paused_until
        return serializers.DateTimeField().to_representation(until) if until and until > timezone.now() else None

    def get_is_throttled(self, throttle: Throttle) -> bool:
        return throttle.is_limited(timezone.now())


@extend_schema_field(ThrottleSerializer)
class ThrottleField(serializers.Field[Any, Any, Any, Any]):
    """The throttle of an endpoint. Without a row there are no limits."""

    def __init__(self) -> None:
        super().__init__(source="*", read_only=True)

    def to_representation(self, value: PolicyModel | Environment) -> Any:
        throttle = getattr(value, "throttle", None) or Throttle()
        if not throttle.is_limited(timezone.now()):
            # Expired limits are not shown.
            throttle = Throttle(quota_message=throttle.quota_message, quota_at=throttle.quota_at)
        return ThrottleSerializer(throttle).data


class ServerSerializer(DeclaredFields, serializers.ModelSerializer[Any]):
    # Common fields of policy models and environments.
    breaker = BreakerField()
    throttle = ThrottleField()
    api_key = serializers.CharField(
        write_only=True,
        required=False,
        allow_blank=True,
        trim_whitespace=True,
        help_text="Stored encrypted, write-only. Omit it to keep the stored key.",
    )
