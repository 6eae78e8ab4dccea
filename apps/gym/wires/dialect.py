"""The differences between an endpoint and the standard of its wire."""

from typing import Any

import msgspec
import orjson

from apps.gym.errors import PolicyError
from apps.gym.traces.chat_turns import CallContent, Reasoning

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
        "system",
        "tools",
    }
)
"""Fields of a request that define the model's input and the number of replies.

The trace records what the rollout sent, so nothing else may set them.
"""
_NOT_FOR_TASKS = FIXED | {"background", "store", "stream", "stream_options"}


NO_SAMPLING = FIXED - {"instructions"}


class SamplingRefused(PolicyError):
    """Raised if sampling sets a field that the rollout sets, so that the trace would be wrong."""


def check_sampling(sampling: dict[str, Any]) -> None:
    """Raise SamplingRefused if sampling sets a field that the rollout sets.

    Models, agents and collections with such sampling can no longer be saved. This check is for older rows, and for
    requests of captured agents.
    """
    if refused := sorted(key for key in NO_SAMPLING & sampling.keys() if sampling[key] is not None):
        raise SamplingRefused(f"Sampling cannot set {', '.join(refused)}, which the rollout sets.").permanent()


def read_task_body(sampling: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a task that are merged into the request.

    NeMo Gym rows have them in `metadata.extra_body`, a JSON object in a string.

    The seed of the rollout overrides a seed in them. Raises PolicyError for non-objects and for fields that a task
    cannot set.
    """
    metadata = sampling.get("metadata")
    given = metadata.get("extra_body") if isinstance(metadata, dict) else None
    if not isinstance(given, str):
        return {}
    try:
        extra = orjson.loads(given)
    except orjson.JSONDecodeError as error:
        raise PolicyError(f"metadata.extra_body is not JSON: {error}").permanent() from None
    if not isinstance(extra, dict):
        raise PolicyError("metadata.extra_body is not a JSON object.").permanent()
    if refused := sorted(_NOT_FOR_TASKS & extra.keys()):
        raise PolicyError(f"metadata.extra_body of a task cannot set {', '.join(refused)}.").permanent()
    if sampling.get("seed") is not None:
        extra.pop("seed", None)
    return extra


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How requests to this endpoint differ from the standard, and how its replies are read.

    `reasoning` is the place of the model's reasoning in messages, or says that it is not sent back. `call_content` is
    the content of a chat message that has calls and no text. `asks_tokens`: request token IDs and logprobs of every
    turn, with vLLM's parameters. `extra_body` is merged into each request, except FIXED fields. `renamed` renames keys
    of the request, for example `{"max_completion_tokens": "max_tokens"}`. `max_tokens` is sent over the Messages API,
    which requires a limit, if the sampling sets none.
    """

    takes_seed: bool = True
    reasoning: Reasoning = "field"
    call_content: CallContent = "empty"
    asks_tokens: bool = False
    extra_body: dict[str, Any] = {}
    renamed: dict[str, str] = {}
    max_tokens: int = 8192

    def finish(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request with `extra_body` merged in.

        Fields of the request take precedence; objects in both are merged.

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
    """Merge the task's `metadata.extra_body` into a Responses request.

    Chat and Messages requests have no `metadata` any more: their sampling functions merged it.
    """
    extra = read_task_body(body)
    if not extra:
        return body
    metadata = {key: value for key, value in body["metadata"].items() if key != "extra_body"}
    rest = {key: value for key, value in body.items() if key != "metadata"}
    return {**rest, **({"metadata": metadata} if metadata else {}), **extra}


PLAIN = Dialect()
