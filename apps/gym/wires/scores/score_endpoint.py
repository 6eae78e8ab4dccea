"""Endpoints of a model server that return numbers instead of text: vLLM's /classify, /score and /pooling."""

import math
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import msgspec

from apps.gym.errors import PolicyError
from apps.gym.traces.chat_turns import HistoryForm, SentMessages
from apps.gym.traces.items import dump_json, message, text_of
from apps.gym.wires.chat_reply import ReplyMalformed
from apps.gym.wires.dialect import Dialect
from apps.gym.wires.protocol import Ask, Policy, Reply, Weights, read_usage

MAX_SCORES = 1_000
"""Maximum numbers of a reply. A longer one is the vector of an embedding model."""


class ScoreEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint of a model server that returns scores.

    `text` sends the last item as plain text instead of chat messages. `raw` requests scores before the activation
    (softmax or sigmoid).
    """

    path: Literal["classify", "score", "pooling"]
    text: bool = False
    raw: bool = False

    def make_body(self, ask: Ask, *, model_name: str, dialect: Dialect) -> dict[str, Any]:
        """Return the body of a request. /score compares the first item, the task, with the last."""
        body: dict[str, Any] = {"model": model_name, "use_activation": not self.raw}
        if self.path == "score":
            body |= {"text_1": text_of(ask.items[0]), "text_2": text_of(ask.items[-1])}
        elif self.text:
            body["input"] = text_of(ask.items[-1])
        else:
            form = HistoryForm(dialect.call_content, valid_arguments=True)
            body["messages"] = SentMessages().extend(
                ask.items, instructions=None, reasoning=dialect.reasoning, form=form
            )
        return dialect.finish(body)

    def read_reply(self, body: bytes) -> Reply:
        """Return a reply whose only item has the scores as JSON. Raises ReplyMalformed, or PolicyError."""
        try:
            read = _decoder.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ReplyMalformed(f"The endpoint's reply has no scores: {error}.") from None
        scores = self._read_scores(read.data[0])
        if len(scores) > MAX_SCORES:
            told = f"The endpoint returned {len(scores):,} numbers, like an embedding model"
            raise PolicyError(f"{told}. Use a reward model or a classifier.").permanent()
        if not scores or not all(map(math.isfinite, scores)):
            raise ReplyMalformed("The endpoint's scores are missing or not finite.")
        label = read.data[0].label
        said = {"scores": scores} | ({"label": label} if label else {})
        usage = read_usage(input_tokens=read.usage.get("prompt_tokens"), output_tokens=0)
        items = [message("assistant", dump_json(said))]
        return Reply(items=items, finish_reason="stop", usage=usage, model=read.model, response_id=read.id)

    def _read_scores(self, found: "_Result") -> list[float]:
        given = {"classify": found.probs, "score": found.score, "pooling": found.data}[self.path]
        if given is None:
            raise ReplyMalformed(f"The endpoint's reply has no result of /{self.path}.")
        if isinstance(given, float):
            return [given]
        # Some reward heads score each token or step. The last one is the score of the conversation.
        last = given[-1] if given and isinstance(given[-1], list) else given
        return [one for one in last if isinstance(one, float)]


class _Result(msgspec.Struct):
    probs: list[float] | None = None
    score: float | None = None
    data: list[float | list[float]] | None = None
    label: str | None = None


class _Scores(msgspec.Struct):
    data: Annotated[list[_Result], msgspec.Meta(min_length=1, max_length=1)]
    id: str = ""
    model: str = ""
    usage: dict[str, Any] = {}


_decoder = msgspec.json.Decoder(_Scores)


@runtime_checkable
class ScoringPolicy(Policy, Protocol):
    """A policy whose server may have endpoints for scores. `make_body` returns the body of a request."""

    weights: Weights

    def make_body(self, ask: Ask) -> dict[str, Any]: ...

    def at(self, endpoint: ScoreEndpoint) -> "ScoringPolicy":
        """Return a client of such an endpoint, with the same limits. Raises PolicyError if there is none."""
        ...
