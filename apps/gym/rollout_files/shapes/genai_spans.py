"""Read a trace of OpenTelemetry spans: GenAI conventions, OpenInference, and `gen_ai.prompt.N` of older senders.

Each line is the body of an OTLP/HTTP request, as JSON, with one trace. Spans of model calls are the replies, and the
messages of their requests say which call continues which. All other spans are left out by name.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

from apps.gym.redaction.shortening import cut
from apps.gym.rollout_files.shapes.stored_conversations import read_messages, read_tools
from apps.gym.rollout_files.stored_calls import StoredCall, StoredTrace, read_counts
from apps.gym.tasks.file_rows import RowRefused, expect
from apps.gym.traces.call_records import Place
from apps.gym.traces.chat_turns import assistant_items, chat_items
from apps.gym.traces.items import as_object, dump_json, read_json
from apps.gym.traces.parents import ParentFinder

Span = dict[str, Any]
Message = dict[str, Any]

MODEL_CALLS = frozenset({"chat", "text_completion", "generate_content"})
HINT = (
    "Turn on the capture of content in the sender: OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"
)
_ERROR = 2
_FINISHED = {"tool_call": "tool_calls", "length": "max_output_tokens", "max_tokens": "max_output_tokens"}
_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "stop_sequences": "stop",
    "stop": "stop",
}
_INDEX = re.compile(r"\d+")


def spans_of(row: dict[str, Any]) -> Iterator[tuple[Span, dict[str, Any]]]:
    """Yield the spans of a request with the attributes of their resource. Raises RowRefused."""
    for place, resource in enumerate(expect(row.get("resourceSpans") or [], list, "a list", "/resourceSpans")):
        at = f"/resourceSpans/{place}"
        given = as_object(expect(resource, dict, "an object", at).get("resource"))
        attributes = read_attributes(given, at)
        for number, scope in enumerate(expect(resource.get("scopeSpans") or [], list, "a list", f"{at}/scopeSpans")):
            here = f"{at}/scopeSpans/{number}"
            spans = expect(expect(scope, dict, "an object", here).get("spans") or [], list, "a list", f"{here}/spans")
            for position, span in enumerate(spans):
                pointer = f"{here}/spans/{position}"
                for name, size in (("traceId", 32), ("spanId", 16)):
                    value = expect(expect(span, dict, "a span", pointer).get(name), str, "text", f"{pointer}/{name}")
                    if not re.fullmatch(rf"[0-9a-fA-F]{{{size}}}", value):
                        message = f"must have {size} hexadecimal digits"
                        raise RowRefused("wrong_id", message, pointer=f"{pointer}/{name}")
                read_attributes(span, pointer)
                yield span, attributes


def read_attributes(holder: dict[str, Any], at: str = "") -> dict[str, Any]:
    """Return the attributes of a span, an event or a resource. Raises RowRefused."""
    given = expect(holder.get("attributes") or [], list, "a list", f"{at}/attributes")
    if not all(isinstance(one, dict) and isinstance(one.get("key"), str) for one in given):
        raise RowRefused("wrong_type", "must have a key and a value each", pointer=f"{at}/attributes")
    return {one["key"]: _value(as_object(one.get("value"))) for one in given}


def is_model_call(span: Span) -> bool:
    told = read_attributes(span)
    return (
        told.get("gen_ai.operation.name") in MODEL_CALLS
        or told.get("openinference.span.kind") == "LLM"
        or (any(name.startswith(("gen_ai.prompt.", "gen_ai.completion.")) for name in told))
    )


def why_refused(span: Span) -> str:
    """Return why GymWeb cannot store the span of a model call, or nothing."""
    if not is_model_call(span) or _has_failed(span):
        return ""
    try:
        _Call(span, Counter())
    except RowRefused as refusal:
        return refusal.message
    return ""


def read_otlp(row: dict[str, Any]) -> StoredTrace:
    """Return the trace of a request. Raises RowRefused."""
    spans = {str(span["spanId"]): span for span, _ in spans_of(row)}
    traces = {str(span["traceId"]).lower() for span in spans.values()}
    if len(traces) != 1:
        raise RowRefused("several_traces", f"holds {len(traces)} traces: write each trace on its own line")
    left_out: Counter[str] = Counter()
    calls = sorted(_calls(spans, left_out), key=lambda call: (call.began, call.ended))
    if not calls:
        raise RowRefused("no_attempt", "the trace has no span of a model call with content")
    placed = _placed(calls)
    root = next((span for span in spans.values() if not span.get("parentSpanId")), {})
    told = read_attributes(root)
    scores = dict(_scores(root))
    reward = scores.pop("reward", None)
    if reward is None:
        left_out.update(f"evaluation {cut(name, 60)}" for name in scores)
    session = {"format": "otlp", "id": traces.pop(), "name": root.get("name"), "conversation": calls[0].conversation}
    return StoredTrace(
        calls=placed,
        main=max(number for number, call in enumerate(placed, start=1) if call.lineage == 1),
        tools=calls[0].tools,
        session={name: value for name, value in session.items() if value},
        left_out=left_out,
        reward=reward,
        components=scores if reward is not None and scores else None,
        stop_reason=str(told.get("gymweb.stop_reason") or ""),
        task_id=str(told.get("gymweb.task.id") or ""),
    )


def _calls(spans: dict[str, Span], left_out: Counter[str]) -> Iterator["_Call"]:
    """Yield the model calls. Instrumentations of a framework and of its client may both report one call."""
    models = {name for name, span in spans.items() if is_model_call(span)}
    outer = {str(spans[name].get("parentSpanId") or "") for name in models} & models
    for name, span in spans.items():
        if name in models and name not in outer and not _has_failed(span):
            if "gymweb.role" in read_attributes(span):
                left_out["call of a judge"] += 1
            else:
                yield _Call(span, left_out)
        elif name in models:
            left_out["failed call" if _has_failed(span) else "call around another call"] += 1
        elif span.get("parentSpanId"):
            left_out[f"span {cut(str(span.get('name') or ''), 60)}"] += 1


def _placed(calls: list["_Call"]) -> list[StoredCall]:
    """Return the calls with their parents, found as for captured agents."""
    finder, running = ParentFinder(calls[0].tools), list[int]()
    stored: list[StoredCall] = []
    for number, call in enumerate(calls, start=1):
        for ended in [one for one in running if calls[one - 1].ended <= call.began]:
            running.remove(ended)
            finder.complete(ended, calls[ended - 1].reply)
        place = finder.place_request(call.prompt, call.tools)
        running.append(number)
        stored.append(
            StoredCall(
                items_in=place.items_in,
                items=call.reply,
                parent=place.parent,
                root_reason=place.root_reason,
                spawned_by=place.spawned_by,
                lineage=place.lineage,
                tools=place.tools_in,
                model=call.model,
                response_id=call.response_id,
                finish_reason=call.finish_reason,
                usage=call.usage,
                sampling=call.sampling,
                at=call.began,
                notes=list(_notes(place)),
            )
        )
    return stored


def _notes(place: Place) -> Iterator[str]:
    """Say what a conversation without branches cannot hold."""
    yield from (f"the request {edit}" for edit in place.edited)
    if place.retry_of:
        yield f"repeats the request of call {place.retry_of}"
    if place.parent and place.tools_in is not None:
        yield f"offered other tools: {', '.join(str(tool['name']) for tool in place.tools_in) or 'none'}"


class _Call:
    """One model call of a span: its request and its reply as items. Raises RowRefused with the name of the span."""

    def __init__(self, span: Span, left_out: Counter[str]) -> None:
        told = read_attributes(span)
        self._left_out = left_out
        self.name = f"span {span.get('name')!r} ({span.get('spanId')})"
        self.began, self.ended = (_seconds(span.get(f"{end}TimeUnixNano")) for end in ("start", "end"))
        self.conversation = str(told.get("gen_ai.conversation.id") or told.get("session.id") or "")
        if told.get("gymweb.messages") == "new":
            self._refuse("was exported with messages “new”. Export with messages “all”")
        try:
            sent, said = self._messages(told)
        except RowRefused as refusal:
            if refusal.code == "no_content":
                raise
            self._refuse(f"cannot be read: {refusal.message}")
        if not sent or not said:
            self._refuse(f"has no content of its {'reply' if sent else 'request'}. {HINT}")
        try:
            messages = read_messages(sent, "/input", text_role="user")
            replies = read_messages(said, "/output", text_role="assistant")
            self.tools = read_tools(self._functions(told), "/tools")
        except RowRefused as refusal:
            self._refuse(f"cannot be read: {refusal.message}")
        self.prompt = chat_items(messages)
        name = str(span.get("spanId"))
        self.reply = [
            item
            for place, message in enumerate(replies)
            for item in assistant_items(message, f"{name}_{place}" if place else name)
        ]
        if not self.prompt:
            self._refuse("has an empty request")
        self.model = str(
            told.get("gen_ai.response.model") or told.get("gen_ai.request.model") or told.get("llm.model_name") or ""
        )
        self.response_id = str(told.get("gen_ai.response.id") or "")
        reasons = told.get("gen_ai.response.finish_reasons") or [told.get("llm.finish_reason")]
        reason = str((reasons[0] if isinstance(reasons, list) and reasons else "") or "")
        self.finish_reason = _FINISHED.get(reason, reason)
        self.usage = read_counts(
            told,
            input_tokens=_first(
                told, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"
            ),
            output_tokens=_first(
                told, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"
            ),
            cached_tokens=_first(
                told, "gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"
            ),
            reasoning_tokens=_first(
                told, "gen_ai.usage.reasoning.output_tokens", "llm.token_count.completion_details.reasoning"
            ),
        )
        parameters = as_object(_parsed(told.get("llm.invocation_parameters")))
        requested = {name: told.get(f"gen_ai.request.{name}", parameters.get(name)) for name in _SAMPLING}
        self.sampling = {_SAMPLING[name]: value for name, value in requested.items() if value is not None}

    def _refuse(self, message: str) -> NoReturn:
        raise RowRefused("no_content", f"{self.name} {message}")

    def _messages(self, told: dict[str, Any]) -> tuple[list[Message], list[Message]]:
        if "gen_ai.input.messages" in told or "gen_ai.output.messages" in told:
            system = _parsed(told.get("gen_ai.system_instructions"))
            parts = [{"type": "text", "content": system}] if isinstance(system, str) and system else system
            sent = [{"role": "system", "parts": parts}] if parts else []
            both = (_parsed(told.get(f"gen_ai.{way}.messages")) for way in ("input", "output"))
            given, said = (one if isinstance(one, list) else [] for one in both)
            # Several choices of one reply: only the first was continued.
            return list(self._genai([*sent, *given])), list(self._genai(said[:1]))
        if said := _nested(told, "llm.output_messages."):
            return list(map(_inference, _nested(told, "llm.input_messages."))), [_inference(said[0])]
        return _nested(told, "gen_ai.prompt."), [
            {"role": "assistant", **as_object(one)} for one in _nested(told, "gen_ai.completion.")[:1]
        ]

    def _genai(self, messages: list[Any]) -> Iterator[Message]:
        for given in messages:
            message = expect(given, dict, "a message", "/messages")
            contents: list[Message] = []
            thoughts, calls, results = [], [], []
            for part in expect(message.get("parts") or [], list, "a list of parts", "/messages/parts"):
                kind = as_object(part).get("type")
                if kind == "text":
                    contents.append({"type": "text", "text": str(part.get("content") or "")})
                elif kind == "reasoning":
                    thoughts.append(str(part.get("content") or ""))
                elif kind == "tool_call":
                    function = {"name": part.get("name"), "arguments": part.get("arguments")}
                    calls.append({"id": part.get("id"), "type": "function", "function": function})
                elif kind == "tool_call_response":
                    value = part.get("response", part.get("result"))
                    results.append({"role": "tool", "tool_call_id": part.get("id"), "content": _result(value)})
                elif kind in ("blob", "uri") and part.get("modality") == "image":
                    url = part.get("uri") or f"data:{part.get('mime_type')};base64,{part.get('content')}"
                    contents.append({"type": "image_url", "image_url": {"url": url}})
                else:
                    # A model saw it, so the conversation would be wrong without it.
                    self._refuse(f"has a part of type {kind!r}, which GymWeb does not read")
            yield from results
            if contents or thoughts or calls or not results:
                plain = all(part["type"] == "text" for part in contents)
                text = contents[0]["text"] if plain and len(contents) == 1 else contents
                yield {
                    "role": message.get("role"),
                    "content": text or "",
                    **({"reasoning_content": "\n\n".join(thoughts)} if thoughts else {}),
                    **({"tool_calls": calls} if calls else {}),
                }

    def _functions(self, told: dict[str, Any]) -> list[Any]:
        """Return the tools that are functions. Others run at the provider, and are left out by name."""
        given = _parsed(told.get("gen_ai.tool.definitions"))
        if not isinstance(given, list):
            given = [
                _parsed(as_object(as_object(one).get("tool")).get("json_schema")) for one in _nested(told, "llm.tools.")
            ]
        functions = [one for one in given if as_object(one).get("type") in (None, "function")]
        for other in given:
            if other not in functions:
                self._left_out[f"tool {as_object(other).get('type')}"] += 1
        return functions


def _inference(given: Message) -> Message:
    """Return a message of OpenInference as a chat message."""
    message = as_object(given.get("message"))
    content = message.get("content")
    if isinstance(given_parts := message.get("contents"), list):
        content = [_inference_part(as_object(as_object(part).get("message_content"))) for part in given_parts]
    kept: Message = {name: message[name] for name in ("role", "tool_call_id", "name") if name in message}
    given_calls = message.get("tool_calls")
    calls = [
        as_object(as_object(one).get("tool_call")) for one in (given_calls if isinstance(given_calls, list) else [])
    ]
    parts = content if isinstance(content, list) else []
    thoughts = [part["text"] for part in parts if part["type"] == "reasoning"]
    if isinstance(content, list):
        content = [part for part in content if part["type"] != "reasoning"]
    return {
        **kept,
        "content": content or "",
        **({"reasoning_content": "\n\n".join(thoughts)} if thoughts else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def _inference_part(part: Message) -> Message:
    if part.get("type") == "image":
        return {
            "type": "image_url",
            "image_url": {"url": as_object(as_object(part.get("image")).get("image")).get("url")},
        }
    return {"type": str(part.get("type") or "text"), "text": part.get("text") or ""}


def _nested(told: dict[str, Any], prefix: str) -> list[Any]:
    """Return the values below a prefix, whose names are paths, as nested objects and lists."""
    root: dict[str, Any] = {}
    for name, value in told.items():
        if name.startswith(prefix):
            *steps, last = name.removeprefix(prefix).split(".")
            inner = root
            for step in steps:
                inner = inner.setdefault(step, {}) if isinstance(inner.get(step, {}), dict) else {}
            inner[last] = value
    found = _listed(root)
    return found if isinstance(found, list) else []


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(_INDEX.fullmatch(name) for name in value):
        return [_listed(value[name]) for name in sorted(value, key=int)]
    return {name: _listed(one) for name, one in value.items()}


def _value(given: dict[str, Any]) -> Any:
    """Return an AnyValue of OTLP/JSON as plain data."""
    if "arrayValue" in given:
        return [_value(as_object(one)) for one in as_object(given["arrayValue"]).get("values") or []]
    if "kvlistValue" in given:
        return read_attributes({"attributes": as_object(given["kvlistValue"]).get("values")})
    if "intValue" in given:
        text = str(given["intValue"])
        return int(text) if re.fullmatch(r"-?\d{1,19}", text) else text
    return next((given[name] for name in ("stringValue", "boolValue", "doubleValue") if name in given), None)


def _scores(root: Span) -> Iterator[tuple[str, float]]:
    for event in root.get("events") or []:
        told = read_attributes(as_object(event))
        name, score = told.get("gen_ai.evaluation.name"), told.get("gen_ai.evaluation.score.value")
        if isinstance(name, str) and isinstance(score, int | float) and not isinstance(score, bool):
            yield name, float(score)


def _has_failed(span: Span) -> bool:
    return as_object(span.get("status")).get("code") in (_ERROR, "STATUS_CODE_ERROR")


def _seconds(given: object) -> float:
    """Return nanoseconds since 1970, as a number or as text, in seconds."""
    return int(str(given)) / 1e9 if re.fullmatch(r"\d{1,20}", str(given)) else 0.0


def _first(told: dict[str, Any], *names: str) -> tuple[str, ...]:
    return next(((name,) for name in names if name in told), ())


def _parsed(value: Any) -> Any:
    return read_json(value, value) if isinstance(value, str) else value


def _result(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, dict) for part in value)):
        return value
    return "" if value is None else dump_json(value)
