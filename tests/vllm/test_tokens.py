"""Token IDs and logprobs of multi-turn rollouts are exactly what the server read, sampled and computed."""

from collections import Counter
from statistics import fmean

import pytest

from apps.gym.exporters.captured_rows import join_attempt
from apps.gym.exporters.protocol import Attempt, Options
from apps.gym.traces.segments import check_prefixes, join_calls, stored_tokens
from tests.vllm.serving import Bench, Vllm
from tests.vllm.traces import model_calls

pytestmark = pytest.mark.slow
SCORED = 40
CONTEXT = 1024


@pytest.fixture
def calls(bench: Bench, half: Vllm):
    """The calls of 200 rollouts without a grammar. The weaker checkpoint also samples unlikely tokens."""
    bench.installation.plan(agents={"free": {"strict_tools": "never"}})
    report = bench.collect("sums", "half", "--agent", "free", "--repeats", 2, "--seats", 32, "--seed", 11)
    assert (report["completed"], report["failed"]) == (200, 0)
    return list(model_calls(bench.installation, report["collection"]).values())


def test_every_call_is_captured_and_all_but_named_breaks_join_exactly(calls, half: Vllm, show) -> None:
    multi_turn = [own for own in calls if len(own) > 1]
    figures = [check_prefixes(stored_tokens(own)) for own in multi_turn]
    breaks = [own for one in figures for own in one.breaks]
    compared = 0
    differences: list[float] = []
    for own in multi_turn:
        segments = join_calls(stored_tokens(own))
        assert [call for segment in segments for call in segment.calls] == list(range(1, len(own) + 1))
        for segment in segments:
            assert len(segment.input_ids) == len(segment.mask) == len(segment.logprobs)
        # The server scores what leaves it room for one more token.
        if compared < SCORED and max(len(segment.input_ids) for segment in segments) < CONTEXT:
            trained = [
                segment for segment, _ in join_attempt(Attempt(events=list(own), task={}, reward=0.0), Options())
            ]
            compared += any(any(segment.mask) for segment in trained)
            for segment in trained:
                scores = score(half, list(segment.input_ids))
                for place, is_trained in enumerate(segment.mask):
                    if is_trained:
                        differences.append(abs(segment.logprobs[place] - scores[place]))
    show(
        multi_turn_rollouts=len(multi_turn),
        calls=sum(one.calls for one in figures),
        captured=sum(one.captured for one in figures),
        calls_with_grammar=sum(call.grammar for own in multi_turn for call in own),
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
    # The tokens of calls with a grammar are masked: their logprobs would differ by whole units.
    assert max(differences) <= 1e-3


def test_calls_with_strict_tools_are_not_trained_on(bench: Bench, half: Vllm) -> None:
    report = bench.collect("sums", "half", "--limit", 10, "--seed", 11)
    for own in model_calls(bench.installation, report["collection"]).values():
        assert all(call.grammar and call.tokens for call in own)
        attempt = Attempt(events=list(own), task={}, reward=0.0)
        assert not any(any(segment.mask) for segment, _ in join_attempt(attempt, Options()))
        kept = join_attempt(attempt, Options(grammar_calls="keep"))
        assert all(any(segment.mask) for segment, _ in kept)


def score(server: Vllm, ids: list[int]) -> list[float]:
    """The logprob of each of these ids after those before it, as the server computes them from the ids alone."""
    reply = server.post("/completions", {"prompt": ids, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0.0})
    [choice] = reply["choices"]
    scored = choice["prompt_logprobs"]
    assert len(scored) == len(ids)
    return [0.0] + [scored[place][str(own)]["logprob"] for place, own in enumerate(ids) if place]
