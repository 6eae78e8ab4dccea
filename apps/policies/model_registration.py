"""Register policy models: a local model server, a server by URL, or the scripted model."""

import hashlib
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.text import slugify

from apps.accounts.models import User
from apps.gym.redaction.shortening import cut
from apps.gym.traces.items import dump_json
from apps.policies.models import PolicyModel, Provider, Wire
from apps.policies.policy_model_changes import find_errors, save_policy_model

SCRIPTED = "scripted"


class NotALocalModel(Exception):
    """Raised if the slug belongs to a policy model that is not a local server."""


def register_local_model(
    *,
    slug: str,
    base_url: str,
    version: str | None = None,
    sampling: dict[str, Any] | None = None,
    check_only: bool = False,
) -> PolicyModel:
    """Register a local server as a policy model, or point the existing one to it. The slug is its model name.

    A new model uses Chat Completions, captures tokens and has this sampling. An existing one keeps its settings except
    `version`. With `check_only`, nothing is stored. Raise NotALocalModel, and ValidationError if calls to the address
    are not allowed.
    """
    if slug != slugify(slug):
        raise ValidationError({"slug": f"{slug!r} is not a slug. Example: {slugify(slug) or 'local-model'!r}."})
    model = PolicyModel.objects.filter(slug=slug).first()
    if model is None:
        model = PolicyModel(slug=slug, name=slug, wire=Wire.CHAT, capture_tokens=True, sampling=sampling or {})
    elif model.is_scripted or urlsplit(model.base_url).hostname not in {"127.0.0.1", "localhost", "::1"}:
        raise NotALocalModel(
            f"The policy model {slug!r} already uses {model.base_url or 'no LLM'}. Choose another slug."
        )
    model.provider, model.base_url, model.model_name = Provider.VLLM, base_url, slug
    if version is not None:
        model.version = version
    if check_only:
        if errors := find_errors(model):
            raise ValidationError(errors)
        return model
    # Drop a stored key: it belonged to another server.
    return save_policy_model(policy_model=model, api_key="", user=None)


def register_scripted_model(*, mistake_rate: float = 0.0) -> PolicyModel:
    """Return the scripted model, registered under its own slug if needed."""
    model = PolicyModel.objects.filter(slug=SCRIPTED).first()
    if model is not None:
        return model
    scripted = {"name": "Scripted solver", "provider": Provider.SCRIPTED, "mistake_rate": mistake_rate}
    return save_policy_model(policy_model=PolicyModel(slug=SCRIPTED, **scripted), api_key="", user=None)


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
    """Return the policy model with this URL, registering it on first use.

    It has no key: endpoints that require one must be registered by a user. `version` names the current weights. Raise
    ValidationError, also if calls to the address are not allowed.
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
            # A concurrent request has registered the same URL.
            found = PolicyModel.objects.filter(slug=slug).first()
            if found is None:
                raise
    if version is not None and found.version != version:
        found.version = version
        found = save_policy_model(policy_model=found, api_key=None, user=user)
    return found
