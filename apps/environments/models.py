from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.policies.models import Health, PolicyModel
from apps.policies.typed_texts import TypedCharField, TypedTextField


class Adapter(models.TextChoices):
    BUILTIN = "builtin", "Built-in, in process"
    HTTP = "http", "Resource server over HTTP"
    GYMNASIUM = "gymnasium", "Gymnasium server over HTTP"
    MCP = "mcp", "MCP server over HTTP"
    MCP_PROCESS = "mcp_process", "MCP server as a process"
    DECLARED = "declared", "Declared: no server, a configured verifier"


USUAL_CONCURRENCY = 1024
OVER_HTTP = [Adapter.HTTP, Adapter.GYMNASIUM, Adapter.MCP]
IN_PROCESS = [Adapter.BUILTIN, Adapter.DECLARED]
"""Nothing to ask: these are healthy as long as we are."""


class Environment(models.Model):
    """Tools, per-attempt state and verifier, served by a resource server."""

    slug = models.SlugField(max_length=64, unique=True)
    name = TypedCharField(max_length=100)
    description = TypedTextField(blank=True)
    adapter = models.CharField(max_length=16, choices=Adapter.choices, default=Adapter.HTTP)
    builtin = models.CharField(max_length=64, blank=True, help_text="Built-in adapter: which environment")
    base_url = models.CharField(
        max_length=500,
        blank=True,
        help_text="Servers over HTTP: e.g. http://127.0.0.1:8001; of an MCP server the whole address, e.g. …/mcp",
    )
    api_key_encrypted = models.TextField(blank=True, editable=False)
    api_key_hint = models.CharField(max_length=8, blank=True, editable=False)
    command = models.SlugField(
        max_length=64,
        blank=True,
        help_text="MCP servers as a process: which of the commands in GYMWEB_MCP_COMMANDS each attempt starts",
    )
    verifies = models.BooleanField(
        default=True, help_text="Off: rollouts complete without a reward, for people to judge"
    )
    verifier = models.JSONField(
        default=dict,
        blank=True,
        help_text='A verifier and its parameters, such as {"type": "exact_match"}; it goes before the server\'s own',
    )
    call_timeout = models.FloatField(
        default=60.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(3600)],
        help_text="Seconds for one seed or tool call",
    )
    connect_timeout = models.FloatField(
        default=10.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(300)],
        help_text="Seconds until a connection must stand",
    )
    verify_timeout = models.FloatField(
        default=120.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(3600)],
        help_text="Seconds for one verification",
    )
    max_tries = models.PositiveSmallIntegerField(
        default=3,
        validators=[MinValueValidator(1), MaxValueValidator(20)],
        help_text="Tries when the server cannot be reached",
    )
    concurrency = models.PositiveIntegerField(
        default=USUAL_CONCURRENCY,
        validators=[MinValueValidator(1)],
        help_text="Rollouts in flight at once, over all workers",
    )
    worker_group = models.SlugField(
        max_length=64, blank=True, help_text="Only workers of this group may use it; empty: those without a group"
    )
    judge_model = models.ForeignKey(
        PolicyModel,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="judged_environments",
        help_text="Any policy model; it is asked as often at once as it has room for",
    )
    judge_rubric = models.TextField(
        blank=True,
        help_text=(
            "What the judge looks for; a task's row may bring its own. {task}, {expected_answer}, {answer} "
            "and {trace} name what it is given to read"
        ),
    )
    judge_settings = models.JSONField(
        default=dict,
        blank=True,
        help_text='Such as {"question": "compare", "tries": 3} or {"scale": {"low": 1, "high": 5}, "reads": "trace"}',
    )
    health = models.CharField(max_length=16, choices=Health.choices, default=Health.UNKNOWN, editable=False)
    health_message = models.CharField(max_length=500, blank=True, editable=False)
    health_checked_at = models.DateTimeField(null=True, editable=False)
    unwell_since = models.DateTimeField(
        null=True, editable=False, help_text="When its server became unhealthy; empty while it is healthy"
    )
    survey = models.JSONField(
        default=dict, editable=False, help_text="What the last health check found there: tools and routes"
    )
    probe_due_at = models.DateTimeField(
        null=True, editable=False, help_text="When any worker asks its server again; empty for what runs in process"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.CheckConstraint(
                condition=(models.Q(adapter=Adapter.BUILTIN) & ~models.Q(builtin=""))
                | (models.Q(adapter__in=OVER_HTTP) & ~models.Q(base_url=""))
                | (models.Q(adapter=Adapter.MCP_PROCESS, base_url="") & ~models.Q(command=""))
                | models.Q(adapter=Adapter.DECLARED, builtin="", base_url=""),
                name="environment_has_a_server",
                violation_error_message="Name a built-in environment or a command, or give the base URL of a server.",
            ),
            models.CheckConstraint(
                condition=models.Q(concurrency__gte=1)
                & models.Q(call_timeout__gt=0, call_timeout__lte=3600)
                & models.Q(connect_timeout__gt=0, connect_timeout__lte=300)
                & models.Q(verify_timeout__gt=0, verify_timeout__lte=3600)
                & models.Q(max_tries__gte=1, max_tries__lte=20),
                name="environment_limits_are_possible",
                violation_error_message="One of its limits cannot be.",
            ),
            models.CheckConstraint(condition=models.Q(health__in=Health.values), name="environment_health_is_known"),
        ]
        indexes = [models.Index(fields=["probe_due_at"], name="environment_probes")]

    def __str__(self) -> str:
        return self.name

    @property
    def has_server(self) -> bool:
        """Whether there is a server that can be well or not."""
        return self.adapter not in IN_PROCESS

    @property
    def is_over_http(self) -> bool:
        return self.adapter in OVER_HTTP

    @property
    def server(self) -> str:
        """Which server it is, in one word for tables and the audit log."""
        return self.base_url or self.command or self.builtin

    @property
    def verifies_here(self) -> bool:
        """Whether a configured verifier, its own or that of each task's row, gives the rewards."""
        return bool(self.verifier) or self.adapter in (Adapter.DECLARED, Adapter.MCP, Adapter.MCP_PROCESS)

    def describe_judge(self) -> dict[str, Any] | None:
        """Who judges and how, for what is kept of a plan; None without a judge."""
        if self.judge_model is None:
            return None
        return {"slug": self.judge_model.slug, "rubric": self.judge_rubric, "settings": self.judge_settings}
