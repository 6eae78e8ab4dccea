"""The sampling of a call as it was sent: the fields of a request that change the distribution of its tokens."""

from collections.abc import Mapping
from typing import Any

_UNSET: tuple[Any, ...] = (None, "", [], {})
_AT_ZERO = (
    "dry_multiplier dynatemp_range epsilon_cutoff eta_cutoff frequency_penalty min_new_tokens min_tokens mirostat "
    "min_p no_repeat_ngram_size presence_penalty top_a top_k top_n_sigma use_beam_search watermarking xtc_probability"
)
_AT_ONE = "do_sample repeat_penalty repetition_penalty top_p typical_p"
_IF_SET = (
    "allowed_token_ids bad_words custom_logit_processor generation_config logit_bias logits_processors suppress_tokens "
    "thinking_token_budget"
)
NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(_AT_ZERO.split(), (*_UNSET, 0)),
    **dict.fromkeys(_AT_ONE.split(), (*_UNSET, 1)),
    **dict.fromkeys(_IF_SET.split(), _UNSET),
    **dict.fromkeys(("top_k", "top_n_sigma"), (*_UNSET, 0, -1)),
}
"""Fields that truncate or change the distribution at a temperature, with the values that leave it unchanged."""
_FIELDS = {"temperature", *NEUTRAL}


def read_sent(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the temperature and the fields of NEUTRAL, without nulls."""
    return {name: sampling[name] for name in sampling if name in _FIELDS and sampling[name] is not None}


def as_sent(sampling: dict[str, Any], body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the sampling with those fields as the body of the request has them; the same object if they are equal.

    The body also has the fields of `extra_body`, and lacks fields that its wire cannot hold. `names` maps fields of the
    body that have another name there to ours.
    """
    asked, sent = read_sent(sampling), read_sent(body)
    for theirs in names:
        if theirs in body and names[theirs] in _FIELDS:
            sent[names[theirs]] = body[theirs]
    return sampling if sent == asked else {k: v for k, v in sampling.items() if k not in asked} | sent


def find_altered(sampling: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields whose values truncate or change the distribution."""
    sent = read_sent(sampling)
    return [name for name, neutral in NEUTRAL.items() if name in sent and sent[name] not in neutral]
