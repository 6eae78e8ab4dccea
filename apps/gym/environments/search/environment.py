"""Search: two tools over an encyclopaedia; the answer must be right, and its sources those that say so."""

import re
from typing import Any, ClassVar

import orjson

from apps.gym.environments.protocol import ToolRefused, unknown_tool
from apps.gym.environments.search import index
from apps.gym.environments.search.documents import write_documents
from apps.gym.errors import VerifierError
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json, function_calls, item_type, text_of
from apps.gym.verifiers.answer_extraction import excerpt
from apps.gym.verifiers.text.exact_match import normalise

TOOLS: list[Tool] = [
    {
        "type": "function",
        "name": "search",
        "description": "Search the encyclopaedia of the Lantern Isles by words. Gives ids, titles and excerpts.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "For example mayor of Dunarford"},
                "limit": {"type": "integer", "minimum": 1, "maximum": index.MOST_FOUND, "description": "Usually 5"},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        "strict": False,
    },
    {
        "type": "function",
        "name": "read_document",
        "description": "Read one entry whole, by its id.",
        "parameters": {
            "type": "object",
            "properties": {"id": {"type": "string", "description": "As the search gives it, for example t12"}},
            "required": ["id"],
            "additionalProperties": False,
        },
        "strict": True,
    },
]
_USUAL_LIMIT = 5
_LONGEST_ANSWER = 200
_ANSWER = re.compile(r"^[ \t*_]*answer[ \t*_]*:[ \t*_]*([^\n]*)$", re.IGNORECASE | re.MULTILINE)
_SOURCES = re.compile(r"^[ \t*_]*sources?[ \t*_]*:([^\n]*)$", re.IGNORECASE | re.MULTILINE)
_FOR_ANSWER = 0.75


class Search:
    """Keeps nothing of an attempt: what was opened is read from its calls."""

    name: ClassVar[str] = "search"
    description: ClassVar[str] = (
        "Tools search and read_document over an encyclopaedia. 0.75 for the row's expected_answer, and up to 0.25 more "
        "for naming as sources the entries that say so, and no others."
    )
    tools: ClassVar[list[Tool]] = TOOLS
    needs: ClassVar[frozenset[str]] = frozenset({"expected_answer", "expected_sources"})
    quick: ClassVar[bool] = True
    asks_judge: ClassVar[bool] = False
    find_problem = staticmethod(index.find_problem)

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        if name == "search":
            return self._search(arguments)
        if name == "read_document":
            return self._read(arguments)
        raise unknown_tool(name, self.tools)

    def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        expected, wanted = self.row.get("expected_answer"), self.row.get("expected_sources")
        if not isinstance(expected, str) or not isinstance(wanted, list) or not wanted:
            told = "`expected_answer` must be text and `expected_sources` a list of ids"
            raise VerifierError(f"the task row's {told}").lasting()
        output = list(response.get("output") or [])
        text = _last_message(output)
        answers = _ANSWER.findall(text)
        answer = answers[-1].strip().strip("*_ ") if answers else ""
        right = len(answer) <= _LONGEST_ANSWER and normalise(answer) == normalise(expected)
        named = set(re.findall(r"\w+", " ".join(_SOURCES.findall(text)[-1:])))
        # Named without having been opened, a source is a guess.
        overlap = len(named & opened(output) & set(map(str, wanted)))
        precision, recall = overlap / len(named) if named else 0.0, overlap / len(wanted)
        sources = 2 * precision * recall / (precision + recall) if overlap else 0.0
        verb = "is" if right else "is not"
        return Reward(
            value=right * (_FOR_ANSWER + (1 - _FOR_ANSWER) * sources),
            components={"answer": float(right), "sources": sources, "precision": precision, "recall": recall},
            explanation=f"answer {excerpt(answer)!r} {verb} {expected!r}; sources {sources:.2f}",
            details={"extracted_answer": excerpt(answer), "expected_answer": expected},
        )

    def _search(self, arguments: dict[str, Any]) -> str:
        query, limit = arguments.get("query"), arguments.get("limit", _USUAL_LIMIT)
        if not isinstance(query, str) or set(arguments) - {"query", "limit"}:
            raise ToolRefused("bad_arguments", 'search takes {"query": "words"} and, if wanted, a "limit"')
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= index.MOST_FOUND:
            raise ToolRefused("bad_arguments", f"the limit must be a whole number from 1 to {index.MOST_FOUND}")
        found = index.find_documents(query, limit=limit)
        return dump_json([{"id": one.id, "title": one.title, "excerpt": shown} for one, shown in found])

    def _read(self, arguments: dict[str, Any]) -> str:
        place = arguments.get("id")
        if not isinstance(place, str) or len(arguments) != 1:
            raise ToolRefused("bad_arguments", 'read_document takes one argument, {"id": "t12"}')
        document = write_documents().get(place)
        if document is None:
            raise ToolRefused("not_found", f"there is no entry {cut(place, 40)!r}; the search gives ids")
        return dump_json(document._asdict())


def opened(output: list[Item]) -> set[str]:
    """The entries that were read in this attempt: those calls were answered."""
    answered = {item.get("call_id") for item in output if item.get("type") == "function_call_output"}
    found = set()
    for call in function_calls(output):
        if call.get("name") != "read_document" or call.get("call_id") not in answered:
            continue
        try:
            arguments = orjson.loads(str(call.get("arguments") or "{}"))
        except orjson.JSONDecodeError:
            continue
        # As the tool takes them: a call that it refused has shown nothing.
        if isinstance(arguments, dict) and arguments.keys() == {"id"} and isinstance(arguments["id"], str):
            found.add(arguments["id"])
    return found


def _last_message(output: list[Item]) -> str:
    for item in reversed(output):
        if item_type(item) == "message" and item.get("role") == "assistant":
            return text_of(item)
    return ""
