from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.policies.typed_texts import TypedCharField


class Agent(models.Model):
    """The harness: what stands around the policy model in the loop."""

    slug = models.SlugField(max_length=64, unique=True)
    name = TypedCharField(max_length=100)
    system_prompt = models.TextField(blank=True, help_text="Put before the task's own input; empty adds nothing")
    examples = models.JSONField(
        default=list,
        blank=True,
        help_text="Few-shot examples: a list of Responses items put before the task's input",
    )
    max_steps = models.PositiveSmallIntegerField(
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(1000)],
        help_text="Policy-model turns; one more ends the attempt with max_steps",
    )
    time_limit = models.FloatField(
        default=600.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(86_400)],
        help_text="Seconds, checked between steps; the attempt is then verified as it stands",
    )
    token_limit = models.PositiveIntegerField(
        default=1_000_000,
        validators=[MinValueValidator(1)],
        help_text="Tokens read and written by all calls, checked between steps; then verified as it stands",
    )
    parallel_tool_calls = models.BooleanField(default=True, help_text="Run the calls of one turn at the same time")
    sampling = models.JSONField(default=dict, blank=True, help_text="Overrides the policy model's sampling defaults")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(max_steps__gte=1, max_steps__lte=1000)
                & models.Q(time_limit__gt=0, time_limit__lte=86_400)
                & models.Q(token_limit__gte=1),
                name="agent_limits_are_possible",
                violation_error_message="One of its limits cannot be.",
            ),
        ]

    def __str__(self) -> str:
        return self.name
