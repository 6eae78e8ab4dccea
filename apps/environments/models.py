from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.gym.environments.simulated_user.environment import SimulatedUser
from apps.gym.metrics.pass_at_k import SOLVED
from apps.gym.rewards import MAX_REWARD
from apps.policies.models import Health, PolicyModel, Server
from apps.policies.redacted_fields import RedactedCharField, RedactedTextField


class Adapter(models.TextChoices):
    """How GymWeb reaches the environment. DECLARED has no tools: GymWeb only verifies answers."""

    BUILTIN = "builtin", "Built-in, in process"
    HTTP = "http", "Resource server over HTTP"
    GYMNASIUM = "gymnasium", "Gymnasium server over HTTP"
    MCP = "mcp", "MCP server over HTTP"
    MCP_PROCESS = "mcp_process", "MCP server as a process"
    DECLARED = "declared", "Verifier only, without a server"


DEFAULT_CONCURRENCY = 1024
OVER_HTTP = [Adapter.HTTP, Adapter.GYMNASIUM, Adapter.MCP]
IN_PROCESS = [Adapter.BUILTIN, Adapter.DECLARED]
"""In-process adapters. They have no server to check."""


class Environment(Server):
    """Tools, a session for each attempt, and a verifier: built in, or provided by a resource server."""

    name = RedactedCharField(max_length=100)
    description = RedactedTextField(blank=True)
    adapter = models.CharField(max_length=16, choices=Adapter.choices, default=Adapter.HTTP)
    builtin = models.CharField(max_length=64, blank=True, help_text="Name of the built-in environment")
    base_url = models.CharField(
        max_length=500,
        blank=True,
        help_text="URL of the server, e.g. http://127.0.0.1:8001; for MCP with its path, e.g. …/mcp",
    )
    command = models.SlugField(
        max_length=64,
        blank=True,
        help_text="Command from GYMWEB_MCP_COMMANDS that each attempt starts",
    )
    verifies = models.BooleanField(
        default=True, help_text="If off, rollouts complete without a reward, for human review"
    )
    verifier = models.JSONField(
        default=dict,
        blank=True,
        help_text='A verifier and its parameters, such as {"type": "exact_match"}; replaces the verifier of the server',
    )
    solve_threshold = models.FloatField(
        default=SOLVED,
        db_default=SOLVED,
        validators=[MinValueValidator(-MAX_REWARD), MaxValueValidator(MAX_REWARD)],
        help_text="A rollout with at least this reward solves its task. Existing collections keep their threshold.",
    )
    call_timeout = models.FloatField(
        default=60.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(3600)],
        help_text="Timeout in seconds for a tool call, and for starting a session",
    )
    verify_timeout = models.FloatField(
        default=120.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(3600)],
        help_text="Timeout in seconds for a verification",
    )
    max_tries = models.PositiveSmallIntegerField(
        default=3,
        validators=[MinValueValidator(1), MaxValueValidator(20)],
        help_text="Maximum tries of a call if the server is unreachable",
    )
    concurrency = models.PositiveIntegerField(
        default=DEFAULT_CONCURRENCY,
        validators=[MinValueValidator(1)],
        help_text="Maximum rollouts in flight over all workers",
    )
    judge_model = models.ForeignKey(
        PolicyModel,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="judged_environments",
        help_text="Policy model that judges, called up to its concurrency limit",
    )
    judge_rubric = models.TextField(
        blank=True,
        help_text=(
            "Criteria for the judge; task rows can override it. Placeholders: {task}, {expected_answer}, "
            "{answer} and {trace}"
        ),
    )
    judge_settings = models.JSONField(
        default=dict,
        blank=True,
        help_text='For example {"question": "compare", "tries": 3} or {"scale": {"low": 1, '
        '"high": 5}, "reads": "trace"}',
    )
    unwell_since = models.DateTimeField(
        null=True, editable=False, help_text="When its server became unhealthy; empty while it is healthy"
    )
    survey = models.JSONField(default=dict, editable=False, help_text="Tools and routes found by the last health check")
    probe_due_at = models.DateTimeField(
        null=True, editable=False, help_text="Time of the next health check; empty for in-process environments"
    )

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.CheckConstraint(
                condition=(models.Q(adapter=Adapter.BUILTIN) & ~models.Q(builtin=""))
                | (models.Q(adapter__in=OVER_HTTP) & ~models.Q(base_url=""))
                | (models.Q(adapter=Adapter.MCP_PROCESS, base_url="") & ~models.Q(command=""))
                | models.Q(adapter=Adapter.DECLARED, builtin="", base_url=""),
                name="environment_has_a_server",
                violation_error_message="Choose a built-in environment or a command, or give the base URL of a server.",
            ),
            models.CheckConstraint(
                condition=models.Q(concurrency__gte=1)
                & models.Q(call_timeout__gt=0, call_timeout__lte=3600)
                & models.Q(connect_timeout__gt=0, connect_timeout__lte=300)
                & models.Q(verify_timeout__gt=0, verify_timeout__lte=3600)
                & models.Q(max_tries__gte=1, max_tries__lte=20),
                name="environment_limits_are_possible",
                violation_error_message="A limit is out of range.",
            ),
            models.CheckConstraint(
                condition=models.Q(solve_threshold__gte=-MAX_REWARD, solve_threshold__lte=MAX_REWARD),
                name="environment_solve_threshold_is_finite",
                violation_error_message="The solve threshold is out of range.",
            ),
            models.CheckConstraint(condition=models.Q(health__in=Health.values), name="environment_health_is_known"),
        ]
        indexes = [models.Index(fields=["probe_due_at"], name="environment_probes")]

    @property
    def has_server(self) -> bool:
        """Return True if there is a server to check."""
        return self.adapter not in IN_PROCESS

    @property
    def is_over_http(self) -> bool:
        return self.adapter in OVER_HTTP

    @property
    def server(self) -> str:
        """Return a short name of the server for tables and the audit log."""
        return self.base_url or self.command or self.builtin

    @property
    def verifies_here(self) -> bool:
        """Return True if GymWeb, not the server, computes rewards. Environment or task rows name the verifier."""
        return bool(self.verifier) or self.adapter in (Adapter.DECLARED, Adapter.MCP, Adapter.MCP_PROCESS)

    @property
    def has_simulated_user(self) -> bool:
        """Return True if the environment has a simulated user. Without a judge model, a script plays the user."""
        return self.builtin == SimulatedUser.name

    def describe_judge(self) -> dict[str, Any] | None:
        """Return the judge and its settings for the snapshot of a collection, or None without a judge."""
        if self.judge_model is None:
            return None
        return {"slug": self.judge_model.slug, "rubric": self.judge_rubric, "settings": self.judge_settings}
