"""Create the client of a policy model from its row."""

from typing import Any, cast

from django.conf import settings

from apps.gym.calls.flow_control import Gate
from apps.gym.calls.memory_budget import MIB, MemoryBudget
from apps.gym.calls.observers import Observer, ignore
from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.errors import PolicyError
from apps.gym.traces.chat_turns import CallContent, Reasoning
from apps.gym.wires.dialect import PLAIN, Dialect
from apps.gym.wires.openai_http import PATHS, REQUESTS, HttpPolicy, rejects_unknown_parameters
from apps.gym.wires.openai_http import Wire as Wires
from apps.gym.wires.protocol import Ask, Policy, Weights
from apps.gym.wires.scripted import ScriptedPolicy
from apps.gym.wires.sending import PlainSender, Sender
from apps.policies.models import KEY_PLACEHOLDER, PolicyModel, Provider
from apps.policies.request_options import find_request_problems
from apps.policies.secrets import decrypt_secret

ANTHROPIC_VERSION = "2023-06-01"
"""Version of the Messages API; an extra header overrides it."""


class KeyMissing(PolicyError):
    """Raised if the provider requires an API key and none is stored."""


class RequestRefused(PolicyError):
    """Raised for headers or body fields that are not allowed, in rows older than the rule."""


def open_outbound() -> Outbound:
    """Return a connection pool with the operator's allow-list and its own memory budget.

    The caller must close it.
    """
    return Outbound(OutboundPolicy(settings.OUTBOUND_ALLOW), memory=MemoryBudget(settings.WORKER_MEMORY_MB * MIB))


def stored_key(policy_model: PolicyModel) -> str:
    """Return the decrypted API key, or an empty string. Raise SecretUnreadable (a PolicyError)."""
    return decrypt_secret(policy_model.api_key_encrypted) if policy_model.api_key_encrypted else ""


def connect_policy(
    policy_model: PolicyModel,
    outbound: Outbound,
    observe: Observer = ignore,
    weights: Weights | None = None,
    gate: Gate | None = None,
) -> Policy:
    """Return the client of a policy model.

    Replies are recorded with the version in `weights`, or the model's current version. With a gate, throttled calls
    wait as long as the endpoint requests. Raise SecretUnreadable or KeyMissing without a usable key, and RequestRefused
    for requests that are not allowed; all are PolicyErrors.
    """
    weights = weights or Weights(policy_model.version)
    if policy_model.is_scripted:
        return ScriptedPolicy(mistake_rate=policy_model.mistake_rate, weights=weights)
    _refuse_problems(policy_model)
    key = stored_key(policy_model)
    wire = cast(Wires, policy_model.wire)
    return HttpPolicy(
        _open_sender(policy_model, outbound, key, wire),
        model_name=policy_model.model_name,
        wire=wire,
        dialect=read_dialect(policy_model, wire),
        secrets=[key],
        weights=weights,
        max_tries=policy_model.max_tries,
        observe=observe,
        gate=gate,
    )


def _refuse_problems(policy_model: PolicyModel) -> None:
    for field, problems in find_request_problems(policy_model).items():
        name, why = field.replace("_", " "), " ".join(problems)
        raise RequestRefused(f"Invalid {name}: {why} Change and save the model.").permanent()


def read_dialect(policy_model: PolicyModel, wire: Wires) -> Dialect:
    """Return how the endpoint deviates from the API."""
    strict = policy_model.provider in (Provider.OPENAI, Provider.AZURE) or rejects_unknown_parameters(
        policy_model.base_url
    )
    reasoning: Reasoning = cast(Reasoning, policy_model.reasoning)
    return Dialect(
        takes_seed=not strict,
        reasoning=reasoning,
        call_content=cast(CallContent, policy_model.call_content),
        asks_tokens=policy_model.capture_tokens and wire == "chat",
        extra_body=policy_model.extra_body,
        renamed=policy_model.renamed_fields,
        max_tokens=_find_max_tokens(policy_model),
    )


