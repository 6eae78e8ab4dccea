#!/usr/bin/env python
"""Measure the CPU time of a verdict of each verifier with a table of pairs, in this checkout or another one.

`python scripts/measure_verdicts.py [CHECKOUT]` prints a JSON object per verifier, with microseconds. Each verdict
counts with its fastest of three runs; math-verify forgets what it parsed before each.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
ROUNDS = 3


def main(checkout: str = "") -> None:
    # The verifiers of the other checkout, the pairs of this one.
    sys.path[:0] = [str(Path(checkout or HERE).resolve()), str(HERE / "tests" / "gym" / "verifiers")]
    from choice_forms import read_forms  # type: ignore[import-not-found]
    from math_verify.parser import parse_latex_cached
    from pairs import read_pairs  # type: ignore[import-not-found]

    from apps.gym.errors import VerifierError
    from apps.gym.verifiers.registry import read_verifier

    kinds = ("exact_match", "math", "numeric", "string_match")
    tables: dict[str, list[tuple[dict[str, Any], dict[str, Any], str]]] = {
        kind: [({"type": kind}, {"expected_answer": pair.expected}, pair.reply) for pair in read_pairs(kind)]
        for kind in kinds
    }
    tables["multiple_choice"] = [
        (
            {"type": "multiple_choice", "mode": form.mode},
            {"options": form.options, "expected_answer": form.expected, "template_metadata": form.metadata},
            form.reply,
        )
        for form in read_forms()
    ]
    for kind, table in tables.items():
        costs = []
        for given, row, reply in table:
            verifier = read_verifier(given)
            content = [{"type": "output_text", "text": reply, "annotations": []}]
            response = {"output": [{"type": "message", "role": "assistant", "content": content}]}
            took = []
            for _ in range(ROUNDS):
                parse_latex_cached.cache_clear()
                began = time.process_time_ns()
                try:
                    verifier.verify(row, response)
                except VerifierError:
                    continue
                took.append((time.process_time_ns() - began) / 1_000)
            costs += [min(took)] if took else []
        figures = {"median_us": statistics.median(costs), "mean_us": statistics.fmean(costs)}
        print(json.dumps({"verifier": kind, "verdicts": len(costs), **{k: round(v, 1) for k, v in figures.items()}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
