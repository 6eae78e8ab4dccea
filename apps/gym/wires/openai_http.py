"""A policy model behind an HTTP endpoint: OpenAI-compatible over two wires, or the Anthropic Messages API."""

import asyncio
import copy
import functools
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec
from yarl import URL

from apps.gym.calls.flow_control import EndpointPaused, Gate
from apps.gym.calls.http_connection import reply_listener
from apps.gym.calls.observers import Observer, Outcome, ignore
from apps.gym.calls.outbound import (
    OutboundFailed,
    OutboundRedirectRefused,
    OutboundReply,
    OutboundTimedOut,
    OutboundTooLarge,
)
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.calls.refusals import explain_refusal, is_quota_exhausted, is_throttled, read_retry_after
from apps.gym.calls.retries import Pauses, TryAgain
from apps.gym.errors import GymError, PolicyError, TimedOut
from apps.gym.json_constants import null_constants
from apps.gym.redaction.shortening import cut, cut_body
from apps.gym.sent_sampling import as_sent
from apps.gym.traces.chat_turns import SentMessages
from apps.gym.traces.known_ids import KnownIds
from apps.gym.wires.chat import chat_request
from apps.gym.wires.chat_deltas import DeltaReader
from apps.gym.wires.chat_reply import ReplyMalformed, read_chat_reply
from apps.gym.wires.chat_stream import EVENT_STREAM, ChatStreamReader, join_chat_stream
from apps.gym.wires.dialect import PLAIN, Dialect
from apps.gym.wires.grammars import has_grammar
from apps.gym.wires.hidden_secrets import SHORTEST_SECRET, hide_secrets
from apps.gym.wires.messages_reply import read_messages_reply
from apps.gym.wires.messages_request import messages_request
from apps.gym.wires.messages_stream import join_messages_stream
from apps.gym.wires.protocol import Ask, Reply, Weights, reseed
from apps.gym.wires.responses_wire import ReplyFailed, join_responses_stream, read_responses_reply, responses_request
from apps.gym.wires.scores.score_endpoint import ScoreEndpoint
from apps.gym.wires.sending import PlainSender, Sender

_MESSAGE_CHARACTERS = 500
_MESSAGE_BEGIN = 80  # characters of an unreadable reply
_LARGE_REPLY = 512 * 1024  # bytes from which replies are decoded in a thread
# One thread, so that only one large reply at a time uses the memory for decoding.
_LARGE_REPLIES = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-replies")

Wire = Literal["responses", "chat", "messages"]
PATHS: dict[Wire, str] = {"responses": "/responses", "chat": "/chat/completions", "messages": "/messages"}
REQUESTS: dict[Wire, Callable[..., dict[str, Any]]] = {
    "responses": responses_request,
    "chat": chat_request,
    "messages": messages_request,
}
_JOINS: dict[Wire, Callable[[bytes], bytes]] = {
    "chat": join_chat_stream,
    "responses": join_responses_stream,
    "messages": join_messages_stream,
}

# How endpoints report that the conversation exceeds the context: OpenAI by code, vLLM, SGLang and Anthropic in words,
# llama.cpp by type.
_CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_CONTEXT_WORDS = (
    "maximum context length",
    "longer than the maximum model length",
    "longer than the model's context length",
    "exceeds the context window",
    "exceeds the available context size",
    "prompt is too long",
    "exceed context limit",
)
# The limit is too long for the model, or for the context together with the input, which would fit.
_LIMIT_TOO_LONG = (
    re.compile(r"(?P<input>\d+) \+ \d+ > (?P<most>\d+)"),  # Anthropic
    re.compile(r"max_tokens: \d+ > (?P<most>\d+)(?P<input>)"),  # Anthropic
    re.compile(r"\d+ > (?P<most>\d+) - (?P<input>\d+)"),  # vLLM
    re.compile(r"maximum context length is (?P<most>\d+) tokens.*?(?P<input>\d+) input tokens", re.DOTALL),  # vLLM
)
_STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
_STRICT_HOSTS = ("openai.com", "openai.azure.com")


class PolicyReplyTooLarge(PolicyError):
    """Raised if the reply is larger than `sending.MAX_REPLY` or the memory budget. Retrying does not help."""


