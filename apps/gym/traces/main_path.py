"""Choose the main path of an attempt: the conversation that verifiers, reviewers, pairs and exports read.

It ends at one call, by the first rule that fits:

1. `named`: the call that the agent names in `finish`.
2. `answer`: a leaf whose reply is the answer of `finish`: the same text or JSON; else a text in which verifiers find
   the answer; else a tool call or JSON with the answer as a value. Of several, the latest.
3. `earlier`: the latest leaf with such a call before it: the conversation went on after the answer.
4. `contains`: the leaf whose reply contains the answer. Of several of one lineage, the latest: each edit of a history
   leaves an earlier leaf behind. The path is ambiguous if other lineages contain it, too, or if there are other ones
   and it has less than 3 characters. If no leaf contains it, the same holds for the calls before the leaves.
5. `latest`: the leaf that completed last. If the agent gave an answer, the path is ambiguous, since no call of it holds
   the answer.

A leaf is a call that no other call continues. Leaves that the client declared as `main` precede all others. Leaves of
auxiliary calls and of subagents count only if no other leaf fits the rule.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal, NamedTuple, Protocol

from apps.gym.answer_texts import holds_answer, is_answer_of, is_same_text, normalize_answer, read_json_answer
from apps.gym.traces.events import AgentEnd, ModelCall, TraceUnion
from apps.gym.traces.items import assistant_text, call_arguments, function_calls, inner_values

SHORTEST_HELD = 3
"""Characters of an answer that may identify a conversation because only its reply contains it."""

PathReason = Literal["", "named", "answer", "contains", "earlier", "latest"]

WHY_PATH: dict[PathReason, str] = {
    "named": "The agent named this call in finish.",
    "answer": "The reply of this call is the answer of finish.",
    "contains": "Only this conversation contains the answer of finish.",
    "earlier": "A call before this one wrote the answer of finish.",
    "latest": "This conversation ended last.",
}
AMBIGUOUS = "No call surely wrote the answer of finish, so the agent may mean another conversation."


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
    def is_declared_main(self, call: int) -> bool: ...


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
    own = [leaf for leaf in own if graph.is_declared_main(leaf)] or own
    answer = end.answer.strip() if end is not None else ""
    if graph.is_line or not answer:
        return MainPath((own or leaves)[-1], "latest" if len(leaves) > 1 else "")
    groups = [own, [leaf for leaf in leaves if leaf not in own]]
    found = next(_find(graph, groups, answer), None)
    return found or MainPath((own or leaves)[-1], "latest", ambiguous=True)


def _find(graph: Graph, groups: list[list[int]], answer: str) -> Iterator[MainPath]:
    """Yield the paths that fit the rules 2 to 4, best first."""
    tests: list[Callable[[int], bool]] = [
        cache(lambda call: any(is_same_text(text, answer) for text in _texts(graph.calls[call]))),
        cache(lambda call: any(is_answer_of(answer, text) for text in _texts(graph.calls[call]))),
        cache(lambda call: any(is_same_text(value, answer) for value in _values(graph.calls[call]))),
    ]
    for is_answer in tests:
        for leaves in groups:
            if equal := [leaf for leaf in leaves if is_answer(leaf)]:
                yield MainPath(equal[-1], "answer")
    for is_answer in tests:
        for leaves in groups:
            if earlier := [leaf for leaf in leaves if any(map(is_answer, graph.path(leaf)[:-1]))]:
                yield MainPath(earlier[-1], "earlier")
    short = normalize_answer(answer)

    @cache
    def holds(call: int) -> bool:
        written = (*_texts(graph.calls[call]), *_values(graph.calls[call]))
        return any(holds_answer(normalize_answer(text), short) for text in written)

    def is_clear(holding: list[int], leaves: list[int]) -> bool:
        lineages, others = ({graph.calls[leaf].lineage for leaf in some} for some in (holding, leaves))
        return len(lineages) == 1 and (len(short) >= SHORTEST_HELD or len(others) == 1)

    for leaves in groups:
        if holding := [leaf for leaf in leaves if holds(leaf)]:
            yield MainPath(holding[-1], "contains", ambiguous=not is_clear(holding, leaves))
    for leaves in groups:
        earlier = [leaf for leaf in leaves if any(map(holds, graph.path(leaf)[:-1]))]
        if is_clear(earlier, leaves):
            yield MainPath(earlier[-1], "earlier")


def _texts(call: ModelCall) -> Iterator[str]:
    if text := assistant_text(call.items):
        yield text


def _values(call: ModelCall) -> Iterator[str]:
    """Yield the values in tool calls and JSON of a reply, and whole arguments, as texts."""
    told = [call_arguments(one) for one in function_calls(call.items)]
    told += [json.loads(found) for text in _texts(call) if (found := read_json_answer(text))]
    for value in told:
        for one in inner_values(value):
            yield one if isinstance(one, str) else json.dumps(one)
        yield json.dumps(value)
