"""Save a policy model with its API key: write-only, and bound to the address it was entered for."""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.auditing import record
from apps.gym.outbound import OutboundPolicy, OutboundRefused
from apps.policies.models import Health, PolicyModel
from apps.policies.secrets import encrypt_secret, hint_of


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


def _check(policy_model: PolicyModel) -> None:
    policy_model.base_url = policy_model.base_url.strip()
    policy_model.full_clean()
    if not isinstance(policy_model.sampling, dict):
        raise ValidationError({"sampling": 'Give a JSON object, such as {"temperature": 1.0}.'})
    if policy_model.is_scripted and not policy_model.base_url:
        return
    try:
        OutboundPolicy(settings.OUTBOUND_ALLOW).check_url(policy_model.base_url)
    except OutboundRefused as error:
        raise ValidationError({"base_url": str(error)}) from None


def _lock_stored(policy_model: PolicyModel) -> PolicyModel | None:
    if policy_model.pk is None:
        return None
    stored = PolicyModel.objects.select_for_update().filter(pk=policy_model.pk).first()
    if stored is None:
        raise PolicyModelChanged(f"The policy model {policy_model.slug} was deleted in the meantime.")
    return stored
