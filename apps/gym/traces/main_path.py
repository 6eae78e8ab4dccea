"""Choose the main path of an attempt: the conversation that verifiers, reviewers, pairs and exports read.

It ends at one call, by the first rule that fits:

1. `named`: the call that the agent names in `finish`.
2. `answer`: the leaf whose reply equals the answer of `finish`, as verifiers find answers in texts. An argument of a
   tool call may be the answer, too. Of several, the latest.
3. `contains`: the only leaf whose reply contains the answer, or the latest if all such leaves are of one lineage: each
   edit of a history leaves an earlier leaf behind.
4. `earlier`: the latest leaf with a call before it that rule 2 or 3 would choose: the conversation went on after it.
5. `latest`: the leaf that completed last. If the agent gave an answer, the path is ambiguous, since no call of it holds
   the answer.

A leaf is a call that no other call continues. Leaves of auxiliary calls and of subagents count only if no other leaf
fits a rule.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple, Protocol

from apps.gym.answer_texts import MAX_NORMALIZED, answer_forms, holds_answer, normalize_answer
from apps.gym.traces.events import AgentEnd, ModelCall, TraceUnion
from apps.gym.traces.items import argument_texts, assistant_text, function_calls

PathReason = Literal["", "named", "answer", "contains", "earlier", "latest"]

WHY_PATH: dict[PathReason, str] = {
    "named": "The agent named this call in finish.",
    "answer": "The reply of this call is the answer of finish.",
    "contains": "Only this conversation contains the answer of finish.",
    "earlier": "A call before this one wrote the answer of finish.",
    "latest": "This conversation ended last.",
}
AMBIGUOUS = "No call wrote the answer of finish, so this may be another conversation."


class Graph(Protocol):
    """What the rules read of a `TraceGraph`."""

    events: list[TraceUnion]
    calls: dict[int, ModelCall]
    is_line: bool

    @property
    def leaves(self) -> list[int]: ...
    def path(self, call: int) -> list[int]: ...
    def ended_at(self, call: int) -> tuple[float, int]: ...
    def is_aside(self, call: int) -> bool: ...


class MainPath(NamedTuple):
    """The last call of the main path, 0 without calls. The reason is empty if there is no choice."""

    leaf: int
    reason: PathReason = ""
    ambiguous: bool = False


def choose_path(graph: Graph) -> MainPath:
    """Return the main path of an attempt by the rules of this module."""
    end = next((one for one in reversed(graph.events) if isinstance(one, AgentEnd) and one.command == "finish"), None)
    if end is not None and end.call in graph.calls:
        return MainPath(end.call, "named")
    leaves = sorted(graph.leaves, key=graph.ended_at)
    if not leaves:
        return MainPath(0)
    own = [leaf for leaf in leaves if not graph.is_aside(leaf)]
    answer = end.answer.strip() if end is not None else ""
    if graph.is_line or not answer:
        return MainPath((own or leaves)[-1], "latest" if len(leaves) > 1 else "")
    texts = _Texts(graph, answer)
    for candidates in (own, [leaf for leaf in leaves if leaf not in own]):
        if found := _find(candidates, texts, graph.path):
            return found
    return MainPath((own or leaves)[-1], "latest", ambiguous=True)


def _find(leaves: list[int], texts: "_Texts", path: Callable[[int], list[int]]) -> MainPath | None:
    if equal := [leaf for leaf in leaves if texts.equals(leaf)]:
        return MainPath(equal[-1], "answer")
    if texts.of_one_lineage(holding := [leaf for leaf in leaves if texts.contains(leaf)]):
        return MainPath(holding[-1], "contains")
    for holds in (texts.equals, texts.contains):
        known = cache(holds)  # Paths share calls.
        earlier = [leaf for leaf in leaves if any(map(known, path(leaf)[:-1]))]
        if earlier and (holds == texts.equals or texts.of_one_lineage(earlier)):
            return MainPath(earlier[-1], "earlier")
    return None


class _Texts:
    """Compares an answer with what calls wrote."""

    def __init__(self, graph: Graph, answer: str) -> None:
        self._graph = graph
        self._forms = answer_forms(answer)
        self._answer = normalize_answer(answer)

    def equals(self, call: int) -> bool:
        return any(
            not self._forms.isdisjoint(answer_forms(text)) for text in self._written(call) if self._may_equal(text)
        )

    def _may_equal(self, text: str) -> bool:
        """Return False if a text cannot contain the answer. Only markup and JSON have forms that the text does not."""
        if len(text) > MAX_NORMALIZED or "\\" in text or text.lstrip().startswith(("{", "[", "`")):
            return True
        normalized = normalize_answer(text)
        return any(form in normalized for form in self._forms)

    def contains(self, call: int) -> bool:
        return any(holds_answer(normalize_answer(text), self._answer) for text in self._written(call))

    def of_one_lineage(self, leaves: list[int]) -> bool:
        return len({self._graph.calls[leaf].lineage for leaf in leaves}) == 1

    def _written(self, call: int) -> Iterator[str]:
        items: Sequence[dict[str, object]] = self._graph.calls[call].items
        if text := assistant_text(list(items)):
            yield text
        for one in function_calls(list(items)):
            yield from argument_texts(one)
