from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.accounts.shared_columns import Dated, Named
from apps.gym.wires.pricing import Prices


class Provider(models.TextChoices):
    OPENAI = "openai", "OpenAI"
    AZURE = "azure", "Azure OpenAI"
    ANTHROPIC = "anthropic", "Anthropic (Messages API)"
    VLLM = "vllm", "vLLM"
    COMPATIBLE = "compatible", "Other OpenAI-compatible server"
    SCRIPTED = "scripted", "Scripted, no LLM"


DEFAULT_BASE_URLS: dict[str, str] = {
    Provider.OPENAI.value: "https://api.openai.com/v1",
    Provider.ANTHROPIC.value: "https://api.anthropic.com/v1",
}
"""Base URL by provider, used if none is given."""

PRICE_FIELDS = ("input_price", "cached_input_price", "cache_write_price", "output_price")
"""Fields of PolicyModel in USD per million tokens."""

KEY_PLACEHOLDER = "{api_key}"
"""Placeholder of the API key in header values."""


class Wire(models.TextChoices):
    """The API that GymWeb uses to call the model."""

    RESPONSES = "responses", "Responses API"
    CHAT = "chat", "Chat Completions API"
    MESSAGES = "messages", "Messages API"


class Reasoning(models.TextChoices):
    """Where replies contain reasoning, and whether GymWeb sends it back."""

    FIELD = "field", "In a separate field, sent back in later turns"
    TEXT = "text", "In the text between <think> tags, sent back in later turns"
    DROPPED = "dropped", "In a separate field, not sent back"


class CallContent(models.TextChoices):
    """Content of a chat message that has tool calls and no text."""

    EMPTY = "empty", "Empty text"
    NULL = "null", "Null"
    OMITTED = "omitted", "No content key"


class LogprobMode(models.TextChoices):
    """Values of vLLM's --logprobs-mode."""

    RAW = "raw_logprobs", "Raw: before temperature and penalties"
    PROCESSED = "processed_logprobs", "Processed: after temperature and penalties"


class Health(models.TextChoices):
    UNKNOWN = "unknown", "not checked"
    HEALTHY = "healthy", "healthy"
    UNHEALTHY = "unhealthy", "unhealthy"


