"""Card on the page of a policy model: the last check of its captured log probabilities."""

from datetime import datetime
from typing import Any

from apps.policies.models import PolicyModel

_LABELS = {
    "grammar": "tokens that a grammar may have forced",
    "other_version": "tokens of another version",
    "processed_temperature": "tokens with processed logprobs of a temperature other than 1",
    "not_scored": "sequences without a score",
    "tokens_unreadable": "rollouts with unreadable tokens",
}


def logprob_context(policy_model: PolicyModel) -> dict[str, Any]:
    """Return `logprobs`: the stored check with its time, rows of (label, all tokens, uncertain tokens), and texts."""
    check = policy_model.logprob_check
    if check is None:
        return {"logprobs": None}
    every, uncertain = check["figures"]["every"], check["figures"]["uncertain"]
    rows = [("Tokens", f"{every['tokens']:,}", f"{uncertain['tokens']:,}")]
    for name, label in (("largest", "Largest"), ("p99", "99th percentile"), ("mean", "Mean")):
        rows.append((label, _nats(every[name]), _nats(uncertain[name])))
    rows += [
        (f"Above {limit}", _share(share), _share(uncertain["above"].get(limit)))
        for limit, share in every["above"].items()
    ]
    outside = [f"{_share(share)} outside 1 ± {limit}" for limit, share in check["figures"]["ratio_outside"].items()]
    left_out = [f"{count:,} {_LABELS.get(reason, reason)}" for reason, count in check["left_out"].items()]
    shown = {**check, "at": datetime.fromisoformat(check["at"]), "rows": rows if every["tokens"] else []}
    return {"logprobs": {**shown, "outside": ", ".join(outside), "not_compared": ", ".join(left_out)}}


def _nats(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _share(value: float | None) -> str:
    """Return two significant digits of a percentage, without an exponent."""
    return "–" if value is None else f"{float(format(100 * value, '.2g')):g} %"
