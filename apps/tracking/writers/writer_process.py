"""Run one writer: read a request as JSON from standard input, and write its result as JSON to standard output.

Usage: writer_process.py MODULE. The result is `{"result": …}`, `{"missing": "package"}`, or `{"error": "message"}`.
"""

import importlib
import json
import os
import sys
from typing import Any


def run(module: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the result of the module's `write`."""
    try:
        return {"result": importlib.import_module(module).write(request)}
    except ModuleNotFoundError as problem:
        return {"missing": problem.name or module}
    except Exception as problem:
        # The packages raise errors of many kinds. All of them end this attempt.
        return {
            "error": f"{type(problem).__name__}: {problem}",
            "is_final": bool(getattr(problem, "is_final", False)),
            "status": getattr(getattr(problem, "response", None), "status_code", None),
        }


def main() -> None:
    # The packages print messages. Only the result goes to the original standard output.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = run(sys.argv[1], json.load(sys.stdin))
    json.dump(answer, results)
    results.flush()
    # Threads and exit hooks of the packages must not delay the end.
    os._exit(0)


if __name__ == "__main__":
    main()
