from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models


class Provider(models.TextChoices):
    COMPATIBLE = "compatible", "OpenAI-compatible (vLLM, OpenAI, …)"
    SCRIPTED = "scripted", "Scripted, no LLM"


class Wire(models.TextChoices):
    RESPONSES = "responses", "Responses API"
    CHAT = "chat", "Chat Completions API"


class Health(models.TextChoices):
    UNKNOWN = "unknown", "not checked yet"
    HEALTHY = "healthy", "healthy"
    UNHEALTHY = "unhealthy", "unhealthy"


class PolicyModel(models.Model):
    """A model that attempts tasks (or judges attempts), behind one endpoint."""

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=100)
    provider = models.CharField(max_length=16, choices=Provider.choices, default=Provider.COMPATIBLE)
    wire = models.CharField(max_length=16, choices=Wire.choices, default=Wire.CHAT)
    base_url = models.CharField(
        max_length=500, blank=True, help_text="Up to and including /v1, e.g. https://api.openai.com/v1"
    )
    model_name = models.CharField(max_length=200, blank=True, help_text="The name the endpoint knows it by")
    api_key_encrypted = models.TextField(blank=True, editable=False)
    api_key_hint = models.CharField(max_length=8, blank=True, editable=False)
    sampling = models.JSONField(
        default=dict, blank=True, help_text='Defaults such as {"temperature": 1.0, "max_output_tokens": 1024}'
    )
    call_timeout = models.FloatField(
        default=120.0,
        validators=[MinValueValidator(1), MaxValueValidator(3600)],
        help_text="Seconds for one call",
    )
    connect_timeout = models.FloatField(
        default=10.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(300)],
        help_text="Seconds until a connection must stand",
    )
    max_tries = models.PositiveSmallIntegerField(
        default=4,
        validators=[MinValueValidator(1), MaxValueValidator(20)],
        help_text="Tries of one call on 429, 5xx and transport errors",
    )
    capture_tokens = models.BooleanField(
        default=False,
        help_text="Keep token ids and logprobs of every reply, for training (Chat Completions on vLLM)",
    )
    concurrency = models.PositiveIntegerField(
        default=256, validators=[MinValueValidator(1)], help_text="Rollouts in flight at once, over all workers"
    )
    worker_group = models.SlugField(
        max_length=64, blank=True, help_text="Only workers of this group may use it; empty: those without a group"
    )
    input_price = models.FloatField(
        default=0.0, validators=[MinValueValidator(0)], help_text="USD for a million input tokens; 0 counts no cost"
    )
    output_price = models.FloatField(
        default=0.0, validators=[MinValueValidator(0)], help_text="USD for a million output tokens"
    )
    mistake_rate = models.FloatField(
        default=0.4,
        validators=[MinValueValidator(0), MaxValueValidator(1)],
        help_text="Scripted only: the share of attempts with a realistic mistake",
    )
    health = models.CharField(max_length=16, choices=Health.choices, default=Health.UNKNOWN, editable=False)
    health_message = models.CharField(max_length=500, blank=True, editable=False)
    health_checked_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(provider=Provider.SCRIPTED) | (~models.Q(base_url="") & ~models.Q(model_name="")),
                name="policy_model_has_an_endpoint",
                violation_error_message="Give a base URL and a model name, or choose the scripted provider.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_scripted(self) -> bool:
        return self.provider == Provider.SCRIPTED
