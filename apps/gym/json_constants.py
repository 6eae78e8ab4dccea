"""NaN and infinities in JSON: some servers and files have them, although JSON has no such numbers."""

import re

_CONSTANT = re.compile(rb"-?(?:NaN|Infinity)")
# Strings are matched so that constants inside them are skipped.
_PARTS = re.compile(rb'"(?:[^"\\]++|\\.)*+"(?P<open>\s*:\s*[\[{](?!\s*[\]}]))?|-?(?:NaN|Infinity)', re.DOTALL)
_ARGUMENTS = (b'"arguments"', b'"input"')
_LOGPROBS = re.compile(rb'"(?:generation_log_probs|logprobs)"\s*:\s*\[[^\["{\]]*\]')


def null_constants(body: bytes) -> bytes:
    """Return a reply with null for each constant, or unchanged if a call has an object: null may be another action."""
    if b"NaN" not in body and b"Infinity" not in body:
        return body
    if any(part["open"] and part[0].startswith(_ARGUMENTS) for part in _PARTS.finditer(body)):
        return body
    return _PARTS.sub(lambda part: part[0] if part[0].startswith(b'"') else b"null", body)


def null_logprobs(line: bytes) -> bytes:
    """Return a row of a file with null for each constant in its lists of log probabilities."""
    return _LOGPROBS.sub(lambda logprobs: _CONSTANT.sub(b"null", logprobs[0]), line)
