"""Token IDs and logprobs of multi-turn rollouts are exactly what the server read, sampled and computed."""

from collections import Counter
from statistics import fmean

import pytest

from apps.gym.traces.segments import check_prefixes, join_calls
from tests.vllm.serving import Bench, Vllm
from tests.vllm.traces import model_calls

pytestmark = pytest.mark.slow
SCORED = 40
CONTEXT = 1024


@pytest.fixture
def stored(bench: Bench, half: Vllm):
    """The packed tokens of 200 rollouts' calls. The weaker checkpoint also writes what nobody would write."""
    report = bench.collect("sums", "half", "--repeats", 2, "--seats", 32, "--seed", 11)
    assert (report["completed"], report["failed"]) == (200, 0)
    return [[call.tokens for call in own] for own in model_calls(bench.installation, report["collection"]).values()]


def test_every_call_is_captured_and_all_but_named_breaks_join_exactly(stored, half: Vllm, show) -> None:
    multi_turn = [own for own in stored if len(own) > 1]
    figures = [check_prefixes(own) for own in multi_turn]
    breaks = [own for one in figures for own in one.breaks]
    compared = 0
    differences: list[float] = []
    for own in multi_turn:
        segments = join_calls(own)
        assert [call for segment in segments for call in segment.calls] == list(range(1, len(own) + 1))
        for segment in segments:
            assert len(segment.input_ids) == len(segment.mask) == len(segment.logprobs)
        # The server scores what leaves it room for one more token.
        if compared < SCORED and max(len(segment.input_ids) for segment in segments) < CONTEXT:
            compared += 1
            for segment in segments:
                scores = score(half, list(segment.input_ids))
                for place, sampled in enumerate(segment.mask):
                    if sampled:
                        differences.append(abs(segment.logprobs[place] - scores[place]))
    show(
        multi_turn_rollouts=len(multi_turn),
        calls=sum(one.calls for one in figures),
        captured=sum(one.captured for one in figures),
        exact_continuations=sum(one.exact for one in figures),
        breaks=len(breaks),
        breaks_within=dict(Counter(own.within for own in breaks)),
        segments=sum(one.segments for one in figures),
        whole_rollouts=sum(one.is_whole for one in figures),
        generated_tokens=sum(one.generated for one in figures),
        rollouts_scored_again=compared,
        tokens_scored_again=len(differences),
        mean_difference_of_a_logprob=round(fmean(differences), 6),
        largest_difference_of_a_logprob=round(max(differences), 6),
    )
    assert len(multi_turn) >= 100
    assert sum(one.captured for one in figures) == sum(one.calls for one in figures)
    assert sum(one.exact for one in figures) + len(breaks) + len(figures) == sum(one.calls for one in figures)
    # The template never rewrites history: replies that are written back or are empty break.
    assert {own.within for own in breaks} <= {"reply", "again"}
    assert len(breaks) <= 0.1 * sum(one.calls for one in figures)
    assert len(differences) > 500
    # The server computes in other batches and other kernels then; another token would differ by whole units.
    assert fmean(differences) < 1e-3
    assert max(differences) < 0.1


def score(server: Vllm, ids: list[int]) -> list[float]:
    """The logprob of each of these ids after those before it, as the server computes them from the ids alone."""
    reply = server.post("/completions", {"prompt": ids, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0.0})
    [choice] = reply["choices"]
    scored = choice["prompt_logprobs"]
    assert len(scored) == len(ids)
    return [0.0] + [scored[place][str(own)]["logprob"] for place, own in enumerate(ids) if place]
