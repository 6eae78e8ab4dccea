"""Save a policy model with its API key: write-only, and bound to the address it was entered for."""

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.auditing import record
from apps.gym.outbound import OutboundPolicy, OutboundRefused
from apps.gym.sampling import find_sampling_problems
from apps.policies.models import Health, PolicyModel, Wire
from apps.policies.secrets import encrypt_secret, hint_of

MAX_PRICE = 1_000_000
"""USD for a million tokens. No endpoint asks as much, and sums of costs stay finite."""


class KeyRequired(ValidationError):
    """The base URL changed and the stored key was entered for the old one: whoever changes it must know the key."""

    def __init__(self) -> None:
        super().__init__({"api_key": "Enter the API key again: the stored one belongs to the old base URL."})


class PolicyModelChanged(Exception):
    """The row to change is no longer there."""


def save_policy_model(*, policy_model: PolicyModel, api_key: str | None, user: object) -> PolicyModel:
    """Create or change one. `api_key` None keeps the stored key, an empty one removes it.

    Raises ValidationError by field, and KeyRequired (one of them) where a new base URL meets a stored key.
    """
    key = None if api_key is None else api_key.strip()
    _check(policy_model)
    with transaction.atomic():
        stored = _lock_stored(policy_model)
        moved = stored is not None and stored.base_url.rstrip("/") != policy_model.base_url.rstrip("/")
        if key is None and stored is not None:
            if moved and stored.api_key_encrypted:
                raise KeyRequired
            policy_model.api_key_encrypted = stored.api_key_encrypted
            policy_model.api_key_hint = stored.api_key_hint
        else:
            policy_model.api_key_encrypted = encrypt_secret(key) if key else ""
            policy_model.api_key_hint = hint_of(key or "")
        if stored is None or moved or key is not None or stored.model_name != policy_model.model_name:
            policy_model.health, policy_model.health_message = Health.UNKNOWN, ""
            policy_model.health_checked_at = None
        policy_model.save()
        record(
            user=user,
            action="policy_model.create" if stored is None else "policy_model.change",
            target=policy_model.slug,
            base_url=policy_model.base_url,
            model_name=policy_model.model_name,
            key_changed=key is not None,
        )
    return policy_model


def find_errors(policy_model: PolicyModel) -> dict[str, list[str]]:
    """By field, what keeps a policy model from being saved that its fields' own validators do not see."""
    found = {
        "base_url": _problems_of_address(policy_model),
        "model_name": [] if policy_model.is_scripted or policy_model.model_name else ["Give the model's name."],
        "capture_tokens": _problems_of_capturing(policy_model),
        "sampling": find_sampling_problems(policy_model.sampling),
        "input_price": _problems_of_price(policy_model.input_price),
        "output_price": _problems_of_price(policy_model.output_price),
    }
    return {field: problems for field, problems in found.items() if problems}


def _problems_of_price(price: float) -> list[str]:
    return [] if price <= MAX_PRICE else [f"Give at most {MAX_PRICE:,} USD for a million tokens."]


def _problems_of_address(policy_model: PolicyModel) -> list[str]:
    base_url = policy_model.base_url.strip()
    if not base_url:
        return [] if policy_model.is_scripted else ["Give a base URL, or choose the scripted provider."]
    try:
        OutboundPolicy(settings.OUTBOUND_ALLOW).check_url(base_url)
    except OutboundRefused as error:
        return [str(error)]
    return []


def _problems_of_capturing(policy_model: PolicyModel) -> list[str]:
    if policy_model.capture_tokens and not policy_model.is_scripted and policy_model.wire != Wire.CHAT:
        return ["Token ids come over the Chat Completions API only."]
    return []


def _check(policy_model: PolicyModel) -> None:
    """Everything that is wrong at once: a caller who learns one thing a round needs many rounds."""
    policy_model.base_url = policy_model.base_url.strip()
    errors: dict[str, list[Any]] = {}
    try:
        # The constraint of the table says of two fields together what find_errors says of each.
        policy_model.full_clean(validate_constraints=False)
    except ValidationError as wrong:
        errors = wrong.update_error_dict({})
    for field, problems in find_errors(policy_model).items():
        errors.setdefault(field, [ValidationError(problem) for problem in problems])
    if errors:
        raise ValidationError(errors)


def _lock_stored(policy_model: PolicyModel) -> PolicyModel | None:
    if policy_model.pk is None:
        return None
    stored = PolicyModel.objects.select_for_update().filter(pk=policy_model.pk).first()
    if stored is None:
        raise PolicyModelChanged(f"The policy model {policy_model.slug} was deleted in the meantime.")
    return stored