class _LimitTooLong(Exception):
    """Raised if the limit of the reply is too long for the model, or does not fit into the context with the input.

    `left` is the longest limit that fits. `refusal` is the error of the model; None if the context is full.
    """

    def __init__(self, left: int, refusal: GymError | None) -> None:
        super().__init__(left)
        self.left, self.refusal = left, refusal


class HttpPolicy:
    """One endpoint over one wire.

    Retries 408, 425, 5xx, transport errors, timeouts and malformed replies, within limits.

    With a `gate`, throttled calls wait and do not count as tries; without one they are retried like others. Error
    messages never contain `secrets`. Every reply has the version of `weights` at the time of its request. If the
    dialect asks for tokens, replies have token IDs and logprobs, over Chat Completions only: the Responses API has no
    field for the ids.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        model_name: str,
        wire: Wire,
        dialect: Dialect = PLAIN,
        secrets: Iterable[str] = (),
        weights: Weights | None = None,
        max_tries: int = 4,
        pauses: Pauses | None = None,
        observe: Observer = ignore,
        gate: Gate | None = None,
    ) -> None:
        self.sender = sender
        self._model_name = model_name
        self._wire = wire
        self._dialect = dialect
        self._names = {theirs: ours for ours, theirs in dialect.renamed.items()}
        readers: dict[Wire, Callable[[bytes, KnownIds | None], Reply]] = {
            "responses": lambda body, _: read_responses_reply(body),
            "chat": functools.partial(read_chat_reply, asked_tokens=dialect.asks_tokens, reasoning=dialect.reasoning),
            "messages": lambda body, _: read_messages_reply(body),
        }
        self._read = readers[wire]
        self._write = REQUESTS[wire]
        self.weights = weights or Weights()
        self._secrets = list(secrets)
        written = [msgspec.json.encode(secret)[1:-1] for secret in self._secrets]
        self._written_secrets = [secret for secret in written if len(secret) >= SHORTEST_SECRET]
        self._observe = observe
        self._gate = gate
        self._max_tries = max_tries
        self._pauses = pauses or Pauses()

    def __repr__(self) -> str:
        return f"HttpPolicy({self._model_name!r} at {self.sender!r})"

    def at(self, endpoint: ScoreEndpoint) -> "HttpPolicy":
        if not isinstance(self.sender, PlainSender):
            raise self._error(f"OpenAI and Azure OpenAI have no /{endpoint.path}.").permanent()
        scorer = copy.copy(self)
        scorer.sender = self.sender.at_root(f"/{endpoint.path}")
        scorer._write = endpoint.make_body
        scorer._read = lambda body, _: endpoint.read_reply(body)
        return scorer

    async def ask(self, ask: Ask) -> Reply:
        asked, tries, body = ask, 0, self.make_body(ask)
        while True:
            tries += 1
            ask.retries = tries - 1
            version = self.weights.version
            try:
                reply = await (self._try_streamed if self._streams(ask) else self._try_once)(body, ask, tries)
                break
            except TryAgain as again:
                pause = self._pauses.before_retry(again, tries=tries, max_tries=self._max_tries)
                if isinstance(again.error, ReplyMalformed):
                    asked = msgspec.structs.replace(ask, sampling=reseed(ask.sampling, tries + 1))
                    body = self.make_body(asked)
            except _LimitTooLong as error:
                if ask.sampling.get("max_output_tokens") is not None or asked is not ask:
                    if error.refusal:
                        raise error.refusal from None
                    reply = Reply(items=[], finish_reason="context_length")
                    break
                # The Messages API requires a limit, and the one that GymWeb chose was too long.
                tries -= 1
                asked = msgspec.structs.replace(ask, sampling={**ask.sampling, "max_output_tokens": error.left})
                body = self.make_body(asked)
                continue
            await self._pauses.wait(pause)
        reply.retries, reply.version = tries - 1, version
        reply.grammar, sent = (ask.sent or SentMessages()).keep_facts(
            body, lambda: (has_grammar(body), as_sent(asked.sampling, body, self._names))
        )
        reply.sampling = None if sent is ask.sampling else sent
        return reply

    def _streams(self, ask: Ask) -> bool:
        return ask.on_delta is not None and self._wire == "chat"

    def make_body(self, ask: Ask) -> dict[str, Any]:
        body = self._write(ask, model_name=self._model_name, dialect=self._dialect)
        return {**body, **_STREAMED} if self._streams(ask) else body

    async def _try_streamed(self, body: dict[str, Any], ask: Ask, tries: int) -> Reply:
        """Try once, and pass the parts of the reply on. After the first part, the call is not retried."""
        assert ask.on_delta is not None
        reader = DeltaReader(ask.on_delta, self._secrets)
        stream = ChatStreamReader(reader.read)
        reply_listener.set(stream.feed)
        try:
            reply = await self._try_once(body, ask, tries, stream)
        except TryAgain as again:
            if reader.has_begun:
                raise again.error from None
            raise
        finally:
            # The context of a captured call lives longer than the call.
            reply_listener.set(None)
        reader.finish()
        return reply

    async def _try_once(
        self, body: dict[str, Any], ask: Ask, tries: int, stream: ChatStreamReader | None = None
    ) -> Reply:
        try:
            gate, send = self._gate, self.sender.send
            call = (body, ask.session, tries)
            got = await (gate.send(send, self._report_throttled, *call, patience=ask.patience) if gate else send(*call))
        except EndpointPaused as paused:
            error = self._error(f"The policy model is throttled: {paused}")
            raise error.refused("rate_limit", retry_after=paused.retry_after) from None
        except OutboundTimedOut as error:
            self._observe("timed_out", self._safe_message(str(error)))
            raise TryAgain(TimedOut(self._safe_message(f"The policy model did not answer in time: {error}"))) from error
        except OutboundTooLarge as error:
            self._observe("failed", self._safe_message(str(error)))
            message = (
                f"The policy model's reply is too large. {error} Give the model or the agent a lower max_output_tokens."
            )
            raise PolicyReplyTooLarge(self._safe_message(message)).permanent() from error
        except OutboundFailed as error:
            self._observe("unreachable", self._safe_message(str(error)))
            raise TryAgain(self._error(f"The policy model cannot be reached: {error}")) from error
        except OutboundRefused as error:
            refused = self._error(str(error)).permanent()
            raise (refused if isinstance(error, OutboundRedirectRefused) else refused.misconfigured()) from error
        if got.status != 200:
            return self._refused(got)
        try:
            known_ids = ask.sent.known_ids if ask.sent else None
            if len(got.body) > _LARGE_REPLY:
                loop = asyncio.get_running_loop()
                reply = await loop.run_in_executor(_LARGE_REPLIES, self._read_whole, got, known_ids, stream)
            else:
                reply = self._read_whole(got, known_ids, stream)
        except ReplyMalformed as error:
            if _says_context_length(str(error), ""):
                self._observe("ok")
                return Reply(items=[], finish_reason="context_length")
            failure = type(error)(self._safe_message(f"{error}{_describe(got, error)}")).caused_by(error)
            self._observe("malformed", str(failure))
            raise TryAgain(failure) from None
        except ReplyFailed as error:
            if _says_context_length(str(error), error.code):
                self._observe("ok")
                return Reply(items=[], finish_reason="context_length")
            failed = self._error(str(error))
            self._observe("server_error" if error.retryable else "ok", str(failed))
            raise (TryAgain(failed) if error.retryable else failed.permanent()) from None
        self._observe("ok")
        return reply

    def _read_whole(self, got: OutboundReply, known_ids: KnownIds | None, stream: ChatStreamReader | None) -> Reply:
        """Return the reply without GymWeb's secrets, which an endpoint may repeat. Replies are shown and exported."""
        reply = self._read(null_constants(self._joined(got, stream)), known_ids)
        try:
            fields = (reply.items, reply.model, reply.response_id, reply.server_finish_reason)
            encoded = msgspec.json.encode(fields)
        except (RecursionError, OverflowError, TypeError, ValueError) as error:
            raise ReplyMalformed(f"The endpoint's reply cannot be kept: {error}") from None
        # Searched as bytes: decoding a large reply to text would use as much memory again.
        if any(secret in encoded for secret in self._written_secrets):
            clean = hide_secrets(encoded.decode(), [secret.decode() for secret in self._written_secrets])
            reply.items, reply.model, reply.response_id, reply.server_finish_reason = msgspec.json.decode(clean)
        return reply

    def _joined(self, got: OutboundReply, stream: ChatStreamReader | None) -> bytes:
        """Return the body. A streamed body is joined into one reply, unless `stream` has already joined it."""
        # No event begins like a JSON object, but some servers send events with another content type.
        if got.body[:1] == b"{":
            return got.body
        join = _JOINS[self._wire]
        is_stream = got.headers.get("Content-Type", "").startswith(EVENT_STREAM)
        if not (is_stream or got.body.startswith((b"data:", b"event:"))):
            return got.body
        # The sizes differ if the body was compressed, or if the gate repeated the call.
        return stream.joined() if stream and stream.size == len(got.body) else join(got.body)

    def _refused(self, got: OutboundReply) -> Reply:
        """Handle an unsuccessful status: return a reply that ends the attempt, or raise an error or TryAgain."""
        message, code = explain_refusal(got.body)
        is_unfit = got.status in (400, 413, 422)
        if is_unfit and self._wire == "messages" and (left := _read_space_left(message)) > 0:
            self._observe("ok")
            said = self._error(f"The policy model returned {got.status}: {message}").permanent()
            raise _LimitTooLong(left, None if _says_context_length(message, code) else said)
        if is_unfit and _says_context_length(message, code):
            self._observe("ok")
            return Reply(items=[], finish_reason="context_length")
        error = self._error(f"The policy model returned {got.status}: {message or 'no message'}")
        if is_quota_exhausted(got):
            self._observe("quota", str(error))
            raise error.permanent().refused("quota")
        after = read_retry_after(got)
        if is_throttled(got):
            self._observe("throttled", str(error))
            raise TryAgain(error.refused("rate_limit", retry_after=after), after=after)
        self._observe(_outcome(got.status), str(error))
        if got.status in (408, 425) or got.status >= 500:
            raise TryAgain(error, after=after)
        raise error.permanent()

    def _report_throttled(self, got: OutboundReply) -> str:
        text, _ = explain_refusal(got.body)
        message = self._safe_message(f"{got.status}: {text or 'no message'}")
        self._observe("throttled", message)
        return message

    def _error(self, message: str) -> GymError:
        """Return an error without the API key: endpoints quote requests, and messages are stored and shown."""
        return PolicyError(self._safe_message(message))

    def _safe_message(self, message: str) -> str:
        return cut(hide_secrets(message, self._secrets), _MESSAGE_CHARACTERS)


