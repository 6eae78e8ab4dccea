"""Django settings from environment variables and `.env`, with safe defaults (see docs/operate/settings.md)."""

import os
import sys
import tomllib
from pathlib import Path

import environ

from gymweb.api_settings import REST_FRAMEWORK, SPECTACULAR_SETTINGS  # noqa: F401
from gymweb.databases import connect, prepare_file
from gymweb.environment_variables import Environment, SettingRefused, read_commands
from gymweb.folders import PRIVATE_FOLDER, make_file_private, make_private, read_secret_key
from gymweb.oidc_settings import ALLAUTH_APPS, read_oidc
from gymweb.route_lists import FULL_DISK_ROUTES, LARGE_BODY_ROUTES, UNAUDITED_ROUTES  # noqa: F401

BASE_DIR = Path(__file__).resolve().parent.parent
VERSION: str = tomllib.loads((BASE_DIR / "pyproject.toml").read_text())["project"]["version"]
environ.Env.read_env(BASE_DIR / ".env")
env = Environment(environ.Env.ENVIRON)

VAR_DIR = Path(env.text("GYMWEB_VAR", default=str(BASE_DIR / "var")))
try:
    make_private(VAR_DIR, is_ours=not env.text("GYMWEB_VAR", default=""))
except OSError as problem:
    raise SettingRefused(
        f"GYMWEB_VAR: {VAR_DIR} cannot be created: {problem.strerror}. "
        f"Make user {os.geteuid()} the owner of {VAR_DIR.parent}, or choose another folder."
    ) from None
if not os.access(VAR_DIR, os.W_OK | os.X_OK):
    raise SettingRefused(
        f"GYMWEB_VAR: {VAR_DIR} is not writable for user {os.geteuid()}. "
        f"Make this user its owner (chown {os.geteuid()} {VAR_DIR}) or choose another folder."
    )


_given_key = env.text("GYMWEB_SECRET_KEY", default="")
if 0 < len(_given_key) < 32:
    raise SettingRefused("GYMWEB_SECRET_KEY is shorter than 32 characters. Use a longer key or unset it.")
SECRET_KEY = _given_key or read_secret_key(VAR_DIR)
SECRET_KEY_GIVEN = bool(_given_key)
DEBUG = env.switch("GYMWEB_DEBUG", default=False)
ALLOWED_HOSTS = env.texts("GYMWEB_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.origins("GYMWEB_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    "django_htmx",
    "template_partials",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "csp",
    *ALLAUTH_APPS,
    "apps.accounts",
    "apps.policies",
    "apps.alerts",
    "apps.environments",
    "apps.tasks",
    "apps.agents",
    "apps.rollouts",
    "apps.reviews",
    "apps.pairs",
    "apps.exports",
    "apps.tracking",
    "apps.api",
    "apps.dashboard",
    "gymweb",
]

MIDDLEWARE = [
    "apps.accounts.telemetry.current_request.RequestIdMiddleware",
    "apps.accounts.telemetry.request_spans.RequestSpanMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "gymweb.compression.CompressionMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "apps.accounts.sessions.session_activity.SessionActivityMiddleware",
    "apps.accounts.middleware.SignInMiddleware",
    "apps.accounts.middleware.AuditMiddleware",
    "apps.accounts.middleware.PermissionMiddleware",
    "gymweb.full_disk.FullDiskMiddleware",
    "apps.dashboard.chrome.storable_forms.StorableFormMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "apps.dashboard.chrome.redaction_notices.RedactionNoticeMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "gymweb.urls"
ASGI_APPLICATION = "gymweb.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "apps.dashboard.chrome.page_context.chrome",
            ],
        },
    },
]

# The worker lease, also used for timeouts of PostgreSQL connections.
WORKER_LEASE_SECONDS = env.number("GYMWEB_WORKER_LEASE_SECONDS", default=30.0, least=1, most=86_400)
DATABASES = {
    "default": connect(
        env.database("GYMWEB_DATABASE_URL", default=f"sqlite:///{VAR_DIR / 'gymweb.sqlite3'}"),
        # Workers and requests use separate connections, so tests need a file to share data.
        test_file=VAR_DIR / "test.sqlite3",
        idle_seconds=WORKER_LEASE_SECONDS / 2,
    )
}
if DATABASES["default"]["ENGINE"].endswith("sqlite3") and Path(DATABASES["default"]["NAME"]).parent == VAR_DIR:
    make_file_private(Path(DATABASES["default"]["NAME"]))
    prepare_file(Path(DATABASES["default"]["NAME"]))
