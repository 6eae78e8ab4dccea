from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.gym.wires.pricing import Prices


class Provider(models.TextChoices):
    OPENAI = "openai", "OpenAI"
    AZURE = "azure", "Azure OpenAI"
    VLLM = "vllm", "vLLM"
    COMPATIBLE = "compatible", "Other OpenAI-compatible server"
    SCRIPTED = "scripted", "Scripted, no LLM"


DEFAULT_BASE_URLS: dict[str, str] = {Provider.OPENAI.value: "https://api.openai.com/v1"}
"""Where a provider answers unless it is said otherwise."""

KEY_PLACE = "{api_key}"
"""Stands for the API key in the value of a header."""


class Wire(models.TextChoices):
    RESPONSES = "responses", "Responses API"
    CHAT = "chat", "Chat Completions API"


class Reasoning(models.TextChoices):
    FIELD = "field", "in its own field, and sent back"
    TEXT = "text", "in the text between <think> tags, and sent back"
    DROPPED = "dropped", "in its own field, and not sent back"


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
        max_length=500,
        blank=True,
        help_text="Up to and including /v1, e.g. https://api.openai.com/v1; for Azure the resource's endpoint",
    )
    more_base_urls = models.JSONField(
        default=list,
        blank=True,
        help_text="Further servers of the same model: a rollout stays with one of them, so that its prefix cache hits",
    )
    api_version = models.CharField(max_length=32, blank=True, help_text="Azure only, e.g. 2025-04-01-preview")
    key_is_token = models.BooleanField(
        "bearer token", default=False, help_text="Azure only: the key is a token of Microsoft Entra ID"
    )
    model_name = models.CharField(max_length=200, blank=True, help_text="The name the endpoint knows it by")
    api_key_encrypted = models.TextField(blank=True, editable=False)
    api_key_hint = models.CharField(max_length=8, blank=True, editable=False)
    sampling = models.JSONField(
        default=dict, blank=True, help_text='Defaults such as {"temperature": 1.0, "max_output_tokens": 1024}'
    )
    reasoning = models.CharField(
        max_length=16,
        choices=Reasoning.choices,
        default=Reasoning.FIELD,
        help_text="Where the model's reasoning stands, and whether later turns see it",
    )
    extra_headers = models.JSONField(
        default=dict,
        blank=True,
        help_text='Sent with every request, such as {"X-Team": "rl"}; {api_key} stands for the key, else no secret',
    )
    extra_body = models.JSONField(
        default=dict,
        blank=True,
        help_text='Merged into every request, such as {"chat_template_kwargs": {"enable_thinking": false}}',
    )
    renamed_fields = models.JSONField(
        default=dict,
        blank=True,
        help_text='Other names of request fields, such as {"max_completion_tokens": "max_tokens"}',
    )
    version = models.CharField(
        max_length=200,
        blank=True,
        help_text="The checkpoint, weights or adapter that answers now; recorded with every rollout",
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
        help_text="Tries of one call on 408, 5xx and transport errors",
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
    cached_input_price = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="USD for a million input tokens that the endpoint had cached; empty: as other input tokens",
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
    health_checks = models.JSONField(
        default=list,
        editable=False,
        help_text="What the last health check asked, as apps.gym.wires.endpoint_checks has it",
    )
    capabilities = models.JSONField(
        default=dict, editable=False, help_text="What the endpoint tells of itself: max_model_len, server_version, …"
    )
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
            models.CheckConstraint(
                condition=models.Q(concurrency__gte=1)
                & models.Q(call_timeout__gt=0, call_timeout__lte=3600)
                & models.Q(connect_timeout__gt=0, connect_timeout__lte=300)
                & models.Q(max_tries__gte=1, max_tries__lte=20)
                & models.Q(mistake_rate__gte=0, mistake_rate__lte=1),
                name="policy_model_limits_are_possible",
                violation_error_message="One of its limits cannot be.",
            ),
            models.CheckConstraint(
                condition=models.Q(input_price__gte=0, input_price__lte=1e308)
                & models.Q(output_price__gte=0, output_price__lte=1e308)
                & (
                    models.Q(cached_input_price__isnull=True)
                    | models.Q(cached_input_price__gte=0, cached_input_price__lte=1e308)
                ),
                name="policy_model_prices_are_possible",
                violation_error_message="A price is a finite number, 0 or more.",
            ),
            models.CheckConstraint(condition=models.Q(health__in=Health.values), name="policy_model_health_is_known"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def base_urls(self) -> list[str]:
        return [self.base_url, *self.more_base_urls]

    @property
    def prices(self) -> Prices:
        return Prices(input=self.input_price, output=self.output_price, cached_input=self.cached_input_price)

    @property
    def is_scripted(self) -> bool:
        return self.provider == Provider.SCRIPTED


class RedactionPattern(models.Model):
    """What this installation takes for a credential besides the built-in rules, or for none."""

    class Kind(models.TextChoices):
        NAME = "name", "Values of this key or header"
        PREFIX = "prefix", "Texts that begin with this"
        EXCEPTION = "exception", "Never redact this text"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    text = models.CharField(max_length=200)
    least = models.PositiveSmallIntegerField(
        default=16,
        validators=[MinValueValidator(4), MaxValueValidator(200)],
        help_text="After a beginning: letters, digits, _ or - that follow at least",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["kind", "text"]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "text"], name="redaction_pattern_once", violation_error_message="This is there already."
            ),
            models.CheckConstraint(
                condition=models.Q(kind__in=["name", "prefix", "exception"])
                & ~models.Q(text="")
                & models.Q(least__gte=4, least__lte=200),
                name="redaction_pattern_is_possible",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.text}"
