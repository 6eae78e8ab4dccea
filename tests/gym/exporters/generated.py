"""Attempts as models make them: any number of turns, with thoughts, texts, parallel calls, odd arguments."""

from typing import Any

import orjson
from hypothesis import strategies as st

from apps.gym.traces.events import EnvironmentTurn, SessionOpened, ToolResult, TraceUnion
from apps.gym.traces.items import message
from tests.gym.exporters.attempts import PROMPT, TOOLS
from tests.gym.traces import call, said, thought, trace, turn, with_tokens

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(lambda text: text.strip())
scalars = st.one_of(st.integers(-(2**53), 2**53), st.floats(-1e9, 1e9), st.booleans(), texts, st.just(""), st.none())
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5
)
arguments = st.dictionaries(texts, values, max_size=3).map(lambda found: orjson.dumps(found).decode())
MALFORMED = ["{oops", "[1, 2]", "7", '{"a": NaN}']


@st.composite
def attempts(draw: st.DrawFn, *, malformed: bool = False, tokens: bool = False) -> list[TraceUnion]:
    """A whole trace that ends with an answer."""
    events: list[TraceUnion] = []
    for number in range(draw(st.integers(0, 4))):
        thoughts = [thought(draw(texts))] if draw(st.booleans()) else []
        words = [said(draw(texts))] if draw(st.booleans()) else []
        if draw(st.booleans()):
            given = st.sampled_from(MALFORMED) if malformed and draw(st.booleans()) else arguments
            calls = [call(draw(given), f"call_{number}_{place}") for place in range(draw(st.integers(1, 3)))]
            events.append(turn(*thoughts, *words, *calls, finish_reason="tool_calls"))
            events += [
                ToolResult(call_id=one["call_id"], name="get_weather", output=draw(st.text(max_size=20)))
                for one in calls
            ]
        else:
            events.append(turn(*thoughts, said(draw(texts))))
            events.append(EnvironmentTurn(items=[message("user", draw(texts))]))
    events.append(turn(*([thought(draw(texts))] if draw(st.booleans()) else []), said(draw(texts))))
    whole = trace(*events, prompt=PROMPT[draw(st.integers(0, 1)) :])
    whole[0] = SessionOpened(environment="weather", tools=TOOLS[: draw(st.integers(0, 2))])
    return with_tokens(whole, *_captured(draw, whole)) if tokens else whole


def _captured(draw: st.DrawFn, events: list[TraceUnion]) -> list[tuple[list[int], list[int]]]:
    """Each prompt goes on from all that was seen before, or, where it breaks, does not."""
    found: list[tuple[list[int], list[int]]] = []
    seen: list[int] = []
    ids = st.lists(st.integers(0, 50_000), min_size=1, max_size=4)
    for _ in (event for event in events if event.__struct_config__.tag == "model_call"):
        prompt = [*seen, *draw(ids)] if draw(st.integers(0, 3)) else draw(ids)
        generation = draw(ids)
        found.append((prompt, generation))
        seen = [*prompt, *generation]
    return found


def as_json(row: dict[str, Any]) -> Any:
    """The row as a reader of the file sees it."""
    return orjson.loads(orjson.dumps(row))
