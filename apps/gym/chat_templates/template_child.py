"""A process that renders conversations with an untrusted template. It is killed at the time limit.

Started as `python -m apps.gym.chat_templates.template_child DESCRIPTOR`.
"""

import socket

import jinja2
import msgspec

from apps.gym.chat_templates.jinja_rendering import Rendering
from apps.gym.chat_templates.marked_conversations import MarkedConversation
from apps.gym.chat_templates.template_sources import ChatTemplate
from apps.gym.exporters.rendered_messages import Conversation
from apps.gym.redaction.shortening import cut
from apps.gym.verifiers.processes.framing import receive, send
from apps.gym.verifiers.processes.limited_child import run_limited

_MOST_KNOWN = 50_000


class Verdict(msgspec.Struct, frozen=True):
    """The kinds of findings in one conversation, and the error if the template raised."""

    kinds: tuple[str, ...] = ()
    error: str = ""


class Renderer:
    """The template of a tokenizer. Raises jinja2.TemplateError if it is not valid.

    Conversations that are equal except for words, names and numbers become the same markers, and are rendered once.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._plain = Rendering(template.text, template.special_tokens)
        self._with_tools = Rendering(template.tool_text, template.special_tokens) if template.tool_text else self._plain
        self._known: dict[bytes, Verdict] = {}

    def judge(self, conversation: Conversation) -> Verdict:
        rendering = self._plain if conversation[1] is None else self._with_tools
        marked = MarkedConversation(*conversation, keeps_ids=rendering.reads_ids)
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        if (known := self._known.get(digest := marked.digest)) is None:
            known = self._known[digest] = _judge(rendering, marked)
        return known


def _judge(rendering: Rendering, marked: MarkedConversation) -> Verdict:
    try:
        text = rendering.render(marked.messages, marked.tools)
    # A template can raise anything: an expression may divide by zero.
    except Exception as error:
        return Verdict(("raised",), cut(f"{type(error).__name__}: {error}", 300))
    return Verdict(tuple(sorted(marked.find_kinds(text, rendering.literals))))


def serve(channel: socket.socket) -> None:
    """Read a template, then answer each list of conversations with a list of verdicts."""
    send(channel, b"ready")
    try:
        renderer = Renderer(msgspec.json.decode(receive(channel), type=ChatTemplate))
    except (jinja2.TemplateError, RecursionError, MemoryError) as error:
        send(channel, cut(f"{type(error).__name__}: {error}", 300).encode())
        return
    send(channel, b"ready")
    decode = msgspec.json.Decoder(list[Conversation]).decode
    while received := receive(channel):
        send(channel, msgspec.json.encode([renderer.judge(one) for one in decode(received)]))


if __name__ == "__main__":
    run_limited(serve)
