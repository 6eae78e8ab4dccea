from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.accounts.shared_columns import Named
from apps.policies.redacted_fields import RedactedCharField

KINDS = {
    "builtin": "Built-in loop: the worker calls the model and the tools.",
    "external": (
        "External agent: your program claims attempts over the API. GymWeb proxies and records its model calls."
    ),
    "command": "Command: the worker runs your program in a sandbox for each rollout.",
    "agent_server": "Agent server: an HTTP server with NeMo Gym's protocol runs each rollout.",
}
"""A description of each kind of agent."""


class Agent(Named):
    """An agent: the harness that runs the policy model on tasks."""

    class Kind(models.TextChoices):
        BUILTIN = "builtin", "Built-in loop"
        EXTERNAL = "external", "External agent"
        COMMAND = "command", "Command"
        SERVER = "agent_server", "Agent server"

    class StrictTools(models.TextChoices):
        DECLARED = "declared", "As declared"
        NEVER = "never", "Never"

    class Route(models.TextChoices):
        RESPONSES = "responses", "/v1/responses: GymWeb verifies"
        RUN = "run", "/run: the agent server verifies"
        EPISODE = "episode", "/run of an environment server: it runs and verifies an episode"

    kind = models.CharField(
        max_length=16,
        choices=Kind.choices,
        default=Kind.BUILTIN,
        help_text=" ".join([*KINDS.values(), "The kind cannot be changed later."]),
    )
    name = RedactedCharField(max_length=100)
    system_prompt = models.TextField(blank=True, help_text="Sent before the task's messages. Leave empty for none.")
    examples = models.JSONField(
        default=list,
        blank=True,
        help_text="Few-shot examples: items of the Responses API, placed before the task input",
    )
    max_steps = models.PositiveSmallIntegerField(
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(1000)],
        help_text=("One turn is one model reply. At the limit, the rollout ends with stop reason max_steps."),
    )
    time_limit = models.FloatField(
        default=600.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(86_400)],
        help_text="Seconds, checked after each turn. When exceeded, the rollout stops and is verified.",
    )
    token_limit = models.PositiveIntegerField(
        default=1_000_000,
        validators=[MinValueValidator(1)],
        help_text=(
            "Input and output tokens of all calls, checked after each turn. When exceeded, the rollout stops and is "
            "verified."
        ),
    )
    parallel_tool_calls = models.BooleanField(default=True, help_text="Run the calls of a turn in parallel")
    retry_empty_replies = models.BooleanField(
        default=False,
        help_text=(
            "If the model replies with neither text nor calls, ask again, up to the maximum turns. If off, two such "
            "replies in a row end the rollout."
        ),
    )
    strict_tools = models.CharField(
        max_length=16,
        choices=StrictTools.choices,
        default=StrictTools.DECLARED,
        help_text=(
            "As declared: send `strict` with the tools; servers then force valid calls. Never: leave `strict` out, so "
            "that captured log probabilities stay unbiased."
        ),
    )
    sampling = models.JSONField(default=dict, blank=True, help_text="Overrides the policy model's sampling defaults")
    command_settings = models.JSONField(
        default=dict, blank=True, help_text="For the kind `command`: the program, its variables and files"
    )
    server_url = RedactedCharField(
        max_length=500,
        blank=True,
        help_text=("URL of the agent server. In its configuration, set the model server to GymWeb's host and port."),
    )
    server_route = models.CharField(
        max_length=16,
        choices=Route.choices,
        default=Route.RESPONSES,
        help_text=(
            "/run: GymWeb sends the whole task with its expected answer, and uses the reward in the reply. Environment "
            "servers of NeMo Gym 0.7 get it as an episode."
        ),
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(max_steps__gte=1, max_steps__lte=1000)
                & models.Q(time_limit__gt=0, time_limit__lte=86_400)
                & models.Q(token_limit__gte=1),
                name="agent_limits_are_possible",
                violation_error_message="A limit is out of range.",
            ),
            models.CheckConstraint(
                condition=models.Q(kind__in=["builtin", "external", "command", "agent_server"]),
                name="agent_kind_is_known",
            ),
            models.CheckConstraint(
                condition=models.Q(strict_tools__in=["declared", "never"]), name="agent_strict_tools_is_known"
            ),
        ]
