"""Find numbers that a JSON column of `datasets` would change. tests/trainers checks this with the library."""

import pytest

from apps.gym.exporters.protocol import resolve_options
from apps.gym.exporters.registry import FORMATS
from apps.gym.loadable import holds_only_exact, is_loaded_exactly
from apps.gym.trainability import Dropped
from tests.gym.exporters.attempts import attempt, paris


@pytest.mark.parametrize("number", [0.0, 1.0, -1.0, 0.5, 0.1, 2.5, 37.77, -48.8566, 19.99, 1e9 + 0.5, 123456789.0])
def test_usual_numbers_are_loaded_unchanged(number: float) -> None:
    assert is_loaded_exactly(number)


@pytest.mark.parametrize(
    "number",
    [0.3, 0.6, 0.7, -0.3, 1e-12, 0.12345678901, -0.0, 1e300, 5e-324, 1e22, float("inf"), float("nan")],
)
def test_numbers_that_would_come_out_as_others_are_known(number: float) -> None:
    assert not is_loaded_exactly(number)


def test_a_number_deep_in_a_value_is_found() -> None:
    assert holds_only_exact({"a": [{"b": 0.5}, 3, "0.3", None, True, 2**64]})
    assert not holds_only_exact({"a": [{"b": 0.3}]})


def rows(slug: str, written: str, **options: str) -> list[dict]:
    format = FORMATS[slug]
    return list(format.rows(attempt(paris(arguments=written)), resolve_options(format, options)))


@pytest.mark.parametrize("slug", ["trl_sft", "trl_sft_turns", "trl_kto", "unsloth_sft", "openrlhf_sft"])
def test_such_a_number_in_arguments_drops_the_row_unless_any_is_wanted(slug: str) -> None:
    with pytest.raises(Dropped, match="inexact_numbers"):
        rows(slug, '{"share": 0.3}')
    assert rows(slug, '{"share": 0.25}')
    assert rows(slug, '{"share": 0.3}', numbers="any")


def test_text_keeps_every_number() -> None:
    (row,) = rows("trl_sft", '{"share": 0.3}', arguments="text")
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"share": 0.3}'


@pytest.mark.parametrize("slug", ["nemo_rl_sft", "verl_sft", "axolotl_sft", "llama_factory_sft", "openai_sft"])
def test_trainers_that_read_the_json_themselves_get_every_number(slug: str) -> None:
    assert rows(slug, '{"share": 0.3}')
