"""Set-up notices: signs that the server or its settings, not the model, decided how a rollout ended.

Each kind is declared once, in `NOTICES`. Notices of rollouts are stored in a column, as names separated by spaces.
"""

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from apps.gym.traces.events import ModelCall
from apps.gym.traces.items import Item, as_object, assistant_text, read_json, text_of
from apps.gym.traces.tokens import TokensUnreadable, read_new_ids
from apps.gym.wires.chat_reply import is_repetition

MAX_NOTICES = 120
"""Maximum characters of the stored names of a rollout."""
_CALL_MARKS = (
    *("<tool_call>", "<function=", "<|python_tag|>", "[TOOL_CALLS]", "<|tool_call", "<｜tool▁call", "<｜DSML｜"),
    *("<tool_calls>", "<TOOLCALL>", "<minimax:tool_call>", "<start_function_call>", "<|START_ACTION|>"),
    *("<|action_start|>", "<invoke name=", "functools[", "to=functions.", "<function_call>", "<function_calls>"),
    "<tools>",
)
_SUSPICIOUS = re.compile(r"\A\s*[{`]|[<\[◁]|\{\s*[\"}]|to=functions\.|Action Input|[)\]][\s`~]*\Z")
"""Found in every text with a mark of a call or a thought, and in every text that may be a call as a whole."""
_LIMITS = {"chat": "max_completion_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}
_ENDS_READ = 64  # replies whose last tokens are counted
_CALL_SPAN = 400
"""Characters after a mark of a call in which the name of the tool is expected."""
_MAX_CODE = 20_000  # characters of a call in Python's syntax
_FENCE = re.compile(r"^[ \t]*(?:```[^`\n]*|~~~.*)$", re.MULTILINE)
_INDENTED = re.compile(r"\S\s*\n(?: {4}|\t)[ \t]*\Z")
_FIRST_VALUE = re.compile(r"^ {0,3}[{\[]", re.MULTILINE)
_FIRST_CALL = re.compile(r"^ {0,3}\[?[\w.]+\(", re.MULTILINE)
_SEPARATORS = frozenset(" \t\r\n,;")
# A call whose marks the server removed.
_BY_NAME = re.compile(r"(?:functions\.)?([\w.-]+?)(?::\d+)?(?:\[ARGS\])?\s*(\{.*\})", re.DOTALL)
_PROSE = re.compile(r" [a-z]|[.,;)]")
"""Found after a mark that is part of a sentence."""
_CALL_END = frozenset('>}])*`"')
_REACT = re.compile(r"^[ \t*]*Action[*]*:[*` \t]*([\w.-]+)[*` \t]*\n+[ \t*]*Action Input[*]*:", re.MULTILINE)
_THOUGHT_MARKS = [
    *(
        (f"<{tag}>", f"</{tag}>")
        for tag in ("think", "thinking", "seed:think", "thought", "reasoning", "longcat_think")
    ),
    *(("<|begin_of_thought|>", "<|end_of_thought|>"), ("<|channel|>analysis", "<|channel|>final")),
    *(("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"), ("<|START_THINKING|>", "<|END_THINKING|>")),
]
_PLAIN_TAGS = frozenset({"thought", "reasoning"})
"""Tags that tasks ask for by their names alone, for example in a list of XML elements."""
_decoder = json.JSONDecoder()


class Reply(NamedTuple):
    """A reply of the model. `tools` are the names of the offered tools, `prompts` the messages that the model got.

    `is_whole` is True if the server reported the reply as complete. `ends` counts the last tokens of shorter replies.
    """

    event: ModelCall
    text: str
    has_calls: bool
    is_whole: bool
    tools: list[str]
    prompts: list[list[Item]]
    ends: Counter[int]

    @property
    def answers(self) -> bool:
        return self.has_calls or bool(self.text.strip())

    @property
    def beyond_limit(self) -> int | None:
        """Return the output tokens minus the sent limit, None without a limit."""
        limit = self.event.sampling.get("max_output_tokens")
        return self.event.usage.get("output_tokens", 0) - limit if isinstance(limit, int) else None

    def has_mark(self, mark: str, place: int) -> bool:
        """Return True for a mark that is neither quoted, nor part of a sentence, nor asked for in the prompt."""
        before = self.text[:place]
        in_code = len(_FENCE.findall(before)) % 2 == 1 or _INDENTED.search(before)
        is_quoted = in_code or before.endswith(("`", "'", '"'))
        in_sentence = before and _PROSE.match(self.text, place + len(mark))
        tag = mark.strip("</>")
        asked = tag if tag in _PLAIN_TAGS else mark
        return not (is_quoted or in_sentence) and not any(
            asked in text_of(item) for items in self.prompts for item in items
        )


def _has_text_call(reply: Reply) -> bool:
    text = reply.text
    # Most replies have none.
    named = [name for name in reply.tools if name in text]
    if not named or reply.has_calls or not reply.is_whole:
        return False
    for mark in _CALL_MARKS:
        place = text.find(mark)
        if place >= 0 and _names_tool(text, place + len(mark), named):
            end = text.rstrip()
            # Prose after a mark explains it.
            return (end[-1] in _CALL_END or end.endswith(tuple(named))) and reply.has_mark(mark, place)
    for found in _REACT.finditer(text):
        if found[1] in named:
            return reply.has_mark("Action Input", found.start())
    return _is_bare_call(text, named)


def _names_tool(text: str, start: int, named: list[str]) -> bool:
    """Return True if a call of a tool follows. Malformed JSON is a fault of the model, which no parser reads."""
    begin = len(text) - len(text[start:].lstrip())
    if text[begin : begin + 1] in {"{", "["}:
        try:
            _decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            return False
    return any(name in text[start : start + _CALL_SPAN] for name in named)


def _is_bare_call(text: str, named: list[str]) -> bool:
    """Return True if the text consists of calls, or ends with them after a sentence. They may be in code blocks."""
    body = _FENCE.sub("", text).strip()
    calls = next(filter(None, (read(body) for read in _PARSERS)), [])
    return bool(calls) and all(_is_call(call, named) for call in calls)


def _read_objects(body: str) -> list[Any]:
    """Return JSON or Python objects at the end of a text."""
    start = _FIRST_VALUE.search(body)
    values = body[start.start() :].lstrip() if start else ""
    if (found := _read_values(values)) or "'" not in values or len(values) > _MAX_CODE:
        return found
    with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        value = ast.literal_eval(values)
        return value if isinstance(value, list) else [value]
    return []


def _read_by_name(body: str) -> list[Any]:
    """Return the call of a text like `name{"argument": 1}`."""
    found = _BY_NAME.fullmatch(body)
    return [{"name": found[1], "arguments": read_json(found[2])}] if found else []


def _read_code(body: str) -> list[Any]:
    """Return the calls of Python code at the end of a text: `name(argument=1)`, also in a list or in `print`."""
    start = _FIRST_CALL.search(body)
    if start is None or not body.endswith((")", "]")) or len(body) > _MAX_CODE:
        return []
    try:
        lines = ast.parse(body[start.start() :].lstrip()).body
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    parts = [line.value if isinstance(line, ast.Expr) else line for line in lines]
    return [_of_code(call) for part in parts for call in (part.elts if isinstance(part, ast.List) else [part])]


def _of_code(call: ast.AST) -> dict[str, Any]:
    match call:
        case ast.Call(func=ast.Name(id="print"), args=[inner], keywords=[]):
            return _of_code(inner)
        case ast.Call(func=function, args=[], keywords=given):
            return {"name": ast.unparse(function), "arguments": {one.arg: "" for one in given}}
    return {}


_PARSERS = (_read_by_name, _read_objects, _read_code)
"""Each returns what may be calls, as objects, if a text consists of them or ends with them."""


def _read_values(text: str) -> list[Any]:
    """Return the JSON values that the text consists of, or an empty list. Lists are flattened."""
    values: list[Any] = []
    place = 0
    while place < len(text):
        try:
            value, place = _decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return []
        values += value if isinstance(value, list) else [value]
        while text[place : place + 1] in _SEPARATORS:
            place += 1
    return values


def _is_call(given: Any, named: list[str]) -> bool:
    call = as_object(as_object(given).get("function")) or as_object(given)
    name = next((call[key] for key in ("name", "tool", "tool_name") if key in call), None)
    given = next((call[key] for key in ("arguments", "parameters", "args", "tool_input") if key in call), None)
    # The parameters of a definition are a JSON Schema.
    return (
        isinstance(name, str)
        and name in named
        and isinstance(given, dict | str)
        and as_object(given).get("type") != "object"
    )


def _lies_in_reasoning(reply: Reply) -> bool:
    reasoning = (text_of(item) for item in reply.event.items if item.get("type") == "reasoning")
    return reply.is_whole and not reply.answers and any(map(str.strip, reasoning))


def _has_thought(reply: Reply) -> bool:
    text = reply.text.lstrip()
    for opening, end in _THOUGHT_MARKS:
        if text.startswith(opening):
            return reply.has_mark(opening, 0)
        place = reply.text.find(end)
        if place >= 0 and opening not in reply.text[:place] and reply.has_mark(end, place):
            return True
    return False


def _is_cut(reply: Reply) -> bool:
    """Return True if a whole reply ends exactly at its limit, unless its tokens show that it is complete.

    An end token ends other replies of the model, or the turns of the prompt, but is in no text.
    """
    if reply.beyond_limit != 0 or not reply.is_whole or reply.has_calls:
        return False
    try:
        prompt, generated = read_new_ids(reply.event.tokens or b"")
    except TokensUnreadable:
        return True
    # Servers that leave the end token out have no frequent one.
    ends = [token for token, number in reply.ends.items() if number >= max(2, reply.ends.total() / 4)]
    return not generated or generated[-1] in generated[:-1] or generated[-1] not in (ends or prompt)


class Notice(NamedTuple):
    """One kind of notice.

    `sign` finds it in a reply; None for kinds that only a comparison of rollouts shows. A rollout has no notice if it
    has `called` a tool or `answered` with text in any reply, as `unless` says. A collection shows it from `least`
    rollouts on.
    """

    name: str
    title: str
    sentence: str
    remedy: str
    sign: Callable[[Reply], bool] | None
    unless: Literal["", "called", "answered"] = ""
    least: int = 1

    def over(self, wire: str) -> "Notice":
        """Return the notice with the name that the token limit has over this wire."""
        return self._replace(remedy=self.remedy.replace("{limit}", _LIMITS[wire]))


EQUAL_ATTEMPTS, CUT = "equal_attempts", "cut_unreported"
_NOTICES = (
    Notice(
        "text_calls",
        "Tool calls left as text",
        "The answer contains a tool call as text, so no tool ran.",
        "Start the server with the tool call parser of this model. vLLM: `--tool-call-parser`.",
        _has_text_call,
        "called",
    ),
    Notice(
        "answer_in_reasoning",
        "Answers in the reasoning",
        "A whole reply lies in the reasoning, and the answer is empty.",
        "If the model does not think, start the server without a reasoning parser. Else use the parser of its family.",
        _lies_in_reasoning,
        "answered",
    ),
    Notice(
        "thinking_in_answer",
        "Thinking tags in answers",
        "The answer contains the tags of the model's reasoning.",
        "Start the server with the reasoning parser of this model, or set `reasoning` of the policy model to `text`.",
        _has_thought,
    ),
    Notice(
        "limit_exceeded",
        "Token limit ignored",
        "A reply has more output tokens than the limit that was sent.",
        "In the request options of the policy model, rename `{limit}` to the name that it reads.",
        lambda reply: (reply.beyond_limit or 0) > 0,
        least=2,
    ),
    Notice(
        CUT,
        "Cut replies reported as complete",
        "A reply ends exactly at its token limit, but the server reports it as complete.",
        "Raise `max_output_tokens`, and update the server: the finish reason of a cut reply is `length`.",
        _is_cut,
        least=2,
    ),
    Notice(
        "repetition",
        "Replies cut as repetition",
        "The server cut a reply because it repeats itself.",
        "Raise the temperature or a penalty, or change `repetition_detection` in the model's sampling.",
        lambda reply: is_repetition(reply.event.server_finish_reason),
    ),
    Notice(
        EQUAL_ATTEMPTS,
        "Equal attempts",
        "All attempts at each task are equal.",
        "Set a temperature above 0, and check that the server uses `temperature` and `seed`.",
        None,
    ),
)
NOTICES: dict[str, Notice] = {each.name: each for each in _NOTICES}
"""All kinds by name, in the order in which they are shown."""
OF_ROLLOUTS = tuple(each.name for each in _NOTICES if each.sign)


def read_notices(stored: str, wire: str) -> list[Notice]:
    """Return the notices that are stored for a rollout, whose model is called over this wire."""
    return [NOTICES[name].over(wire) for name in stored.split() if name in NOTICES]


def shown_notices(counts: Mapping[str, int], *, reported_cuts: int) -> list[Notice]:
    """Return the notices to show for these numbers of rollouts by name. A server that reports one cut reports all."""
    hidden = {CUT} if reported_cuts else set()
    return [each for each in _NOTICES if counts.get(each.name, 0) >= each.least and each.name not in hidden]


class SetupSigns(msgspec.Struct):
    """Collects the signs of one attempt, reply by reply. Attempts at the same model share `ends`."""

    tools: list[str] = []
    prompts: list[list[Item]] = []
    ends: Counter[int] = msgspec.field(default_factory=Counter)
    called: bool = False
    answered: bool = False
    _found: set[str] = set()
    _tools_of: dict[int, list[str]] = {}

    def add(self, event: ModelCall) -> None:
        if event.call or event.tools_in is not None:
            self._read_tools(event)
        has_calls = has_message = False
        for item in event.items:
            kind = item.get("type")
            has_calls = has_calls or kind == "function_call"
            has_message = has_message or kind not in {"function_call", "reasoning"}
        text = assistant_text(event.items) if has_message else ""
        self.called = self.called or has_calls
        has_text = bool(text) and not text.isspace()
        self.answered = self.answered or has_text
        limit = event.sampling.get("max_output_tokens")
        is_long = isinstance(limit, int) and event.usage.get("output_tokens", 0) >= limit
        is_whole = event.finish_reason in {"stop", "tool_calls"}
        if event.tokens and is_whole and not (is_long or has_calls) and self.ends.total() < _ENDS_READ:
            with suppress(TokensUnreadable):
                self.ends.update(read_new_ids(event.tokens)[1][-1:])
        # Every reply of every rollout comes here, and most end here.
        if (has_calls or has_text) and not (
            is_long or event.server_finish_reason or (text and _SUSPICIOUS.search(text))
        ):
            return
        reply = Reply(
            event,
            text=text,
            has_calls=has_calls,
            is_whole=is_whole,
            tools=[] if event.sampling.get("tool_choice") == "none" else self._tools_of.get(event.call, self.tools),
            prompts=self.prompts,
            ends=self.ends,
        )
        self._found.update(each.name for each in _NOTICES if each.sign and each.sign(reply))

    def names(self) -> str:
        """Return the names of the notices as they are stored."""
        if not self._found:
            return ""
        refuted = {"": False, "called": self.called, "answered": self.answered}
        return " ".join(one for one in OF_ROLLOUTS if one in self._found and not refuted[NOTICES[one].unless])

    def _read_tools(self, event: ModelCall) -> None:
        """Read the tools that a call offers. Without its own, it has the parent's tools, in a line the last ones."""
        if event.call:
            self.prompts.append(event.items_in)
        given = None if event.tools_in is None else [str(tool.get("name", "")) for tool in event.tools_in]
        self._tools_of[event.call] = self._tools_of.get(event.parent, self.tools) if given is None else given


class SetupNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice of a collection. `filter` finds its rollouts there; empty for kinds that only a comparison shows."""

    kind: str
    title: str
    sentence: str
    remedy: str
    rollouts: int
    example: int | None
    filter: str