class Server(Named):
    """Abstract base of models and environments: connection settings and health of a server that GymWeb calls."""

    api_key_encrypted = models.TextField(blank=True, editable=False)
    api_key_hint = models.CharField(max_length=8, blank=True, editable=False)
    connect_timeout = models.FloatField(
        default=10.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(300)],
        help_text="Seconds until connecting fails",
    )
    worker_group = models.SlugField(
        max_length=64,
        blank=True,
        help_text="Only workers in this group run its rollouts. If empty, only workers without a group do.",
    )
    health = models.CharField(max_length=16, choices=Health.choices, default=Health.UNKNOWN, editable=False)
    health_message = models.CharField(max_length=500, blank=True, editable=False)
    health_checked_at = models.DateTimeField(null=True, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True


class PolicyModel(Server):
    """A language model at an endpoint, or a script in its place. It runs rollouts, judges them or plays a user."""

    name = models.CharField(max_length=100)
    provider = models.CharField(max_length=16, choices=Provider.choices, default=Provider.COMPATIBLE)
    wire = models.CharField(max_length=16, choices=Wire.choices, default=Wire.CHAT)
    base_url = models.CharField(
        max_length=500,
        blank=True,
        help_text="With /v1, e.g. https://api.openai.com/v1; for Azure the endpoint of the resource",
    )
    more_base_urls = models.JSONField(
        default=list,
        blank=True,
        help_text="Further servers of the same model; a rollout stays with one server to reuse its prefix cache",
    )
    api_version = models.CharField(max_length=32, blank=True, help_text="Azure only, e.g. 2025-04-01-preview")
    key_is_token = models.BooleanField(
        "bearer token", default=False, help_text="Azure only: the key is a Microsoft Entra ID token"
    )
    model_name = models.CharField(max_length=200, blank=True, help_text="Model name at the endpoint")
    sampling = models.JSONField(
        default=dict, blank=True, help_text='Defaults, for example {"temperature": 1.0, "max_output_tokens": 1024}'
    )
    reasoning = models.CharField(
        max_length=16,
        choices=Reasoning.choices,
        default=Reasoning.FIELD,
        help_text="Where replies contain reasoning, and whether later turns include it",
    )
    call_content = models.CharField(
        "content beside calls",
        max_length=16,
        choices=CallContent.choices,
        default=CallContent.EMPTY,
        help_text="Chat Completions: content of an earlier reply that has tool calls and no text. "
        "Some servers fail on null, others on empty text.",
    )
    extra_headers = models.JSONField(
        default=dict,
        blank=True,
        help_text='Sent with every request, for example {"X-Team": "rl"}; {api_key} inserts the key',
    )
    extra_body = models.JSONField(
        default=dict,
        blank=True,
        help_text='Merged into every request, for example {"chat_template_kwargs": {"enable_thinking": false}}',
    )
    renamed_fields = models.JSONField(
        default=dict,
        blank=True,
        help_text='Other names of request fields, for example {"max_completion_tokens": "max_tokens"}',
    )
    version = models.CharField(
        max_length=200,
        blank=True,
        help_text="Current checkpoint, weights or adapter; recorded with every rollout",
    )
    call_timeout = models.FloatField(
        default=120.0,
        validators=[MinValueValidator(1), MaxValueValidator(3600)],
        help_text="Seconds until a call fails",
    )
    max_tries = models.PositiveSmallIntegerField(
        default=4,
        validators=[MinValueValidator(1), MaxValueValidator(20)],
        help_text="Maximum tries of a call that fails with 408, 425, 5xx, a timeout, a connection error or a malformed "
        "reply",
    )
    capture_tokens = models.BooleanField(
        default=False,
        help_text="Store token IDs and logprobs for training. Needs Chat Completions on vLLM.",
    )
    logprob_mode = models.CharField(
        max_length=32,
        choices=LogprobMode.choices,
        default=LogprobMode.RAW,
        help_text="The server's --logprobs-mode, unless the health check measures it; written into every row of tokens",
    )
    concurrency = models.PositiveIntegerField(
        default=256, validators=[MinValueValidator(1)], help_text="Maximum rollouts in flight over all workers"
    )
    input_price = models.FloatField(
        default=0.0, validators=[MinValueValidator(0)], help_text="USD per million input tokens; 0: no cost"
    )
    cached_input_price = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="USD per million cached input tokens; empty: same as input tokens",
    )
    cache_write_price = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="USD per million input tokens written to a cache; empty: same as input tokens",
    )
    output_price = models.FloatField(
        default=0.0, validators=[MinValueValidator(0)], help_text="USD per million output tokens"
    )
    mistake_rate = models.FloatField(
        default=0.4,
        validators=[MinValueValidator(0), MaxValueValidator(1)],
        help_text="Scripted only: share of rollouts in which the model makes a mistake",
    )
    health_checks = models.JSONField(
        default=list,
        editable=False,
        help_text="Results of the last health check (apps.gym.wires.endpoint_checks)",
    )
    capabilities = models.JSONField(
        default=dict, editable=False, help_text="Metadata reported by the endpoint: max_model_len, server_version, …"
    )
    logprob_check = models.JSONField(
        null=True, editable=False, help_text="The last check of captured logprobs (apps.rollouts.logprob_checks)"
    )

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
                violation_error_message="A limit is out of range.",
            ),
            models.CheckConstraint(
                condition=models.Q(
                    *(
                        models.Q((f"{name}__isnull", True)) | models.Q((f"{name}__gte", 0), (f"{name}__lte", 1e308))
                        for name in PRICE_FIELDS
                    )
                ),
                name="policy_model_prices_are_possible",
                violation_error_message="A price is a finite number, 0 or more.",
            ),
            models.CheckConstraint(condition=models.Q(health__in=Health.values), name="policy_model_health_is_known"),
            models.CheckConstraint(
                condition=models.Q(logprob_mode__in=LogprobMode.values), name="policy_model_logprob_mode_is_known"
            ),
            models.CheckConstraint(
                condition=models.Q(provider=Provider.SCRIPTED)
                | models.Q(provider=Provider.ANTHROPIC, wire=Wire.MESSAGES)
                | ~(models.Q(provider=Provider.ANTHROPIC) | models.Q(wire=Wire.MESSAGES)),
                name="policy_model_messages_wire_is_anthropics",
                violation_error_message="The provider Anthropic uses the Messages API, and no other provider does.",
            ),
        ]

    @property
    def base_urls(self) -> list[str]:
        return [self.base_url, *self.more_base_urls]

    @property
    def prices(self) -> Prices:
        return Prices(
            input=self.input_price,
            output=self.output_price,
            cached_input=self.cached_input_price,
            cache_write=self.cache_write_price,
        )

    @property
    def engine(self) -> dict[str, str]:
        """Return engine, version and data type of the server, as far as the last health check found them."""
        names = {"engine": "engine", "engine_version": "server_version", "dtype": "dtype"}
        return {name: self.capabilities[key] for name, key in names.items() if self.capabilities.get(key)}

    @property
    def known_logprob_mode(self) -> str:
        """Return the mode that the last health check measured, or else the setting."""
        return str(self.capabilities.get("logprob_mode") or self.logprob_mode)

    @property
    def is_scripted(self) -> bool:
        return self.provider == Provider.SCRIPTED

    @property
    def has_server(self) -> bool:
        """Return True if there is a server to check."""
        return not self.is_scripted


class RedactionPattern(Dated):
    """A custom redaction pattern of this installation, or a text that is never redacted.

    Only the kind `prefix` uses `least`.
    """

    class Kind(models.TextChoices):
        NAME = "name", "Values of this key or header"
        PREFIX = "prefix", "Text with this prefix"
        EXCEPTION = "exception", "Never redact this text"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    text = models.CharField(max_length=200)
    least = models.PositiveSmallIntegerField(
        default=16,
        validators=[MinValueValidator(4), MaxValueValidator(200)],
        help_text="Minimum length after the prefix: letters, digits, _ or -",
    )

    class Meta:
        ordering = ["kind", "text"]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "text"],
                name="redaction_pattern_once",
                violation_error_message="This pattern already exists.",
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
