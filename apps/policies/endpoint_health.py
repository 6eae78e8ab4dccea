"""Health checks of policy models. Each check calls the endpoint."""

import copy

import msgspec
from asgiref.sync import async_to_sync
from django.utils import timezone

from apps.accounts.outages import release_connection
from apps.gym.errors import PolicyError
from apps.gym.storable import clean_line
from apps.gym.wires.endpoint_checks import CALL_SECONDS, Check, Checkup, Endpoint, check_endpoint
from apps.gym.wires.openai_http import HttpPolicy
from apps.policies.models import Health, PolicyModel, Provider
from apps.policies.policy_clients import connect_policy, open_outbound, stored_key
from apps.policies.setup_checks import check_logprob_mode, check_setup

_MESSAGE_CHARACTERS = 500
_TRIES = 3


def probe_policy_model(*, policy_model: PolicyModel) -> PolicyModel:
    """Check the endpoint (list models, make one call) and store the results. Failures are results, not exceptions."""
    checkup = _check(policy_model)
    failures = checkup.failures
    policy_model.health = Health.UNHEALTHY if failures else Health.HEALTHY
    policy_model.health_message = clean_line(_summary(checkup), _MESSAGE_CHARACTERS)
    policy_model.health_checks = msgspec.to_builtins(checkup.checks)
    policy_model.capabilities = checkup.capabilities
    policy_model.health_checked_at = timezone.now()
    policy_model.save(update_fields=["health", "health_message", "health_checks", "capabilities", "health_checked_at"])
    return policy_model


def _check(policy_model: PolicyModel) -> Checkup:
    if policy_model.is_scripted:
        return Checkup([Check(name="reachable", status="ok", message="Scripted, no LLM: always ready.")], {})
    release_connection()
    try:
        return async_to_sync(_ask)(policy_model)
    except PolicyError as error:
        return Checkup([Check(name="reachable", status="failed", message=str(error))], {})


async def _ask(policy_model: PolicyModel) -> Checkup:
    """Run the checks. Raise PolicyError if there is no usable key."""
    key = stored_key(policy_model)
    patient = copy.copy(policy_model)
    patient.call_timeout = min(policy_model.call_timeout, CALL_SECONDS)
    # One try per server, so that failures are visible.
    patient.max_tries = min(len(policy_model.base_urls), _TRIES)
    outbound = open_outbound()
    try:
        policy = connect_policy(patient, outbound)
        assert isinstance(policy, HttpPolicy)
        endpoint = Endpoint(
            sender=policy.sender,
            policy=policy,
            model_name=policy_model.model_name,
            secrets=[key],
            has_key=bool(key),
            lists_models=policy_model.provider not in (Provider.AZURE, Provider.ANTHROPIC),
            tells_version=policy_model.provider == Provider.VLLM,
            wants_tokens=policy_model.capture_tokens,
            sampling=policy_model.sampling,
        )
        checkup = await check_endpoint(endpoint)
        if any(check.name == "latency" and check.status == "ok" for check in checkup.checks):
            if policy_model.capture_tokens:
                check, found = await check_logprob_mode(policy, policy_model.logprob_mode)
                checkup.checks.append(check)
                checkup.capabilities |= found
            checkup.checks += await check_setup(endpoint, policy_model.wire)
        return checkup
    finally:
        await outbound.close()


def _summary(checkup: Checkup) -> str:
    failures = checkup.failures
    if failures:
        more = f" ({len(failures) - 1} more)" if len(failures) > 1 else ""
        return failures[0].message + more
    if len(checkup.checks) == 1:
        return checkup.checks[0].message
    if unchecked := next((c.message for c in checkup.checks if c.name == "tool_call" and c.status != "ok"), ""):
        return f"The endpoint responds. {unchecked}"
    tokens = " and returns token IDs" if any(c.name == "tokens" and c.status == "ok" for c in checkup.checks) else ""
    warnings = "".join(f" Warning: {check.message}" for check in checkup.checks if check.status == "warning")
    return f"The endpoint responds, has the model and calls tools{tokens}.{warnings}"
