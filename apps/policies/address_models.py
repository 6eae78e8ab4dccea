"""Policy models that a program names by their address alone, as a trainer does with the server of its own weights."""

import hashlib
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from apps.accounts.models import User
from apps.gym.redaction.shortening import cut
from apps.gym.traces.items import dump_json
from apps.policies.models import PolicyModel
from apps.policies.policy_model_changes import save_policy_model


def find_addressed(
    *,
    base_url: str,
    model_name: str,
    provider: str,
    wire: str,
    capture_tokens: bool,
    version: str | None = None,
    user: User | None = None,
) -> PolicyModel:
    """The policy model of this address, registered at its first use. It has no key: an endpoint that wants one has to
    be registered by a person who enters it.

    `version` names the weights that answer from now on. Raises ValidationError, also for an address that the outbound
    policy refuses.
    """
    asked: dict[str, Any] = {
        "base_url": base_url.strip().rstrip("/"),
        "model_name": model_name,
        "provider": provider,
        "wire": wire,
        "capture_tokens": capture_tokens,
    }
    slug = f"online-{hashlib.sha256(dump_json(asked).encode()).hexdigest()[:16]}"
    found = PolicyModel.objects.filter(slug=slug).first()
    if found is None:
        fresh = PolicyModel(slug=slug, name=cut(f"Online: {model_name}", 100), version=version or "", **asked)
        try:
            with transaction.atomic():
                return save_policy_model(policy_model=fresh, api_key=None, user=user)
        except (IntegrityError, ValidationError):
            # Two requests that name a new address at once: the other one has registered it.
            found = PolicyModel.objects.filter(slug=slug).first()
            if found is None:
                raise
    if version is not None and found.version != version:
        found.version = version
        found = save_policy_model(policy_model=found, api_key=None, user=user)
    return found
