"""From a row to something that answers: the policy client that a policy model describes."""

from typing import Literal

from django.conf import settings

from apps.gym.observing import Observer, ignore
from apps.gym.outbound import Outbound, OutboundPolicy
from apps.gym.policy.dialect import Dialect
from apps.gym.policy.http import HttpPolicy, is_strict
from apps.gym.policy.protocol import Policy
from apps.gym.policy.scripted import ScriptedPolicy
from apps.policies.models import PolicyModel, Wire
from apps.policies.secrets import decrypt_secret


def open_outbound() -> Outbound:
    """A pool of connections under the operator's allow list; whoever opens it closes it."""
    return Outbound(OutboundPolicy(settings.OUTBOUND_ALLOW))


def stored_key(policy_model: PolicyModel) -> str:
    """The API key in clear, or nothing. Raises SecretUnreadable (a PolicyError)."""
    return decrypt_secret(policy_model.api_key_encrypted) if policy_model.api_key_encrypted else ""


def connect_policy(policy_model: PolicyModel, outbound: Outbound, observe: Observer = ignore) -> Policy:
    """Raises SecretUnreadable (a PolicyError) where the stored key cannot be read."""
    if policy_model.is_scripted:
        return ScriptedPolicy(mistake_rate=policy_model.mistake_rate)
    wire: Literal["responses", "chat"] = "responses" if policy_model.wire == Wire.RESPONSES else "chat"
    return HttpPolicy.plain(
        outbound,
        base_urls=[policy_model.base_url],
        model_name=policy_model.model_name,
        wire=wire,
        api_key=stored_key(policy_model),
        call_timeout=policy_model.call_timeout,
        connect_timeout=policy_model.connect_timeout,
        observe=observe,
        max_tries=policy_model.max_tries,
        dialect=Dialect(
            takes_seed=not is_strict(policy_model.base_url),
            asks_tokens=policy_model.capture_tokens and wire == "chat",
        ),
    )
