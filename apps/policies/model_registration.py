"""Make a model server on this machine, or the model that asks none, known as a policy model."""

from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.utils.text import slugify

from apps.policies.models import PolicyModel, Provider, Wire
from apps.policies.policy_model_changes import find_errors, save_policy_model

SCRIPTED = "scripted"


class NotOurs(Exception):
    """A policy model of that slug stands for something else than a server on this machine."""


def register_local_model(
    *,
    slug: str,
    base_url: str,
    version: str | None = None,
    sampling: dict[str, Any] | None = None,
    check_only: bool = False,
) -> PolicyModel:
    """Create the policy model, or point it to this server; the server knows the model by the slug.

    A new one speaks Chat Completions, captures tokens and has that sampling; what people have set on an old one stays,
    but for a version that is given. With `check_only` nothing is written. Raises NotOurs, and ValidationError where
    the address is closed to GymWeb.
    """
    if slug != slugify(slug):
        raise ValidationError({"slug": f"{slug!r} is no slug; for example {slugify(slug) or 'local-model'!r}."})
    model = PolicyModel.objects.filter(slug=slug).first()
    if model is None:
        model = PolicyModel(slug=slug, name=slug, wire=Wire.CHAT, capture_tokens=True, sampling=sampling or {})
    elif model.is_scripted or not _is_loopback(model.base_url):
        raise NotOurs(f"The policy model {slug!r} stands for {model.base_url or 'no LLM'}: choose another slug.")
    model.provider, model.base_url, model.model_name = Provider.VLLM, base_url, slug
    if version is not None:
        model.version = version
    if check_only:
        if errors := find_errors(model):
            raise ValidationError(errors)
        return model
    # The server asks for no key, and one that was stored belonged to another server.
    return save_policy_model(policy_model=model, api_key="", user=None)


def register_scripted_model(*, mistake_rate: float = 0.0) -> PolicyModel:
    """The model that asks no LLM, under its own slug; as it is, where it is registered."""
    model = PolicyModel.objects.filter(slug=SCRIPTED).first()
    if model is not None:
        return model
    scripted = {"name": "Scripted solver", "provider": Provider.SCRIPTED, "mistake_rate": mistake_rate}
    return save_policy_model(policy_model=PolicyModel(slug=SCRIPTED, **scripted), api_key="", user=None)


def _is_loopback(base_url: str) -> bool:
    return (urlsplit(base_url).hostname or "") in {"127.0.0.1", "localhost", "::1"}
