"""Render a chat template as `transformers` does: sandboxed Jinja with the same extensions, filters and globals."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

STAND_INS = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
"""Special tokens of templates without a tokenizer: adding an undefined one to a text would raise."""
_IDS = re.compile(r"\bid\b|call_id")
_REASONING = ("reasoning_content", "thinking", "reasoning")


class _Generation(Extension):
    """The tag with which training templates mark the turns of the assistant. Renders its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Rendering:
    """A compiled template. Raises jinja2.TemplateError for invalid Jinja."""

    def __init__(self, text: str, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_raise, strftime_now=lambda layout: datetime.now().strftime(layout))
        self._template = environment.from_string(text)
        parsed = environment.parse(text)
        constants = [node.value for node in parsed.find_all(nodes.Const) if isinstance(node.value, str)]
        self.literals = "\0".join([*(node.data for node in parsed.find_all(nodes.TemplateData)), *constants])
        """The texts that the template itself writes."""
        read = [*constants, *(node.attr for node in parsed.find_all(nodes.Getattr))]
        self.reads_ids = any(_IDS.search(word) for word in read)
        """True if the template reads ids of calls."""
        self._tokens = {**STAND_INS, **special_tokens}

    def render(self, messages: list[dict[str, Any]], tools: list[Any] | None) -> str:
        """Return the text of a conversation. Raises whatever the template raises."""
        known = {**self._tokens, "messages": [_with_aliases(one) for one in messages], "tools": tools}
        return self._template.render(**known, documents=None, add_generation_prompt=False)


def _with_aliases(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with its reasoning under the names that `transformers` passes to templates."""
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _to_json(value: Any, ensure_ascii: bool = False, **layout: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **layout)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