# PostgreSQL: connections that a web process uses for requests; further requests wait for one.
WEB_CONNECTIONS = env.whole("GYMWEB_WEB_CONNECTIONS", default=20, least=2, most=10_000)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.redis("GYMWEB_REDIS_URL")
if REDIS_URL:
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "gymweb.channel_layer.PubSubLayer",
            # redis-py 8 has a default socket timeout of 5 s, which kills idle subscriptions.
            "CONFIG": {"hosts": [{"address": REDIS_URL, "socket_timeout": None}]},
        }
    }
else:
    CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "dashboard:sign_in"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# Single sign-on at an OpenID Connect provider.
OIDC = read_oidc(env)
SOCIALACCOUNT_ADAPTER = "apps.accounts.single_sign_on.oidc_protocol.ProviderAdapter"
SOCIALACCOUNT_PROVIDERS = OIDC.allauth_providers

USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "static-root"
STATIC_ROOT.mkdir(exist_ok=True)  # WhiteNoise warns if it is missing
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "gymweb.static_files.ModuleStaticFilesStorage"},
}
# Without a collected static root, files are served from their sources, so a fresh clone needs no build step.
WHITENOISE_USE_FINDERS = True
WHITENOISE_MANIFEST_STRICT = False
if not (STATIC_ROOT / "staticfiles.json").exists() and "collectstatic" not in sys.argv:
    STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}

# Security. GYMWEB_SECURE=1 means that a proxy in front of GymWeb terminates TLS.
SECURE = env.switch("GYMWEB_SECURE", default=False)
TRUSTED_PROXIES = env.whole("GYMWEB_TRUSTED_PROXIES", default=0, least=0, most=100)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CSRF_FAILURE_VIEW = "apps.dashboard.chrome.page_answers.csrf_failure"
if SECURE:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]  # requested directly, not through the proxy
    SECURE_HSTS_SECONDS = 31_536_000
    # HSTS for subdomains and HSTS preloading are the operator's decision: they affect other sites of the domain.
    SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

# Request bodies are spooled to disk (gymweb/serving.py): one up to MAX_BODY_BYTES, all together up to
# MAX_SPOOLED_BYTES. The other settings are for task files.
MOST_BYTES = 2**62
MAX_BODY_BYTES = env.whole("GYMWEB_MAX_BODY_BYTES", default=2 * 1024**3, least=1024, most=MOST_BYTES)
MAX_LINE_BYTES = env.whole("GYMWEB_MAX_LINE_BYTES", default=8 * 1024**2, least=1024, most=MOST_BYTES)
MAX_UPLOAD_ROWS = env.whole("GYMWEB_MAX_UPLOAD_ROWS", default=5_000_000, least=1, most=10**9)
MAX_UNPACKED_BYTES = env.whole("GYMWEB_MAX_UNPACKED_BYTES", default=16 * 1024**3, least=1024, most=MOST_BYTES)
MAX_UNPACK_RATIO = env.whole("GYMWEB_MAX_UNPACK_RATIO", default=200, least=1, most=10**6)
PARQUET_MEMORY_BYTES = env.whole("GYMWEB_PARQUET_MEMORY_BYTES", default=64 * 1024**2, least=1024, most=MOST_BYTES)
KEEP_REJECTED_DAYS = env.whole("GYMWEB_KEEP_REJECTED_DAYS", default=30, least=0, most=36_500)
MAX_SPOOLED_BYTES = env.whole("GYMWEB_MAX_SPOOLED_BYTES", default=4 * MAX_BODY_BYTES, least=1, most=4 * MOST_BYTES)
# None: a twentieth of each disk, at most 1 GiB (apps/accounts/disk_space.py).
MIN_FREE_BYTES = (
    env.whole("GYMWEB_MIN_FREE_BYTES", default=1024**3, least=0, most=MOST_BYTES)
    if env.text("GYMWEB_MIN_FREE_BYTES", default="")
    else None
)
# Hours for which responses to requests with an idempotency key are kept.
KEEP_ANSWERS_HOURS = env.whole("GYMWEB_KEEP_ANSWERS_HOURS", default=24, least=1, most=24 * 365)
UPLOAD_PART_BYTES = 8 * 1024**2
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024**2
FILE_UPLOAD_MAX_MEMORY_SIZE = 1024**2
FILE_UPLOAD_TEMP_DIR = str(VAR_DIR / "tmp")
# Locked files that show which processes are alive.
PROCESSES_DIR = VAR_DIR / "tmp" / "processes"
UPLOADS_DIR = VAR_DIR / "uploads"
EXPORTS_DIR = VAR_DIR / "exports"
TRACKING_DIR = VAR_DIR / "tracking"
for folder in (Path(FILE_UPLOAD_TEMP_DIR), UPLOADS_DIR, EXPORTS_DIR, TRACKING_DIR):
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)

# Outbound calls reach public addresses, and those on this allow-list: hosts, host:port, or networks.
OUTBOUND_ALLOW = env.texts("GYMWEB_OUTBOUND_ALLOW")

