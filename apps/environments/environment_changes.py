"""Save environments, with their API key and adapter settings."""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from apps.environments.models import DEFAULT_CONCURRENCY, OVER_HTTP, Adapter, Environment
from apps.environments.verifier_cases import describe_problems
from apps.gym.judging.scale import read_settings
from apps.gym.slugs import find_slug_problem
from apps.gym.verifiers.registry import asks_judge
from apps.gym.written.registry import find_environment, list_names
from apps.policies.models import Health
from apps.policies.policy_model_changes import KeyRequired
from apps.policies.row_checks import find_url_problem, lock_stored, save_row
from apps.policies.secrets import encrypt_secret, hint_of

USED_BY = {"base_url": OVER_HTTP, "builtin": (Adapter.BUILTIN,), "command": (Adapter.MCP_PROCESS,)}
"""The adapters that use each field."""


def save_environment(*, environment: Environment, user: object, api_key: str | None = None) -> Environment:
    """Create or change a policy model. `api_key` None keeps the stored key, an empty one removes it.

    Raise ValidationError by field, its subclass KeyRequired for a new address with a stored key, and
    RowDeleted.

    Clears the fields of other adapters, and the judge fields if no judge is used, so that a row is consistent. Drops
    the last health check if the server changed. If each attempt starts a process, the default concurrency is capped at
    the maximum number of processes.
    """
    _tidy(environment)
    environment.full_clean()
    if environment._state.adding and (problem := find_slug_problem(environment.slug)):
        raise ValidationError({"slug": problem})
    _check_server(environment)
    _check_verifier(environment)
    _check_judge(environment)
    with transaction.atomic():
        stored = lock_stored(environment)
        _keep_key(environment, stored, api_key)
        if stored is None or api_key is not None or _server_of(stored) != _server_of(environment):
            environment.health, environment.health_message = Health.UNKNOWN, ""
            environment.health_checked_at, environment.survey = None, {}
            environment.unwell_since = None
            environment.probe_due_at = timezone.now() if environment.has_server else None
        save_row(
            environment,
            stored,
            user=user,
            noun="environment",
            target=environment.slug,
            adapter=environment.adapter,
            server=environment.server,
            verifies=environment.verifies,
            verifier=environment.verifier.get("type", ""),
            judge=environment.judge_model.slug if environment.judge_model else "",
            key_changed=api_key is not None,
        )
    return environment


def _keep_key(environment: Environment, stored: Environment | None, api_key: str | None) -> None:
    """Set the given key, or keep the stored one. Raise KeyRequired if its address changed."""
    key = "" if not environment.is_over_http else None if api_key is None else api_key.strip()
    if key is not None or stored is None:
        environment.api_key_encrypted, environment.api_key_hint = encrypt_secret(key) if key else "", hint_of(key or "")
        return
    if stored.api_key_encrypted and stored.base_url != environment.base_url:
        raise KeyRequired
    environment.api_key_encrypted, environment.api_key_hint = stored.api_key_encrypted, stored.api_key_hint


def _tidy(environment: Environment) -> None:
    environment.base_url = environment.base_url.strip().rstrip("/")
    for name, adapters in USED_BY.items():
        if environment.adapter not in adapters:
            setattr(environment, name, "")
    if environment.adapter == Adapter.MCP_PROCESS and environment.concurrency == DEFAULT_CONCURRENCY:
        # The default was not changed.
        environment.concurrency = min(DEFAULT_CONCURRENCY, settings.MCP_PROCESSES)
    if environment.verifier is None:
        environment.verifier = {}
    if not (asks_for_judge(environment) or _rows_may_ask(environment) or environment.has_simulated_user):
        environment.judge_model, environment.judge_rubric, environment.judge_settings = None, "", {}


def _check_server(environment: Environment) -> None:
    if environment.adapter == Adapter.BUILTIN:
        if find_environment(environment.builtin) is None:
            names = ", ".join(list_names())
            raise ValidationError({"builtin": f"Unknown built-in environment. Choose one of: {names}."})
        return
    if environment.adapter == Adapter.DECLARED:
        return
    if environment.adapter == Adapter.MCP_PROCESS:
        _check_command(environment)
        return
    if "?" in environment.base_url or "#" in environment.base_url:
        raise ValidationError({"base_url": "Give only scheme, host, port and path. Routes are appended."})
    if problem := find_url_problem(environment.base_url):
        raise ValidationError({"base_url": problem})


def _check_command(environment: Environment) -> None:
    """Raise ValidationError unless the operator allows the command on this machine."""
    if environment.command not in settings.MCP_COMMANDS:
        names = ", ".join(sorted(settings.MCP_COMMANDS)) or "none"
        told = f"Unknown command. GYMWEB_MCP_COMMANDS defines: {names}."
        raise ValidationError({"command": told})
    if environment.concurrency > settings.MCP_PROCESSES:
        told = f"Each attempt starts a process, so the maximum is {settings.MCP_PROCESSES} (GYMWEB_MCP_PROCESSES)."
        raise ValidationError({"concurrency": told})


def _check_verifier(environment: Environment) -> None:
    if not environment.verifier:
        return
    if problems := describe_problems(environment.verifier):
        raise ValidationError({"verifier": problems})


def asks_for_judge(environment: Environment) -> bool:
    """Return True if the configured verifier, or else the built-in one, needs a judge."""
    if environment.verifies_here:
        return asks_judge(environment.verifier)
    builtin = find_environment(environment.builtin)
    return builtin is not None and builtin.asks_judge


def _rows_may_ask(environment: Environment) -> bool:
    return environment.verifies_here and environment.judge_model is not None and not environment.verifier


def _check_judge(environment: Environment) -> None:
    if environment.verifies and asks_for_judge(environment) and environment.judge_model is None:
        raise ValidationError({"judge_model": "This environment needs a judge model. Choose one."})
    group = environment.judge_model.worker_group if environment.judge_model else ""
    if group and group != environment.worker_group:
        told = f"Only workers of the group {group} can use it. Set the same worker group in this environment."
        raise ValidationError({"judge_model": told})
    try:
        read_settings(environment.judge_settings)
    except ValueError as error:
        raise ValidationError({"judge_settings": f"{error}."}) from None


def _server_of(environment: Environment) -> tuple[str, str]:
    return environment.adapter, environment.server
