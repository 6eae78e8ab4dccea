"""How an endpoint's way of speaking a wire differs from the wire itself."""

from typing import Any

import msgspec
import orjson

from apps.gym.errors import PolicyError
from apps.gym.traces.chat_turns import Reasoning

FIXED = frozenset(
    {
        "best_of",
        "chat_template",
        "conversation",
        "function_call",
        "functions",
        "input",
        "instructions",
        "messages",
        "model",
        "n",
        "previous_response_id",
        "prompt",
        "prompt_embeds",
        "tools",
    }
)
"""Fields of a request that say what the model is shown and how often it answers. The trace tells of these what the
rollout itself sent, so nothing else may set them."""
_NOT_FOR_TASKS = FIXED | {"background", "store", "stream", "stream_options"}


_NO_SAMPLING = FIXED - {"instructions"}


class SamplingRefused(PolicyError):
    """Sampling would change what the trace tells of a request."""


def check_sampling(sampling: dict[str, Any]) -> None:
    """Raises SamplingRefused where sampling sets what the rollout itself sends.

    Rows are refused when they are saved; this holds for those that were saved before.
    """
    if refused := sorted(key for key in _NO_SAMPLING & sampling.keys() if sampling[key] is not None):
        raise SamplingRefused(f"Sampling may not set {', '.join(refused)}: the rollout itself sends that.").lasting()


def read_task_body(sampling: dict[str, Any]) -> dict[str, Any]:
    """What NeMo Gym's task rows want merged into the request: `metadata.extra_body`, a JSON object in a string.

    A seed in it gives way to the rollout's own. Raises PolicyError for what is no object, and for fields that a task
    may not set.
    """
    metadata = sampling.get("metadata")
    given = metadata.get("extra_body") if isinstance(metadata, dict) else None
    if not isinstance(given, str):
        return {}
    try:
        extra = orjson.loads(given)
    except orjson.JSONDecodeError as error:
        raise PolicyError(f"metadata.extra_body is not JSON: {error}").lasting() from None
    if not isinstance(extra, dict):
        raise PolicyError("metadata.extra_body is not a JSON object.").lasting()
    if refused := sorted(_NOT_FOR_TASKS & extra.keys()):
        raise PolicyError(f"metadata.extra_body of a task may not set {', '.join(refused)}.").lasting()
    if sampling.get("seed") is not None:
        extra.pop("seed", None)
    return extra


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed in a request before it is sent, and what is expected of a reply.

    `reasoning` says where the model's reasoning stands, or that it is not sent back. `asks_tokens`: token ids and
    logprobs of every turn, in vLLM's words. `extra_body` is merged into each request but for FIXED fields, `renamed`
    gives keys of it other names, such as `{"max_completion_tokens": "max_tokens"}`.
    """

    takes_seed: bool = True
    reasoning: Reasoning = "field"
    asks_tokens: bool = False
    extra_body: dict[str, Any] = {}
    renamed: dict[str, str] = {}

    def finish(self, body: dict[str, Any]) -> dict[str, Any]:
        """What the request says itself wins over `extra_body`; objects in both are merged.

        Raises PolicyError for a task's `metadata.extra_body` that cannot be merged.
        """
        body = _with_task_body(body)
        for key, value in self.extra_body.items():
            own = body.get(key)
            if isinstance(own, dict) and isinstance(value, dict):
                body[key] = {**value, **own}
            elif key not in body and key not in FIXED:
                body[key] = value
        if not self.renamed:
            return body
        return {self.renamed.get(key, key): value for key, value in body.items()}


def _with_task_body(body: dict[str, Any]) -> dict[str, Any]:
    """A request that still has its metadata, as over Responses, with what a task wants merged in its place."""
    extra = read_task_body(body)
    if not extra:
        return body
    metadata = {key: value for key, value in body["metadata"].items() if key != "extra_body"}
    rest = {key: value for key, value in body.items() if key != "metadata"}
    return {**rest, **({"metadata": metadata} if metadata else {}), **extra}


PLAIN = Dialect()
