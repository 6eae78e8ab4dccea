"""Full-text search over the encyclopaedia, with SQLite's FTS5, in memory, once for the whole process."""

import re
import sqlite3
import threading
from functools import lru_cache

from apps.gym.environments.search.documents import Document, write_documents

MOST_FOUND = 10
_MOST_WORDS = 16
_LONGEST_WORD = 40
_LONGEST_QUERY = 2_000
_SMALL_WORDS = frozenset(
    ("a", "an", "and", "by", "does", "for", "in", "is", "it", "of", "on", "or", "the", "to", "was")
)
"""In nearly every entry: they tell nothing and cost the most."""

# One connection for all threads: a search takes a fraction of a millisecond.
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
    """Why nothing can be searched; empty where it can."""
    try:
        find_documents("town", limit=1)
    except sqlite3.Error as problem:
        return f"SQLite on this machine has no full-text search: {problem}"
    return ""


def find_documents(query: str, *, limit: int) -> list[tuple[Document, str]]:
    """The entries that have most of the words, the best first, each with an excerpt around them."""
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
