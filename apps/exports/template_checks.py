"""Check the rows of an export against a chat template while they are made."""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product
from typing import Any, Literal

import msgspec

from apps.gym.chat_templates.conversation_shapes import find_shape
from apps.gym.chat_templates.template_child import Verdict
from apps.gym.chat_templates.template_findings import KINDS, TemplateForm, TemplateReport, is_harmful
from apps.gym.chat_templates.template_sources import ChatTemplate, TemplateRefused
from apps.gym.exporters.protocol import Format, Options, Row
from apps.gym.exporters.rendered_messages import Conversation, row_conversations, with_arguments
from apps.gym.exporters.split_calls import split_calls
from apps.gym.exporters.training_conversations import with_tools_in_system
from apps.gym.trainability import Dropped
from apps.gym.verifiers.processes.process_pool import Child

SECONDS = 5.0
"""Time limit for rendering a batch of rows. The process is killed after it."""
SLOW_SECONDS, SLOW_ROWS = 60.0, 20
"""A check that has rendered for this time stops if it renders fewer rows per second."""
MAX_SHAPES = 5_000
"""Rows of further shapes are rendered themselves."""
SAMPLE, MAX_SAMPLE = 0.01, 1_000
"""Share and number of the rows that are rendered although a row of their shape was. Chosen by a fixed seed."""
_BATCH = 32
_FORM_SECONDS, _FORM_SHAPES = 5.0, 40
"""Limits for trying other options: time, and number of shapes, the most frequent first."""


class TemplateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The template of an export, as stored with it."""

    template: ChatTemplate
    every_row: bool = False
    misfits: Literal["kept", "dropped"] = "kept"


class _Row(msgspec.Struct):
    name: str
    shape: Hashable
    conversations: list[Conversation]


class _Shape(msgspec.Struct):
    verdict: Verdict
    example: list[Conversation]
    rows: int = 0


def open_renderer(template: ChatTemplate) -> Child:
    """Return a process that renders this template. Raises TemplateRefused if the template is not valid."""
    child = Child("apps.gym.chat_templates.template_child")
    try:
        answer = child.ask(msgspec.json.encode(template), seconds=SECONDS)
        if answer != b"ready":
            raise TemplateRefused(f"The chat template is not valid: {answer.decode()}")
        return child
    except OSError as error:
        child.kill()
        raise TemplateRefused("The chat template could not be compiled within its limits.") from error
    except BaseException:
        child.kill()
        raise


class TemplateCheck:
    """The check of one export. Close it after use; `report` works afterwards."""

    def __init__(self, stored: Mapping[str, Any], format: Format, options: Options) -> None:
        self._settings = msgspec.convert(stored, TemplateSettings)
        self._format, self._options = format, options
        self._child = open_renderer(self._settings.template)
        self._dice = random.Random(0)
        self._shapes: dict[Hashable, _Shape] = {}
        self._counts: Counter[str] = Counter()
        self._found: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._queue: list[_Row] = []
        self._sent: list[_Row] = []
        self._stopped = ""
        self._seconds = 0.0
        self._form: TemplateForm | None = None

    def read(self, rows: Sequence[Row]) -> None:
        """Check the rows of one source. Raises Dropped if they are to be left out."""
        verdicts = [self._check(row) for row in rows]
        if self._settings.misfits == "dropped" and any(is_harmful(verdict.kinds) for verdict in verdicts):
            self._counts["dropped"] += len(rows)
            raised = any("raised" in verdict.kinds for verdict in verdicts)
            raise Dropped("template_raises" if raised else "template_loses")

    def close(self) -> None:
        """Look for options with which the template loses less, and end the process."""
        try:
            self._send_queue()
            self._send_queue()
            if is_harmful(self._found):
                self._form = self._find_form()
        finally:
            self._child.kill()

    def report(self) -> TemplateReport:
        counts = {name: self._counts[name] for name in ("rows", "rendered", "deviating", "unchecked", "dropped")}
        found = [
            replace(kind, rows=self._found[name], example=self._examples[name])
            for name, kind in KINDS.items()
            if self._found[name]
        ]
        given = self._settings
        return TemplateReport(
            template=given.template.title,
            sha256=hashlib.sha256((given.template.text + given.template.tool_text).encode()).hexdigest(),
            every_row=given.every_row,
            misfits=given.misfits,
            shapes=len(self._shapes),
            findings=found,
            form=self._form,
            stopped=self._stopped,
            **counts,
        )

    def _check(self, row: Row) -> Verdict:
        """Return the verdict of a row. It is empty if it comes later, or never because the check was stopped."""
        self._counts["rows"] += 1
        names = (f"{kind} {row[f'{kind}_id']}" for kind in ("rollout", "pair") if f"{kind}_id" in row)
        conversations = row_conversations(self._format, row)
        shape = tuple(find_shape(*one) for one in conversations)
        self._queue.append(_Row(next(names, f"row {self._counts['rows']:,}"), shape, conversations))
        known, may_wait = self._shapes.get(shape), self._settings.misfits == "kept"
        is_batched = may_wait and self._settings.every_row
        if known and not is_batched and (self._stopped or not self._is_sampled()):
            self._note(self._queue.pop(), known.verdict)
            return known.verdict
        if is_batched or (may_wait and known):
            # Waiting for the answer to each row of the sample would take longer than rendering it.
            if len(self._queue) == _BATCH:
                self._send_queue()
            return Verdict()
        self._send_queue()
        return next(reversed(self._send_queue()), Verdict())

    def _is_sampled(self) -> bool:
        few = self._counts["rendered"] + len(self._queue) + len(self._sent) - len(self._shapes) <= MAX_SAMPLE
        return self._settings.every_row or (few and self._dice.random() < SAMPLE)

    def _send_queue(self) -> list[Verdict]:
        """Send the waiting rows. Note and return the verdicts of those sent before: both processes work meanwhile."""
        started = time.monotonic()
        rows, self._sent, self._queue = self._sent, self._queue, []
        answer = iter(self._ask(partial(self._child.wait, seconds=SECONDS)) if rows else ())
        if self._sent:
            job = msgspec.json.encode([each for one in self._sent for each in one.conversations])
            self._ask(partial(self._child.start, job, seconds=SECONDS))
        self._seconds += time.monotonic() - started
        if self._stopped:
            self._counts["unchecked"] += len(rows)
            return []
        verdicts = [_join(list(islice(answer, len(one.conversations)))) for one in rows]
        for one, verdict in zip(rows, verdicts, strict=True):
            known = self._shapes.get(one.shape)
            self._counts["deviating"] += known is not None and known.verdict.kinds != verdict.kinds
            self._note(one, verdict)
        self._counts["rendered"] += len(rows)
        if self._seconds > SLOW_SECONDS and self._counts["rendered"] < SLOW_ROWS * self._seconds:
            self._stopped = f"The template is too slow: fewer than {SLOW_ROWS} rows per second."
        return verdicts

    def _ask(self, ask: Callable[[], bytes | None]) -> list[Verdict]:
        """Return the verdicts in an answer, or none if the check is stopped."""
        try:
            answer = None if self._stopped else ask()
            return msgspec.json.decode(answer, type=list[Verdict]) if answer else []
        except OSError as error:
            late = isinstance(error, TimeoutError)
            why = f"did not end within {SECONDS:g} seconds" if late else "took too much memory"
            self._stopped = f"Rendering {why}. Check the template for loops."
            return []

    def _note(self, one: _Row, verdict: Verdict) -> None:
        if one.shape not in self._shapes and len(self._shapes) < MAX_SHAPES:
            keeps = len(self._shapes) < 10 * _FORM_SHAPES
            self._shapes[one.shape] = _Shape(verdict, one.conversations if keeps else [])
        if known := self._shapes.get(one.shape):
            known.rows += 1
        self._found.update(verdict.kinds)
        for name in verdict.kinds:
            self._examples.setdefault(name, f"{one.name}: {verdict.error}" if verdict.error else one.name)

    def _find_form(self) -> TemplateForm | None:
        """Return the options with the fewest harmed rows of the most frequent shapes, if they beat those in use."""
        shapes = sorted((one for one in self._shapes.values() if one.example), key=lambda one: -one.rows)[:_FORM_SHAPES]
        checked, form, until = sum(one.rows for one in shapes), None, time.monotonic() + _FORM_SECONDS
        best = sum(one.rows for one in shapes if is_harmful(one.verdict.kinds))
        for options in self._other_options():
            left = 0
            for shape in shapes:
                job = msgspec.json.encode([_changed(one, options) for one in shape.example])
                verdicts = self._ask(partial(self._child.ask, job, seconds=SECONDS))
                if not verdicts or time.monotonic() > until:
                    return form
                left += shape.rows * is_harmful(_join(verdicts).kinds)
                if left >= best:
                    break
            if left < best:
                best, form = left, TemplateForm(options=options, rows=left, checked=checked)
        return form

    def _other_options(self) -> Iterator[dict[str, str]]:
        """Yield options that the format offers and the export does not use, the fewest changes first."""
        wanted = {"arguments": ("object", "text"), "parallel_calls": ("split",), "tools": ("system",)}
        changes = [
            [{}, *({name: one} for one in values if one in self._format.choices.get(name, ()) and one != now)]
            for name, values in wanted.items()
            if (now := getattr(self._options, name)) not in ("system", "dropped")
        ]
        joined = [{name: value for one in each for name, value in one.items()} for each in product(*changes)]
        yield from sorted(filter(None, joined), key=len)


def _join(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict of a row with these conversations."""
    kinds = {kind for verdict in verdicts for kind in verdict.kinds}
    return Verdict(tuple(sorted(kinds)), next((verdict.error for verdict in verdicts if verdict.error), ""))


def _changed(conversation: Conversation, options: Mapping[str, str]) -> Conversation:
    """Return a conversation in the form of other options."""
    messages, tools = conversation
    if form := options.get("arguments"):
        messages = [with_arguments(one, form) for one in messages]
    if "parallel_calls" in options:
        messages = [one for one, _ in split_calls(messages)]
    return (with_tools_in_system(messages, tools), None) if "tools" in options and tools else (messages, tools)
