"""Fail if a test of the pages asserts a whole sentence, which breaks when the sentence is reworded."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = ("tests/dashboard", "tests/browser")
SENTENCE = re.compile(r"([^\s.?!]+\s+){4,}[^\s.?!]+\.(?!\w)")
"""At least five words that end with a full stop."""


def read_texts(code: ast.AST) -> Iterator[str]:
    """Return the texts in a piece of code; an inserted value counts as one word."""
    if isinstance(code, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in code.values)
    elif isinstance(code, ast.Constant):
        yield str(code.value)
    else:
        for child in ast.iter_child_nodes(code):
            yield from read_texts(child)


def find_sentences(path: Path) -> Iterator[str]:
    """Return a message for each sentence in an `assert` or in `expect(…).to_…(…)`."""
    for node in ast.walk(ast.parse(path.read_text())):
        called = node.func if isinstance(node, ast.Call) else None
        is_matcher = isinstance(called, ast.Attribute) and called.attr.startswith(("to_", "not_to_"))
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and is_matcher):
            yield from (f"{path}:{node.lineno}: {text!r}" for text in read_texts(node) if SENTENCE.search(text))


if __name__ == "__main__":
    found = [message for folder in TESTS for path in Path(folder).glob("*.py") for message in find_sentences(path)]
    print("\n".join(found), end="\n" if found else "")
    sys.exit("Assert a number, a name, a data-testid or a phrase of at most four words." if found else 0)