def _find_max_tokens(policy_model: PolicyModel) -> int:
    """Return the limit of a reply without a limit of its own: what the model can write, as far as it is known."""
    known = policy_model.capabilities
    # The prompt needs a part of the context, too.
    limits = (known.get("max_output_tokens"), (known.get("max_model_len") or 0) // 2)
    return min(PLAIN.max_tokens, *(one for one in limits if type(one) is int and one > 0), PLAIN.max_tokens)


def open_scorer(policy_model: PolicyModel, outbound: Outbound) -> Sender:
    """Return a sender to /completions, where vLLM scores ids. Raise PolicyError like `connect_policy`."""
    if policy_model.provider not in (Provider.VLLM, Provider.COMPATIBLE):
        raise PolicyError(f"The provider {policy_model.get_provider_display()} cannot score ids.").permanent()
    _refuse_problems(policy_model)
    return _open_plain_sender(policy_model, outbound, stored_key(policy_model), "/completions")


def _open_sender(policy_model: PolicyModel, outbound: Outbound, key: str, wire: Wires) -> Sender:
    if policy_model.provider in (Provider.OPENAI, Provider.AZURE):
        return _open_package_sender(policy_model, outbound, key, wire)
    return _open_plain_sender(policy_model, outbound, key, PATHS[wire])


def _open_plain_sender(policy_model: PolicyModel, outbound: Outbound, key: str, path: str) -> Sender:
    headers = _read_headers(policy_model, key)
    carried = headers != policy_model.extra_headers
    # If a custom header contains the key, it is not sent again.
    keyed = _key_headers(policy_model, key if not carried else "")
    return PlainSender(
        outbound,
        base_urls=policy_model.base_urls,
        path=path,
        headers={**keyed, **headers},
        call_timeout=policy_model.call_timeout,
        connect_timeout=policy_model.connect_timeout,
    )


def _key_headers(policy_model: PolicyModel, key: str) -> dict[str, str]:
    """Return the headers of the provider, with the key if there is one."""
    if policy_model.provider != Provider.ANTHROPIC:
        return {"Authorization": f"Bearer {key}"} if key else {}
    named = {name.lower() for name in policy_model.extra_headers}
    version = {} if "anthropic-version" in named else {"anthropic-version": ANTHROPIC_VERSION}
    return version | ({"x-api-key": key} if key else {})


def _read_headers(policy_model: PolicyModel, key: str) -> dict[str, str]:
    """Return the headers. Raise KeyMissing if a header needs a missing key."""
    headers: dict[str, str] = policy_model.extra_headers
    if not key and any(KEY_PLACEHOLDER in value for value in headers.values()):
        raise KeyMissing("No API key is stored, but a header needs it.").permanent()
    return {name: value.replace(KEY_PLACEHOLDER, key) for name, value in headers.items()}


def _open_package_sender(policy_model: PolicyModel, outbound: Outbound, key: str, wire: Wires) -> Sender:
    if not key:
        raise KeyMissing(f"No API key is stored: {policy_model.get_provider_display()} needs one.").permanent()
    # Imported lazily: the package takes a third of a second, and most models do not need it.
    from apps.gym.wires.openai_package import PackageSender, open_azure, open_openai

    call, connect, headers = policy_model.call_timeout, policy_model.connect_timeout, _read_headers(policy_model, key)
    if policy_model.provider == Provider.OPENAI:
        client = open_openai(
            outbound,
            base_url=policy_model.base_url,
            api_key=key,
            call_timeout=call,
            connect_timeout=connect,
            headers=headers,
        )
    else:
        client = open_azure(
            outbound,
            endpoint=policy_model.base_url,
            api_version=policy_model.api_version,
            api_key=key,
            is_token=policy_model.key_is_token,
            call_timeout=call,
            connect_timeout=connect,
            headers=headers,
        )
    return PackageSender(client, path=PATHS[wire])


def rebuild_request(*, policy_model: PolicyModel, ask: Ask) -> tuple[str, dict[str, Any]]:
    """Return path and body of a request with the model's current settings.

    A scripted model uses the Responses format. Raise PolicyError for an invalid request.
    """
    wire: Wires = "responses" if policy_model.is_scripted else cast(Wires, policy_model.wire)
    name = policy_model.model_name or policy_model.slug
    return PATHS[wire], REQUESTS[wire](ask, model_name=name, dialect=read_dialect(policy_model, wire))
