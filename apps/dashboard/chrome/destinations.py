"""All pages and actions, in one list for the side menu, the settings tabs and the palette."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.urls import reverse

from apps.accounts.permissions import Permission, user_may


@dataclass(frozen=True)
class Destination:
    """`belongs` are the prefixes of the URL names that belong to it; `also` are additional search words.

    `section` is its heading in the side menu; None if it is not in the menu.
    """

    label: str
    name: str
    icon: str
    permission: Permission
    also: str = ""
    section: str | None = None
    belongs: tuple[str, ...] = ()
    is_action: bool = False
    is_setting: bool = False

    @property
    def url(self) -> str:
        return reverse(f"dashboard:{self.name}")


_SET_UP = ("dataset", "suite", "upload", "task", "mapping", "deletion")
OWN_ACCOUNT = ("account", "second", "recovery", "key")
"""Prefixes of the URL names of the user's own account, which the side menu links to by the user's name."""
_SETTINGS = (
    *("settings", "people", "person", "invitation", "redaction", "secrets", "outbound"),
    *("alert", "delivery", "trace", "tracker"),
)

DESTINATIONS: tuple[Destination, ...] = (
    Destination("Overview", "home", "home", Permission.READ, "home start", "", ("home",)),
    Destination("Datasets", "dataset_list", "datasets", Permission.READ, "tasks", "Set up", _SET_UP),
    Destination(
        "Environments",
        "environment_list",
        "environments",
        Permission.READ,
        "tools",
        "Set up",
        ("environment", "verifier"),
    ),
    Destination("Models", "model_list", "models", Permission.READ, "policy endpoints", "Set up", ("model",)),
    Destination("Agents", "agent_list", "agents", Permission.READ, "harness", "Set up", ("agent",)),
    Destination(
        "Collections",
        "collection_list",
        "collections",
        Permission.READ,
        "runs",
        "Work",
        ("collection", "recheck", "reverification"),
    ),
    Destination(
        "Rollouts", "rollout_list", "rollouts", Permission.READ, "traces attempts", "Work", ("rollout", "scan")
    ),
    Destination("Queues", "queue_list", "check", Permission.READ_QUEUES, "judge annotate", "Work", ("queue",)),
    Destination("Reviews", "review_list", "docs", Permission.READ_QUEUES, "verdicts scores", "Work", ("review",)),
    Destination("Pair sets", "pair_set_list", "pairs", Permission.READ, "pairs preferences", "Work", ("pair",)),
    Destination("Exports", "export_list", "exports", Permission.READ, "files training", "Work", ("export",)),
    Destination("Workers", "worker_list", "workers", Permission.READ, "seats", "Operate", ("worker",)),
    Destination("Activity", "activity", "refresh", Permission.READ, "alerts progress", "Operate", ("activity",)),
    Destination("Settings", "settings", "settings", Permission.READ, "", "Operate", _SETTINGS),
    Destination("Audit log", "audit", "docs", Permission.AUDIT, "history changes", "Operate", ("audit",)),
    Destination("Environment gallery", "environment_gallery", "models", Permission.READ, "built-in generate sample"),
    Destination("Verifiers", "verifier_list", "check", Permission.READ, "rewards"),
    Destination("Rechecks", "recheck_list", "refresh", Permission.READ, "rules upgrade"),
    Destination("Reverifications", "reverification_list", "refresh", Permission.READ, "rescore"),
    Destination("Scans", "scan_list", "check", Permission.READ, "judge questions scanners labels"),
    Destination(
        "Model matrix", "collection_matrix", "models", Permission.READ, "leaderboard benchmark datasets versions"
    ),
    Destination("Compare collections", "collection_compare", "pairs", Permission.READ, "difference regressions"),
    Destination("Suites", "suite_list", "datasets", Permission.READ, "benchmarks datasets"),
    Destination("Column mappings", "mapping_list", "datasets", Permission.READ, "upload columns"),
    Destination("New collection", "collection_create", "plus", Permission.COLLECT, "collect run", is_action=True),
    Destination("New dataset", "dataset_create", "plus", Permission.UPLOAD, "upload tasks", is_action=True),
    Destination("New suite", "suite_create", "plus", Permission.COLLECT, "benchmark datasets", is_action=True),
    Destination("New environment", "environment_create", "plus", Permission.CONFIGURE, is_action=True),
    Destination("New model", "model_create", "plus", Permission.MODELS, "endpoint", is_action=True),
    Destination("New agent", "agent_create", "plus", Permission.CONFIGURE, is_action=True),
    Destination("New queue", "queue_create", "plus", Permission.LEAD, "review annotate", is_action=True),
    Destination("Rubrics", "rubric_list", "docs", Permission.READ, "criteria scores"),
    Destination("New rubric", "rubric_create", "plus", Permission.LEAD, "criteria scores", is_action=True),
    Destination(
        "Build pairs", "pair_set_create", "plus", Permission.PAIR, "new pair set preferences dpo", is_action=True
    ),
    Destination("New export", "export_create", "plus", Permission.EXPORT, "download file", is_action=True),
    Destination("Re-verify", "reverification_create", "plus", Permission.COLLECT, "rescore", is_action=True),
    Destination("New scan", "scan_create", "plus", Permission.COLLECT, "judge question", is_action=True),
    Destination(
        "Import rollouts", "collection_import", "upload", Permission.COLLECT, "collection file", is_action=True
    ),
    Destination(
        "Import NeMo Gym configurations", "environment_import", "upload", Permission.CONFIGURE, "yaml", is_action=True
    ),
    Destination("New user", "person_create", "plus", Permission.ACCOUNTS, "people user", is_action=True),
    Destination("Invite user", "invitation_create", "plus", Permission.ACCOUNTS, "people invitation", is_action=True),
    Destination(
        "Your account",
        "account",
        "key",
        Permission.OWN_ACCOUNT,
        "password api keys token profile sessions two-factor",
        is_setting=True,
    ),
    Destination("Users and roles", "people", "people", Permission.ACCOUNTS, "users accounts", is_setting=True),
    Destination("API keys", "settings_keys", "key", Permission.ACCOUNTS, "tokens", is_setting=True),
    Destination(
        "Endpoint API keys", "settings_secrets", "key", Permission.MODELS, "api key environment", is_setting=True
    ),
    Destination(
        "Outbound calls", "settings_outbound", "exports", Permission.CONFIGURE, "allow list addresses", is_setting=True
    ),
    Destination(
        "Alerts", "alert_list", "refresh", Permission.CONFIGURE, "webhooks slack e-mail notifications", is_setting=True
    ),
    Destination(
        "Trace destinations",
        "trace_list",
        "exports",
        Permission.CONFIGURE,
        "langfuse phoenix mlflow otlp opentelemetry spans",
        is_setting=True,
    ),
    Destination(
        "Trackers",
        "tracker_list",
        "models",
        Permission.READ,
        "wandb weights biases mlflow trackio tensorboard experiments",
        is_setting=True,
    ),
    Destination("Redaction", "redaction", "pairs", Permission.CONFIGURE, "credentials patterns", is_setting=True),
    Destination(
        "Storage", "settings_storage", "datasets", Permission.RETENTION, "disk retention delete", is_setting=True
    ),
)


def destinations_for(user: object) -> Iterator[Destination]:
    """Return the destinations that this user may use, in order."""
    return (each for each in DESTINATIONS if user_may(user, each.permission))
