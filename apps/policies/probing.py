"""The health check of a policy model: does its endpoint answer, and does it know the model?"""

from typing import Any

import orjson
from asgiref.sync import async_to_sync
from django.utils import timezone

from apps.gym.outbound import OutboundFailed, OutboundRefused, OutboundReply
from apps.gym.storable import clean_line
from apps.policies.connecting import open_outbound, stored_key
from apps.policies.models import Health, PolicyModel
from apps.policies.secrets import SecretUnreadable

_TIMEOUT = 15.0
_NAMED_MODELS = 8
_MESSAGE_CHARACTERS = 500


def probe_policy_model(*, policy_model: PolicyModel) -> PolicyModel:
    """Ask GET {base_url}/models and store what came of it. Never raises for an endpoint that fails."""
    healthy, message = _probe(policy_model)
    policy_model.health = Health.HEALTHY if healthy else Health.UNHEALTHY
    policy_model.health_message = clean_line(message, _MESSAGE_CHARACTERS)
    policy_model.health_checked_at = timezone.now()
    policy_model.save(update_fields=["health", "health_message", "health_checked_at"])
    return policy_model


def _probe(policy_model: PolicyModel) -> tuple[bool, str]:
    if policy_model.is_scripted:
        return True, "Scripted, no LLM: always ready."
    try:
        key = stored_key(policy_model)
        reply = async_to_sync(_list_models)(policy_model.base_url, key)
    except (OutboundRefused, OutboundFailed, SecretUnreadable) as error:
        return False, str(error)
    return _judge(reply, policy_model)


async def _list_models(base_url: str, key: str) -> OutboundReply:
    outbound = open_outbound()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        return await outbound.request("GET", base_url.rstrip("/") + "/models", headers=headers, timeout=_TIMEOUT)
    finally:
        await outbound.close()


def _judge(reply: OutboundReply, policy_model: PolicyModel) -> tuple[bool, str]:
    if reply.status in (401, 403):
        hint = "no API key is stored" if not policy_model.api_key_encrypted else "the stored API key was refused"
        return False, f"The endpoint answered {reply.status}: {hint}."
    if reply.status == 404:
        return False, "The endpoint has no /models: the base URL should go up to and including /v1."
    if reply.status != 200:
        return False, f"The endpoint answered {reply.status}."
    names = _model_names(reply.body)
    if names is None:
        return False, "The endpoint's list of models cannot be read: is this an OpenAI-compatible base URL?"
    if policy_model.model_name not in names:
        known = ", ".join(names[:_NAMED_MODELS]) + (", …" if len(names) > _NAMED_MODELS else "")
        return False, f"The endpoint has no model {policy_model.model_name!r}; it has: {known or 'none'}."
    return True, f"The endpoint answers and has the model {policy_model.model_name!r}."


def _model_names(body: bytes) -> list[str] | None:
    try:
        given: Any = orjson.loads(body)
        return [str(model["id"]) for model in given["data"]]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
