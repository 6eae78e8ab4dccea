"""Search: two tools over an encyclopaedia. The answer must be correct, and its sources must support it."""

import re
import sqlite3
import threading
from functools import lru_cache
from typing import Any, ClassVar

from apps.gym.environments.protocol import BuiltinEnvironment, ToolRefused, read_single_text
from apps.gym.environments.search.world import Document, write_documents
from apps.gym.errors import VerifierError
from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, Tool, answered_calls, dump_json, last_assistant_text
from apps.gym.verifiers.answer_extraction import excerpt
from apps.gym.verifiers.text.exact_match import normalise

MOST_FOUND = 10
_MOST_WORDS = 16
_LONGEST_WORD = 40
_LONGEST_QUERY = 2_000
_SMALL_WORDS = frozenset(
    ("a", "an", "and", "by", "does", "for", "in", "is", "it", "of", "on", "or", "the", "to", "was")
)
"""Words that occur in nearly every entry. They carry no information and cost the most time."""

# One connection for all threads is enough: a search takes a fraction of a millisecond.
_lock = threading.Lock()


@lru_cache(maxsize=1)
def _connect() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute(
        "CREATE VIRTUAL TABLE pages USING fts5(id UNINDEXED, title, text, tokenize = 'porter unicode61')"
    )
    connection.executemany("INSERT INTO pages VALUES (?, ?, ?)", write_documents().values())
    connection.commit()
    return connection


def find_problem() -> str:
    """Return why search does not work on this machine, or an empty text."""
    try:
        find_documents("town", limit=1)
    except sqlite3.Error as problem:
        return f"SQLite on this machine has no full-text search: {problem}"
    return ""


def find_documents(query: str, *, limit: int) -> list[tuple[Document, str]]:
    """Return the entries that match most of the words, best first, each with an excerpt."""
    words = [
        word[:_LONGEST_WORD]
        for word in re.findall(r"[^\W_]+", query[:_LONGEST_QUERY])
        if word.lower() not in _SMALL_WORDS
    ]
    if not words:
        return []
    # Quoted, so that no word is an operator.
    match = " OR ".join(f'"{word}"' for word in dict.fromkeys(words[:_MOST_WORDS]))
    documents = write_documents()
    statement = (
        "SELECT id, snippet(pages, 2, '', '', '…', 24) FROM pages WHERE pages MATCH ? "
        "ORDER BY bm25(pages, 0.0, 4.0, 1.0), rowid LIMIT ?"
    )
    with _lock:
        rows = _connect().execute(statement, (match.encode(errors="replace").decode(), limit)).fetchall()
    return [(documents[place], excerpt) for place, excerpt in rows]


TOOLS: list[Tool] = [
    {
        "type": "function",
        "name": "search",
        "description": "Search the encyclopaedia of the Lantern Isles by words. Gives ids, titles and excerpts.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "For example mayor of Dunarford"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "description": "Usually 5"},
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


class Search(BuiltinEnvironment):
    """A stateless environment: the opened documents are read from the calls."""

    name: ClassVar[str] = "search"
    description: ClassVar[str] = (
        "Two tools, search and read_document, work on an encyclopaedia. Reward 0.75 for the expected answer, plus up "
        "to 0.25 for citing exactly the entries that contain it."
    )
    tools: ClassVar[list[Tool]] = TOOLS
    needs: ClassVar[frozenset[str]] = frozenset({"expected_answer", "expected_sources"})
    find_problem = staticmethod(find_problem)

    def verify(self, response: dict[str, Any]) -> Reward:
        expected, wanted = self.row.get("expected_answer"), self.row.get("expected_sources")
        if not isinstance(expected, str) or not isinstance(wanted, list) or not wanted:
            told = "`expected_answer` must be text and `expected_sources` a list of ids"
            raise VerifierError(f"the task row's {told}").permanent()
        output = list(response.get("output") or [])
        text = last_assistant_text(output)
        answers = _ANSWER.findall(text)
        answer = answers[-1].strip().strip("*_ ") if answers else ""
        right = len(answer) <= _LONGEST_ANSWER and normalise(answer) == normalise(expected)
        named = set(re.findall(r"\w+", " ".join(_SOURCES.findall(text)[-1:])))
        # A source that was named but never opened is a guess.
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

    def search(self, arguments: dict[str, Any]) -> str:
        query, limit = arguments.get("query"), arguments.get("limit", _USUAL_LIMIT)
        if not isinstance(query, str) or set(arguments) - {"query", "limit"}:
            raise ToolRefused("bad_arguments", 'search takes {"query": "words"} and, if wanted, a "limit"')
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_FOUND:
            raise ToolRefused("bad_arguments", f"the limit must be a whole number from 1 to {MOST_FOUND}")
        found = find_documents(query, limit=limit)
        return dump_json([{"id": one.id, "title": one.title, "excerpt": shown} for one, shown in found])

    def read_document(self, arguments: dict[str, Any]) -> str:
        place = read_single_text(arguments, "id", 'read_document takes one argument, {"id": "t12"}')
        document = write_documents().get(place)
        if document is None:
            raise ToolRefused("not_found", f"there is no entry {cut(place, 40)!r}; the search gives ids")
        return dump_json(document._asdict())


def opened(output: list[Item]) -> set[str]:
    """Return the ids of the entries that were opened. A call that the tool refused does not count."""
    given = (arguments for name, arguments in answered_calls(output) if name == "read_document")
    return {one["id"] for one in given if one.keys() == {"id"} and isinstance(one["id"], str)}