def _read_space_left(message: str) -> int:
    """Return the tokens that are left for a reply, or 0 if the message does not tell."""
    found = next(filter(None, (pattern.search(message) for pattern in _LIMIT_TOO_LONG)), None)
    return int(found["most"]) - int(found["input"] or 0) if found else 0


def _describe(got: OutboundReply, error: GymError) -> str:
    """Return sentences with the content type of an unreadable reply, its first bytes and what to do."""
    if not error.unreadable:
        return ""
    kind, begin = cut(got.headers.get("Content-Type", "not set"), 100), cut_body(got.body, _MESSAGE_BEGIN)
    return f" Its content type is {kind}. It begins with {begin!r}. Check the address, provider and wire of the model."


def _outcome(status: int) -> Outcome:
    """Return what an unsuccessful status says about the health of the endpoint."""
    if status >= 500 or status == 408:
        return "server_error"
    return "refused" if status in (401, 403, 404) else "ok"


def rejects_unknown_parameters(base_url: str) -> bool:
    """Return True if this endpoint rejects unknown parameters, as OpenAI's own do."""
    try:
        host = URL(base_url).host or ""
    except ValueError:
        return False
    return any(host == strict or host.endswith("." + strict) for strict in _STRICT_HOSTS)


def _says_context_length(message: str, code: str) -> bool:
    return code in _CONTEXT_CODES or any(words in message for words in _CONTEXT_WORDS)