# Alerts: the address of this server in links, and the mail server. Without a mail server, e-mail is off.
PUBLIC_URL = next(iter(env.origins("GYMWEB_PUBLIC_URL")), "")
vars().update(env.email("GYMWEB_EMAIL_URL"))
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("GYMWEB_EMAIL_FROM", default="gymweb@localhost")

# Redact credentials in traces and log lines before they are stored, and in tasks as each upload asks.
REDACT = env.switch("GYMWEB_REDACT", default=True)

# MCP servers that run as child processes of a worker, by name. Engineers can choose from this list.
MCP_COMMANDS = read_commands(env.text("GYMWEB_MCP_COMMANDS", default=""))
MCP_PROCESSES = env.whole("GYMWEB_MCP_PROCESSES", default=32, least=1, most=10_000)

# Custom environments of the operator: folders, files or modules. Their code runs with the permissions of this process.
ENVIRONMENTS = env.texts("GYMWEB_ENVIRONMENTS")

# Model-written code runs in bubblewrap. The alternatives isolate far less, so they must be named explicitly.
SANDBOXES = ("bubblewrap", "unprivileged_process", "none")
SANDBOX = env.choice("GYMWEB_SANDBOX", default="bubblewrap", choices=SANDBOXES)
SANDBOX_PYTHON = env.text("GYMWEB_SANDBOX_PYTHON", default="")
SANDBOX_AT_ONCE = env.whole("GYMWEB_SANDBOX_AT_ONCE", default=0, least=0, most=1_000)
# Default: the sum of the limits of all executions.
_DEFAULT_SANDBOX_MB = 288 * (SANDBOX_AT_ONCE or 4 * (os.cpu_count() or 1))
SANDBOX_MEMORY_MB = env.whole("GYMWEB_SANDBOX_MEMORY_MB", default=_DEFAULT_SANDBOX_MB, least=0, most=10_000_000)

# Interval of the health checks of environments.
PROBE_SECONDS = env.number("GYMWEB_PROBE_SECONDS", default=60.0, least=1, most=86_400)

# Traces and metrics of GymWeb itself. OpenTelemetry's SDK reads its other standard variables.
SEND_SPANS, SEND_METRICS = env.telemetry("TRACES"), env.telemetry("METRICS")
METRIC_SECONDS = env.whole("OTEL_METRIC_EXPORT_INTERVAL", default=60_000, least=100, most=86_400_000) / 1000
TELEMETRY_PROTOCOL = env.text("OTEL_EXPORTER_OTLP_PROTOCOL", default="http/protobuf")

