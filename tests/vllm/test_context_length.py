"""Tasks that outgrow the 400 tokens of the server's context."""

import pytest

from scripts.tiny_policy.tasks import draw_rows
from tests.vllm.serving import Bench, Vllm

pytestmark = pytest.mark.slow


def test_rollouts_that_outgrow_the_context_stop_there_and_none_fails(bench: Bench, strong: Vllm, show) -> None:
    rows = draw_rows(40, seed=9, held_out=True)
    for number, row in enumerate(rows):
        question = row["responses_create_params"]["input"][-1]
        question["content"] = "Please calculate. " * (4 * number) + question["content"]
    bench.upload("long-sums", rows)
    report = bench.collect("long-sums", "strong", "--seats", 16)
    mine = f"FROM rollouts_rollout WHERE collection_id = {report['collection']}"
    reasons = dict(bench.installation.rows(f"SELECT stop_reason, count(*) {mine} GROUP BY 1"))
    show(stop_reasons=reasons)
    assert (report["completed"], report["failed"], report["errors"]) == (40, 0, {})
    # Between those that fit and those that do not are some that leave room for a part of the reply.
    assert set(reasons) <= {"answered", "context_length", "max_output_tokens"}
    assert reasons["answered"] >= 3
    assert reasons["context_length"] >= 10
