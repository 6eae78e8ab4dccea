"""Save an environment whose resource server this installation may call."""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import describe, record
from apps.environments.models import OVER_HTTP, USUAL_CONCURRENCY, Adapter, Environment
from apps.environments.verifier_trial import describe_problems
from apps.gym.calls import lookups
from apps.gym.calls.outbound_policy import OutboundPolicy, OutboundRefused
from apps.gym.judging.settings import read_settings
from apps.gym.request_refusals import Refusal
from apps.gym.slugs import find_slug_problem
from apps.gym.verifiers.registry import asks_judge
from apps.gym.written.registry import find_environment, list_names
from apps.policies.models import Health
from apps.policies.policy_model_changes import KeyRequired
from apps.policies.secrets import encrypt_secret, hint_of


class EnvironmentChanged(Refusal, status=409, code="changed"):
    """The row to change is no longer there."""


def save_environment(*, environment: Environment, user: object, api_key: str | None = None) -> Environment:
    """Create or change one. `api_key` None keeps the stored key, an empty one removes it.

    Raises ValidationError by field, KeyRequired (one of them) where a new address meets a stored key, and
    EnvironmentChanged.

    The other adapter's field is emptied, and the judge's fields where nobody would ask it, so that a row never says two
    things. What the last health check saw is forgotten when the server is another one. Where each attempt starts a
    process, the usual number of rollouts at once becomes the most that may be.
    """
    _tidy(environment)
    environment.full_clean()
    if environment._state.adding and (problem := find_slug_problem(environment.slug)):
        raise ValidationError({"slug": problem})
    _check_server(environment)
    _check_verifier(environment)
    _check_judge(environment)
    with transaction.atomic():
        stored = _lock_stored(environment)
        _keep_key(environment, stored, api_key)
        if stored is None or api_key is not None or _server_of(stored) != _server_of(environment):
            environment.health, environment.health_message = Health.UNKNOWN, ""
            environment.health_checked_at, environment.survey = None, {}
            environment.unwell_since = None
            environment.probe_due_at = timezone.now() if environment.has_server else None
        environment.save()
        record(
            user=user,
            action="environment.create" if stored is None else "environment.change",
            target=environment.slug,
            adapter=environment.adapter,
            server=environment.server,
            verifies=environment.verifies,
            verifier=environment.verifier.get("type", ""),
            judge=environment.judge_model.slug if environment.judge_model else "",
            key_changed=api_key is not None,
            before=describe(stored),
            after=describe(environment),
        )
    return environment


def _keep_key(environment: Environment, stored: Environment | None, api_key: str | None) -> None:
    """A key goes to the address that it was entered for, and to no other."""
    key = "" if not environment.is_over_http else None if api_key is None else api_key.strip()
    if key is not None or stored is None:
        environment.api_key_encrypted, environment.api_key_hint = encrypt_secret(key) if key else "", hint_of(key or "")
        return
    if stored.api_key_encrypted and stored.base_url != environment.base_url:
        raise KeyRequired
    environment.api_key_encrypted, environment.api_key_hint = stored.api_key_encrypted, stored.api_key_hint


def _tidy(environment: Environment) -> None:
    environment.base_url = environment.base_url.strip().rstrip("/")
    if environment.adapter not in OVER_HTTP:
        environment.base_url = ""
    if environment.adapter != Adapter.MCP_PROCESS:
        environment.command = ""
    elif environment.concurrency == USUAL_CONCURRENCY:
        # Nobody chose it.
        environment.concurrency = min(USUAL_CONCURRENCY, settings.MCP_PROCESSES)
    if environment.adapter != Adapter.BUILTIN:
        environment.builtin = ""
    if environment.verifier is None:
        environment.verifier = {}
    if not asks_for_judge(environment) and not _rows_may_ask(environment):
        environment.judge_model, environment.judge_rubric, environment.judge_settings = None, "", {}


def _check_server(environment: Environment) -> None:
    if environment.adapter == Adapter.BUILTIN:
        if find_environment(environment.builtin) is None:
            names = ", ".join(list_names())
            raise ValidationError({"builtin": f"There is no built-in environment of that name; there are: {names}."})
        return
    if environment.adapter == Adapter.DECLARED:
        return
    if environment.adapter == Adapter.MCP_PROCESS:
        _check_command(environment)
        return
    if "?" in environment.base_url or "#" in environment.base_url:
        raise ValidationError({"base_url": "Give scheme, host, port and path only: the routes are put behind them."})
    try:
        lookups.check_saved_url(OutboundPolicy(settings.OUTBOUND_ALLOW), environment.base_url)
    except OutboundRefused as error:
        raise ValidationError({"base_url": str(error)}) from None


def _check_command(environment: Environment) -> None:
    """Only what the operator named may run on this machine."""
    if environment.command not in settings.MCP_COMMANDS:
        names = ", ".join(sorted(settings.MCP_COMMANDS)) or "none"
        told = f"There is no command of that name in GYMWEB_MCP_COMMANDS; there are: {names}."
        raise ValidationError({"command": told})
    if environment.concurrency > settings.MCP_PROCESSES:
        told = f"Each attempt starts a process: at most {settings.MCP_PROCESSES} at once (GYMWEB_MCP_PROCESSES)."
        raise ValidationError({"concurrency": told})


def _check_verifier(environment: Environment) -> None:
    if not environment.verifier:
        return
    if problems := describe_problems(environment.verifier):
        raise ValidationError({"verifier": problems})


def asks_for_judge(environment: Environment) -> bool:
    """What verifies here goes before what the built-in would do."""
    if environment.verifies_here:
        return asks_judge(environment.verifier)
    builtin = find_environment(environment.builtin)
    return builtin is not None and builtin.asks_judge


def _rows_may_ask(environment: Environment) -> bool:
    return environment.verifies_here and environment.judge_model is not None and not environment.verifier


def _check_judge(environment: Environment) -> None:
    if environment.verifies and asks_for_judge(environment) and environment.judge_model is None:
        raise ValidationError({"judge_model": "A judge model gives this environment's rewards: name one."})
    group = environment.judge_model.worker_group if environment.judge_model else ""
    if group and group != environment.worker_group:
        told = f"Only workers of the group {group} may use it: give this environment the same worker group."
        raise ValidationError({"judge_model": told})
    try:
        read_settings(environment.judge_settings)
    except ValueError as error:
        raise ValidationError({"judge_settings": f"{error}."}) from None


def _server_of(environment: Environment) -> tuple[str, str]:
    return environment.adapter, environment.server


def _lock_stored(environment: Environment) -> Environment | None:
    if environment.pk is None:
        return None
    stored = Environment.objects.select_for_update().filter(pk=environment.pk).first()
    if stored is None:
        raise EnvironmentChanged(f"The environment {environment.slug} was deleted in the meantime.")
    return stored