# Engine
WORKER_SEATS = env.whole("GYMWEB_WORKER_SEATS", default=256, least=1, most=100_000)
WORKER_MEMORY_MB = env.whole("GYMWEB_WORKER_MEMORY_MB", default=512, least=64, most=10_000_000)
WORKER_GRACE_SECONDS = env.number("GYMWEB_WORKER_GRACE_SECONDS", default=20.0, least=0, most=86_400)
# Address on which a worker listens for external agents, and at which web processes reach it.
CAPTURE_HOST = env.text("GYMWEB_CAPTURE_HOST", default="127.0.0.1")
# True: external agents send their calls to this address of the worker, not through a web process.
CAPTURE_DIRECT = env.switch("GYMWEB_CAPTURE_DIRECT", default=False)
# Command agents: folders that they may read; concurrent agents of a worker (0: four for each processor); memory and
# files of each agent.
AGENT_MOUNTS = env.texts("GYMWEB_AGENT_MOUNTS")
# Folders with tokenizers and chat templates that exports may be checked against.
TOKENIZERS = env.texts("GYMWEB_TOKENIZERS")
AGENT_PROCESSES = env.whole("GYMWEB_AGENT_PROCESSES", default=0, least=0, most=10_000)
AGENT_MEMORY_MB = env.whole("GYMWEB_AGENT_MEMORY_MB", default=2_048, least=0, most=10_000_000)
AGENT_FILES_MB = env.whole("GYMWEB_AGENT_FILES_MB", default=2_048, least=1, most=10_000_000)
# Share of a worker's seats that attempts of external agents may occupy, at least one seat.
EXTERNAL_SHARE = env.number("GYMWEB_EXTERNAL_SHARE", default=0.9, least=0.01, most=1)
# Seconds without a call or a command after which an external agent counts as lost.
CAPTURE_LEASE_SECONDS = env.number("GYMWEB_CAPTURE_LEASE_SECONDS", default=120.0, least=1, most=86_400)
SERVED_SESSIONS = env.whole("GYMWEB_SERVED_SESSIONS", default=10_000, least=1, most=10**7)
SERVED_SESSION_SECONDS = env.number("GYMWEB_SERVED_SESSION_SECONDS", default=3600.0, least=1, most=86_400)
# Online collection: open streams per web process, and rollouts per stream.
STREAMS = env.whole("GYMWEB_STREAMS", default=32, least=1, most=10_000)
STREAM_ROLLOUTS = env.whole("GYMWEB_STREAM_ROLLOUTS", default=10_000, least=1, most=30_000)
STREAM_SECONDS = env.whole("GYMWEB_STREAM_SECONDS", default=14_400, least=1, most=7 * 86_400)
SEARCH_WORDS = env.whole("GYMWEB_SEARCH_WORDS", default=40_000, least=100, most=1_000_000)
# Time limit in seconds of one rollout filter in a request; 0 means no limit.
FILTER_SECONDS = env.number("GYMWEB_FILTER_SECONDS", default=10.0, least=0, most=3_600)
BREAKER_FAILURES = env.whole("GYMWEB_BREAKER_FAILURES", default=10, least=1, most=10**9)
# Background jobs of all apps, run by workers. They are declared next to their functions
# (apps/accounts/job_declarations.py) and listed here by name, because the engine must not import the apps above it.
WORKER_BACKGROUND_JOBS = [
    "apps.environments.environment_health.probe_due_environments",
    "apps.rollouts.plans.planning.sweep_plans",
    "apps.rollouts.steering.controls.sweep_cancelled",
    "apps.rollouts.streams.rollout_stream.sweep_left",
    "apps.rollouts.imports.received_traces.store_complete_traces",
    "apps.tasks.upload_jobs.load_queued_upload",
    "apps.tasks.gold_checks.check_gold_answers",
    "apps.tasks.upload_cleanup.sweep_uploads",
    "apps.tasks.dataset_deletion.delete_next",
    "apps.rollouts.steering.collection_deletion.delete_next_collection",
    "apps.rollouts.free_pages.return_free_pages",
    "apps.rollouts.reverification.reverification_jobs.continue_reverification",
    "apps.rollouts.scans.scan_jobs.continue_scans",
    "apps.pairs.pair_set_jobs.make_queued_pair_set",
    "apps.exports.export_jobs.write_queued_export",
    "apps.exports.rechecks.recheck_jobs.continue_recheck",
    "apps.exports.trace_sends.send_jobs.send_queued_traces",
    "apps.rollouts.search.word_index.index_next_rollouts",
    "apps.rollouts.metrics.cached_figures.measure_wanted",
    "apps.rollouts.metrics.figure_blocks.count_marked_blocks",
    "apps.rollouts.server_metrics.aggregate_requests.request_queued_metrics",
    "apps.accounts.idempotent_requests.sweep_answers",
    "apps.accounts.sessions.browser_sessions.sweep_sessions",
    "apps.alerts.alert_delivery.deliver_alerts",
    "apps.rollouts.alert_checks.check_alerts",
    "apps.tracking.run_points.record_points",
    "apps.tracking.run_delivery.send_runs",
    "apps.tracking.hub_pushes.push_exports",
    "apps.tracking.run_folders.sweep_run_folders",
]

# Trackers: path of a Python interpreter with their packages (empty: that of GymWeb), and URL of the Hub to which
# exports are pushed.
TRACKING_PYTHON = env.text("GYMWEB_TRACKING_PYTHON", default="")
HUB_URL = next(iter(env.origins("GYMWEB_HUB_URL")), "https://huggingface.co")
# W&B servers that runs may be sent to. The wandb package connects by itself, so OUTBOUND_ALLOW does not apply to it.
WANDB_SERVERS = ["https://api.wandb.ai", *env.origins("GYMWEB_WANDB_SERVERS")]

# Requests per minute to the API; 0 means no limit.
API_RATE = env.whole("GYMWEB_API_RATE", default=6_000, least=0, most=10**7)
API_ADDRESS_RATE = env.whole("GYMWEB_API_ADDRESS_RATE", default=18_000, least=0, most=10**7)

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "class": "gymweb.loglines.LineFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s %(message)s",
        },
        "json": {"class": "gymweb.loglines.JsonFormatter"},
    },
    "filters": {"outages": {"()": "gymweb.loglines.OutageFilter"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": env.choice("GYMWEB_LOG_FORMAT", default="line", choices=("line", "json")),
            "filters": ["outages"],
        }
    },
    "root": {"handlers": ["stderr"], "level": env.choice("GYMWEB_LOG_LEVEL", default="INFO", choices=LEVELS)},
    "loggers": {
        "daphne": {"level": "WARNING"},
        "django.channels.server": {"level": "WARNING"},
        # They log a line for every model call, and several for every request of a coding agent.
        "httpx2": {"level": "WARNING"},
        "mcp": {"level": "WARNING"},
        # It logs a warning for each retry of a request.
        "opentelemetry": {"level": "ERROR"},
    },
}
