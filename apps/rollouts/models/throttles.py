"""Rate limits of endpoints that throttle."""

from datetime import datetime

from django.db import models
from django.db.models import Q

from apps.environments.models import Environment
from apps.policies.models import PolicyModel


class Throttle(models.Model):
    """The rate limit of one endpoint, shared by all workers. Endpoints that never throttled have no row."""

    policy_model = models.OneToOneField(PolicyModel, null=True, blank=True, on_delete=models.CASCADE)
    environment = models.OneToOneField(Environment, null=True, blank=True, on_delete=models.CASCADE)
    control = models.JSONField(default=dict, help_text="The state of apps.gym.calls.rate_control.RateControl")
    limited_until = models.DateTimeField(null=True, help_text="Calls wait for starts until this time")
    limited_since = models.DateTimeField(null=True, help_text="When the current limit began")
    paused_until = models.DateTimeField(null=True, help_text="No calls start before this time")
    rate = models.FloatField(null=True, help_text="Current rate limit, in requests per second")
    concurrency = models.PositiveIntegerField(null=True, help_text="Maximum concurrent calls; null if unlimited")
    retry_after = models.FloatField(null=True, help_text="Seconds that the endpoint last asked to wait")
    message = models.CharField(max_length=500, blank=True, help_text="Message of the last throttled reply")
    quota_message = models.CharField(max_length=500, blank=True, help_text="Last quota error from the provider")
    quota_at = models.DateTimeField(null=True, help_text="Time of the last quota error")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(policy_model__isnull=True, environment__isnull=False)
                | Q(policy_model__isnull=False, environment__isnull=True),
                name="throttle_has_one_endpoint",
            ),
            models.CheckConstraint(
                condition=Q(rate__isnull=True) | Q(rate__gt=0, rate__lte=1e308), name="throttle_rate_is_possible"
            ),
        ]

    def __str__(self) -> str:
        return f"throttle of {self.policy_model or self.environment}"

    def is_limited(self, now: datetime) -> bool:
        return self.limited_until is not None and now < self.limited_until

    def is_paused(self, now: datetime) -> bool:
        return self.paused_until is not None and now < self.paused_until
