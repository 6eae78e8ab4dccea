"""The request of a call that was made, rebuilt from what the trace stored of it."""

from typing import Any

from apps.gym.wires.chat import chat_request
from apps.gym.wires.openai_http import PATHS, Wire
from apps.gym.wires.protocol import Ask
from apps.gym.wires.responses_wire import responses_request
from apps.policies.models import PolicyModel
from apps.policies.models import Wire as Wires
from apps.policies.policy_clients import read_dialect


def rebuild_request(*, policy_model: PolicyModel, ask: Ask) -> tuple[str, dict[str, Any]]:
    """Path and body, by the model's settings of now; for a scripted model, which has no wire, in Responses form.

    Raises PolicyError for an ask that cannot be put on the wire.
    """
    wire: Wire = "responses" if policy_model.is_scripted or policy_model.wire == Wires.RESPONSES else "chat"
    write = responses_request if wire == "responses" else chat_request
    name = policy_model.model_name or policy_model.slug
    return PATHS[wire], write(ask, model_name=name, dialect=read_dialect(policy_model, wire))
