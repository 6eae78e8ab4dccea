"""Save a policy model with its API key, which is write-only and bound to its URL."""

from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from apps.gym.redaction.shortening import cut_clean
from apps.gym.slugs import find_slug_problem
from apps.gym.wires.sampling_values import find_default_problems
from apps.policies.installation_redactor import forget_redactor, show_extras
from apps.policies.models import DEFAULT_BASE_URLS, KEY_PLACEHOLDER, PRICE_FIELDS, Health, PolicyModel, Provider, Wire
from apps.policies.redacted_fields import redact_input
from apps.policies.request_options import find_request_problems
from apps.policies.row_checks import check_row, find_url_problem, lock_stored, save_row
from apps.policies.secrets import encrypt_secret, hint_of

MAX_PRICE = 1_000_000
"""Maximum USD per million tokens, so that sums of costs stay finite."""


class KeyRequired(ValidationError):
    """Raised if URL or provider changed while a key is stored.

    The key must be entered again, so that it is never sent to another server than intended.
    """

    def __init__(self) -> None:
        super().__init__({"api_key": "Enter the API key again: the stored one belongs to the old address or provider."})


def save_policy_model(*, policy_model: PolicyModel, api_key: str | None, user: object) -> PolicyModel:
    """Create or change a policy model. With `api_key` None, the stored key is kept; an empty one removes it.

    Raise ValidationError by field, and its subclass KeyRequired for a new base URL with a stored key.
    """
    key = None if api_key is None else api_key.strip()
    _check(policy_model, key)
    # Model fields cannot redact themselves, because the redactor reads this table for keys.
    policy_model.name = redact_input(policy_model.name)[:100]
    with transaction.atomic():
        stored = lock_stored(policy_model)
        moved = stored is not None and _goes_elsewhere(stored, policy_model)
        if key is None and stored is not None:
            if moved and stored.api_key_encrypted:
                raise KeyRequired
            policy_model.api_key_encrypted = stored.api_key_encrypted
            policy_model.api_key_hint = stored.api_key_hint
        else:
            policy_model.api_key_encrypted = encrypt_secret(key) if key else ""
            policy_model.api_key_hint = hint_of(key or "")
        checked = (policy_model.model_name, policy_model.logprob_mode)
        if stored is None or moved or key is not None or (stored.model_name, stored.logprob_mode) != checked:
            policy_model.health, policy_model.health_message = Health.UNKNOWN, ""
            policy_model.health_checks, policy_model.capabilities = [], {}
            policy_model.health_checked_at = None
        save_row(
            policy_model,
            stored,
            user=user,
            noun="policy_model",
            target=policy_model.slug,
            base_url=policy_model.base_url,
            model_name=policy_model.model_name,
            version=policy_model.version,
            key_changed=key is not None,
        )
        if key is not None:
            # From now on, redact the new key: here immediately, in other threads after the commit.
            transaction.on_commit(forget_redactor)
    forget_redactor()
    return policy_model


def find_errors(policy_model: PolicyModel) -> dict[str, list[str]]:
    """Return the errors by field that the field validators do not find."""
    found = find_request_problems(policy_model)
    if policy_model._state.adding and (taken := find_slug_problem(policy_model.slug)):
        found["slug"] = [taken]
    of_saving = {
        "base_url": _problems_of_address(policy_model),
        "more_base_urls": _problems_of_more_addresses(policy_model),
        "wire": _problems_of_wire(policy_model),
        "api_version": _problems_of_version(policy_model),
        # A header with an invalid name gets only one error.
        "extra_headers": [] if "extra_headers" in found else _credentials_in(policy_model.extra_headers),
        "extra_body": _credentials_in(policy_model.extra_body),
        "model_name": [] if policy_model.is_scripted or policy_model.model_name else ["Give the model name."],
        "capture_tokens": _problems_of_capturing(policy_model),
        "sampling": find_default_problems(policy_model.sampling),
        **{name: _problems_of_price(getattr(policy_model, name) or 0.0) for name in PRICE_FIELDS},
    }
    for field, problems in of_saving.items():
        if problems:
            found.setdefault(field, []).extend(problems)
    return found


def _credentials_in(extras: Any) -> list[str]:
    if not isinstance(extras, dict):
        return []
    return [
        f"{cut_clean(str(name), 100)} looks like a credential. Enter it as the API key, which is stored "
        f"encrypted, and write {KEY_PLACEHOLDER} into the header."
        for name, value in extras.items()
        if show_extras({name: value}) != {name: value}
    ]


def _problems_of_price(price: float) -> list[str]:
    return [] if price <= MAX_PRICE else [f"Give at most {MAX_PRICE:,} USD per million tokens."]


def _problems_of_address(policy_model: PolicyModel) -> list[str]:
    base_url = policy_model.base_url.strip()
    if not base_url:
        return [] if policy_model.is_scripted else ["Give a base URL, or choose the scripted provider."]
    return list(filter(None, [find_url_problem(base_url)]))


def _problems_of_more_addresses(policy_model: PolicyModel) -> list[str]:
    more = policy_model.more_base_urls
    if not isinstance(more, list) or not all(isinstance(url, str) and url.strip() for url in more):
        return []
    if more and policy_model.provider not in (Provider.VLLM, Provider.COMPATIBLE):
        return ["Only vLLM and other compatible servers have several base URLs."]
    return [problem for url in more if (problem := find_url_problem(url))]


def _problems_of_version(policy_model: PolicyModel) -> list[str]:
    if policy_model.provider == Provider.AZURE and not policy_model.api_version.strip():
        return ["Azure OpenAI needs an API version, for example 2025-04-01-preview."]
    return []


def _problems_of_wire(policy_model: PolicyModel) -> list[str]:
    if policy_model.wire == Wire.MESSAGES and policy_model.provider not in (Provider.ANTHROPIC, Provider.SCRIPTED):
        return ["Only the provider Anthropic uses the Messages API."]
    return []


def _goes_elsewhere(stored: PolicyModel, wanted: PolicyModel) -> bool:
    """Return True if the key would be sent to another URL or in another way."""
    if stored.provider != wanted.provider and not wanted.is_scripted:
        return True
    known = {url.rstrip("/") for url in stored.base_urls}
    return not {url.rstrip("/") for url in wanted.base_urls} <= known


def _problems_of_capturing(policy_model: PolicyModel) -> list[str]:
    if not policy_model.capture_tokens or policy_model.is_scripted:
        return []
    if policy_model.provider in (Provider.OPENAI, Provider.AZURE, Provider.ANTHROPIC):
        return [f"{policy_model.get_provider_display()} does not return token IDs. Use vLLM or a compatible server."]
    if policy_model.wire != Wire.CHAT:
        return ["Token IDs need the Chat Completions API."]
    return []


def _check(policy_model: PolicyModel, key: str | None) -> None:
    policy_model.base_url = policy_model.base_url.strip() or DEFAULT_BASE_URLS.get(policy_model.provider, "")
    policy_model.version = policy_model.version.strip()
    if policy_model.provider == Provider.ANTHROPIC:
        policy_model.wire = Wire.MESSAGES
    if isinstance(policy_model.more_base_urls, list):
        policy_model.more_base_urls = [
            url.strip() if isinstance(url, str) else url for url in policy_model.more_base_urls
        ]
    found = find_errors(policy_model)
    if key and not (key.isascii() and key.isprintable()):
        found["api_key"] = ["A key must be one line of ASCII characters."]
    # `find_errors` reports fields of this constraint separately.
    check_row(policy_model, found, validate_constraints=False)
