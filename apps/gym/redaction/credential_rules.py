"""Rules that find credentials by their format. An expression is tried only on texts that contain its literal.

The formats are narrow on purpose. Traces are full of hashes, UUIDs, long numbers, base64 images and code identifiers,
and a rule for random text would match them. Every expression begins with a literal. Its repeats are bounded, except
possibly the last. So its time is linear in the text.
"""

import re
from collections.abc import Callable

import msgspec

Check = Callable[[str], bool]

# Where a credential may start: not inside a word, but after `-` or `_`, as in names of files and variables, and after
# an escape like `\n` in JSON.
START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_END = r"(?![A-Za-z0-9_-])"
_RUN = re.compile(r"[A-Za-z0-9]+")
_LONG_RUN = 16


def looks_random(text: str) -> bool:
    """Return True if the text has a long run with digits and letters, unlike words and code identifiers."""
    return any(
        len(run) >= _LONG_RUN and any(map(str.isdigit, run)) and any(map(str.isalpha, run))
        for run in _RUN.findall(text)
    )


def has_both_cases(text: str) -> bool:
    """Return True for random letters of both cases, unlike a lower-case name."""
    body = text.rpartition("_")[2]
    return any(map(str.isupper, body)) and any(map(str.islower, body))


class Form(msgspec.Struct, frozen=True):
    """A credential format.

    `literals` are case-sensitive; the expression is tried only on texts with one of them. `hint` is a simpler
    expression for RE2 that finds every match, also inside JSON.

    The group `secret` is replaced, if it exists; otherwise the whole match.
    """

    kind: str
    literals: tuple[str, ...]
    expression: re.Pattern[str]
    hint: str
    check: Check | None = None


def _form(kind: str, literals: str, expression: str, *, hint: str, check: Check | None = None) -> Form:
    return Form(kind, tuple(literals.split()), re.compile(expression), hint, check)


def _prefixed(kind: str, literals: str, tail: str, check: Check | None = None, *, start: str = START) -> Form:
    """Return a form of literal and tail.

    With an empty `start` it also matches inside a word, for unmistakable literals.
    """
    found = f"(?:{'|'.join(map(re.escape, literals.split()))}){tail}"
    # RE2 has no look-around.
    return Form(kind, tuple(literals.split()), re.compile(start + found), found.removesuffix(_END), check)


PRIVATE_KEY = Form(
    "private_key",
    ("PRIVATE KEY",),
    re.compile(
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!----)){32,65536}-----END [A-Z0-9 ]{1,80}-----"
        # A key that was cut off, as in the output of a tool.
        r"|(?:(?:\s|\\{1,8}[nr]){0,16}[A-Za-z0-9+/=]{20,})+)"
    ),
    hint="PRIVATE KEY",
)

FORMS: tuple[Form, ...] = (
    PRIVATE_KEY,
    _form(
        "jwt",
        "eyJ",
        # After `-` or `_` the first part is bounded. Otherwise every match in a long run would read to the run's end.
        rf"(?:(?<![-_]){START}eyJ[A-Za-z0-9_-]{{10,}}|(?<=[-_])eyJ[A-Za-z0-9_-]{{10,512}})"
        r"\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]{8,}){0,2}",
        hint=r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.",
    ),
    _form(
        "bearer",
        "Bearer bearer BEARER",
        r"\b(?:Bearer|bearer|BEARER)(?:\s|%20|\+)+(?P<secret>[A-Za-z0-9._~+/-]{16,4096}=*)",
        check=looks_random,
        hint="(?i:bearer)",
    ),
    _form(
        "url_password",
        "://",
        r"://[^\s/@:\"'<>]{0,128}:(?P<secret>[^\s/@\"'<>{}$*]{1,256})@(?=[A-Za-z0-9_.\[-])",
        hint=r"://[^\s/@\"'<>]*:[^\s/@\"'<>]*@",
    ),
    # -- models
    _prefixed("api_key", "sk- pk-lf-", r"[A-Za-z0-9_-]{20,}", looks_random),
    _prefixed("api_key", "sk-proj- sk-ant- sk-svcacct- sk-or-v1-", r"[A-Za-z0-9_-]{32,}", looks_random, start=""),
    _prefixed("api_key", "sk-lf-", r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    _prefixed("api_key", "nvapi-", r"[A-Za-z0-9_-]{40,}", start=""),
    # One key in 300 has no digits, so `looks_random` would miss it. Its exact length is enough.
    _prefixed("api_key", "hf_ api_org_", rf"[A-Za-z0-9]{{34}}{_END}", has_both_cases),
    _prefixed("api_key", "hf_ xai- gsk_ pplx- r8_", rf"[A-Za-z0-9]{{30,}}{_END}", looks_random),
    _prefixed("api_key", "tgp_v1_ tvly- fw_", r"[A-Za-z0-9_-]{24,}", looks_random),
    _prefixed("api_key", "lsv2_", r"(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    _prefixed("api_key", "AIza", r"[A-Za-z0-9_-]{35}"),
    _prefixed("api_key", "gw_", rf"[0-9a-f]{{12}}_[A-Za-z0-9_-]{{43}}{_END}"),
    # -- code and packages
    _prefixed("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{30,}", start=""),
    _prefixed("github_token", "github_pat_", r"[A-Za-z0-9_]{22,}", looks_random, start=""),
    _prefixed(
        "gitlab_token", "glpat- gldt- glrt-", r"[A-Za-z0-9_-]{20,}", lambda text: any(map(str.isdigit, text)), start=""
    ),
    _prefixed("package_token", "npm_", rf"[A-Za-z0-9]{{36}}{_END}"),
    _prefixed("package_token", "pypi-AgE", r"[A-Za-z0-9_-]{50,}"),
    _prefixed("package_token", "dckr_pat_ dckr_oat_", r"[A-Za-z0-9_-]{20,}"),
    # -- clouds
    _prefixed("aws_key", "AKIA ASIA", rf"[A-Z0-9]{{16}}{_END}"),
    _form("azure_key", "AccountKey=", r"AccountKey=(?P<secret>[A-Za-z0-9+/]{40,}={0,2})", hint="AccountKey="),
    _prefixed("google_token", "ya29. GOCSPX-", r"[A-Za-z0-9_-]{20,}"),
    _prefixed("cloud_token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{64}"),
    _prefixed("cloud_token", "dapi", rf"[0-9a-f]{{32}}(?:-\d)?{_END}"),
    _prefixed("cloud_token", "hvs. hvb.", r"[A-Za-z0-9_-]{24,}"),
    _prefixed("age_key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{50,}"),
    # -- services
    _prefixed("slack_token", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", r"[A-Za-z0-9%-]{16,}"),
    _form(
        "slack_webhook",
        "hooks.slack.com/",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_-]{20,})",
        hint=r"hooks\.slack\.com/",
    ),
    _form(
        "discord_webhook",
        "/webhooks/",
        r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{5,24}/(?P<secret>[A-Za-z0-9_-]{20,})",
        hint="/webhooks/",
    ),
    _form(
        "telegram_token",
        ":",
        rf":(?<=[0-9]{{8}}:)(?P<secret>[A-Za-z0-9_-]{{35}}){_END}",
        check=lambda text: text.startswith("AA") or looks_random(text),
        hint="[0-9]{8}:[A-Za-z0-9_-]{35}",
    ),
    _prefixed("stripe_key", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_", r"[A-Za-z0-9+/]{16,}"),
    _prefixed("sendgrid_key", "SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}"),
    _prefixed("shop_token", "shpat_ shpca_ shppa_ shpss_", r"[0-9a-fA-F]{32}"),
    _prefixed("service_token", "ATATT3", r"[A-Za-z0-9_=-]{50,}"),
    _prefixed("service_token", "PMAK- ntn_ lin_api_", r"[A-Za-z0-9-]{30,}"),
)

# -- names of credential fields -------------------------------------------------------------------------------------

_CERTAIN = (
    r"authorization|proxy[-_]?authorization|api[-_ ]?key|api[-_ ]?token|access[-_ ]?token|refresh[-_ ]?token"
    r"|auth[-_ ]?token|session[-_ ]?token|bearer[-_ ]?token|client[-_ ]?secret|secret[-_ ]?key"
    r"|secret[-_ ]?access[-_ ]?key|private[-_ ]?key|signing[-_]?key|encryption[-_]?key|account[-_]?key|passwords?"
    r"|passwd|passphrase"
)
_LIKELY = r"token|secrets?|pwd|credentials?|(?:set[-_])?cookies?|auth"

# A camel-case name continues with a capital: `openaiApiKey`.
_BEFORE = r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z])|(?<=\\[nrt]))"

CERTAIN_NAME = re.compile(rf"(?:.*[-_. ]|.*[a-z0-9](?=[A-Z]))?(?i:{_CERTAIN})", re.DOTALL)
"""The value of such a key is a credential, unless it is clearly a placeholder."""
LIKELY_NAME = re.compile(rf"(?:.*[-_. ]|.*[a-z0-9](?=[A-Z]))?(?i:{_LIKELY})", re.DOTALL)
"""The value of such a key is a credential only if it looks random: `token` is also an ordinary word."""
MAX_NAME = 128

QUOTED = re.compile(
    rf"{_BEFORE}(?i:(?P<certain>{_CERTAIN})|(?P<likely>{_LIKELY}))"
    r"\\{0,3}[\"']\s{0,4}(?::|=>)\s{0,4}(?P<quote>\\{0,3}[\"'])(?P<secret>.{4,2048}?)(?<!\\)(?P=quote)"
)
"""A member of JSON or of a Python literal, inside a text."""
ASSIGNED = re.compile(
    rf"(?P<name>{_BEFORE}(?i:(?P<certain>{_CERTAIN})|(?P<likely>{_LIKELY})))"
    r"(?P<sign>\s{0,4}[:=]\s{0,4})(?P<quote>\\{0,3}[\"']?)(?P<scheme>(?i:Basic|Bearer|Token|Digest)\s{1,4})?"
    r"(?P<secret>[^\s\"'`,;(){}<>\[\]&|\\]{6,2048})(?P<after>[(\[{]?)"
)
"""A header, an option or a variable: `X-Api-Key: …`, `password="…"`, `TOKEN=…`."""

OPTION = re.compile(
    rf"--(?:[A-Za-z0-9]{{1,20}}[-_]){{0,4}}(?i:(?P<certain>{_CERTAIN})|(?P<likely>{_LIKELY}))"
    r"(?:=|\s{1,4})\\{0,3}[\"']?(?P<secret>[^\s\"'`,;(){}<>\[\]&|\\]{6,2048})(?![(\[{])"
)
"""An option of a command: `--password=…`, `--api-key …`."""
CURL_USER = re.compile(
    r"\bcurl(?=\s)[^\n|;]{0,400}?\s(?:-[uU]|--user|--proxy-user)(?:\s{1,3}|=)\\{0,3}[\"']?"
    r"[^\s:\"'$<>{}\\]{1,128}:(?P<secret>[^\s\"'$<>{}\\]{2,256})"
)
"""A user and a password for curl. Other commands use `-u user:group`."""
HIDDEN = re.compile(
    r"(?<=[A-Za-z0-9_-])(?:[\u00ad\u200b-\u200d\u2060\ufeff]|\\{1,4}u(?:00ad|200[bcd]|2060|feff)){1,32}(?=[A-Za-z0-9_-])",
    re.IGNORECASE,
)
"""Invisible characters inside a word."""

_PLACEHOLDER = re.compile(
    r"string|text|str|none|null|true|false|required|optional|include|omit|same-origin|basic|bearer|password|passwd"
    r"|secret|token|api[-_ ]?key|key|n/?a|x{3,}|\.{3,}|\*+|changeme|redacted|hidden|unknown|current-password"
    r"|new-password|your[-_ ].*|my[-_ ].*|<.*>|\{.*\}|\$.*|%.*%|\[.*\]",
    re.IGNORECASE | re.DOTALL,
)
_SHORT_PLACEHOLDER = re.compile(r"pass|pwd|[A-Z][A-Z_]*[0-9]{0,2}")
_PATH_OF_NAMES = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_MARK = "[REDACTED:"


def is_placeholder(text: str) -> bool:
    """Return True if the text is only a placeholder for a credential."""
    return _MARK in text or not text.strip() or bool(_PLACEHOLDER.fullmatch(text[:2048].strip()))


def is_named_secret(*, certain: bool, name: str, value: str) -> bool:
    """Return True if the value of a key whose name suggests a credential is one."""
    if is_placeholder(value):
        return False
    if certain:
        return len(value) >= 4
    if "cookie" in name.lower():
        return "=" in value and looks_random(value)
    return looks_random(value) and " " not in value.strip() and not _is_uuid(value.strip())


_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]")


def looks_generated(text: str) -> bool:
    """Return True if upper case, lower case and digits alternate too often for an identifier, as in `z6TxRtlDxseU`."""
    kinds = (str.isdigit, str.isupper, str.islower)
    if not 10 <= len(text) <= 128 or "://" in text or not all(any(map(kind, text)) for kind in kinds):
        return False
    return not is_dotted_identifier(text) and len(text) <= 2.5 * len(_PIECE.findall(text))


def is_option_secret(match: re.Match[str]) -> bool:
    """Return True if the word after an option like `--api-key` is a credential, not the next word of a sentence."""
    value = match["secret"]
    if is_placeholder(value) or _SHORT_PLACEHOLDER.fullmatch(value) or is_dotted_identifier(value):
        return False
    if match["likely"]:
        return looks_random(value) and not _is_uuid(value)
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def is_user_password(match: re.Match[str]) -> bool:
    """Return True if the text after the user in `curl -u user:…` is a password, not a placeholder."""
    return not (is_placeholder(match["secret"]) or _SHORT_PLACEHOLDER.fullmatch(match["secret"]))


def is_quoted_secret(match: re.Match[str]) -> bool:
    """Return True if the value of a quoted name is a credential."""
    name = match["certain"] or match["likely"]
    return is_named_secret(certain=bool(match["certain"]), name=name, value=match["secret"])


def is_dotted_identifier(text: str) -> bool:
    """Return True if the text is a dotted code identifier, for example `settings.key2`."""
    return "." in text and _PATH_OF_NAMES.fullmatch(text) is not None


LEAST_NUMBER = 1000
"""Smaller numbers are not redacted: like texts, they need at least four characters."""
_COUNT = re.compile(r"(?:.*_)?(?:tokens|counts?|size|length|len|at|created|updated|expires?|expires_in|ttl)|passwords")


def is_count(place: str | int) -> bool:
    """Return True if numbers with this name are counts or times, such as `max_tokens`."""
    return isinstance(place, str) and len(place) <= MAX_NAME and _COUNT.fullmatch(place.lower()) is not None


_DESCRIBING_NAMES = (
    "type title description format enum items properties required additionalProperties minLength maxLength minimum "
    "maximum minItems maxItems uniqueItems pattern nullable readOnly writeOnly deprecated anyOf allOf oneOf not $ref "
    "in name scheme bearerFormat"
)
_DESCRIBING = frozenset(_DESCRIBING_NAMES.split())


def is_description(value: object) -> bool:
    """Return True if the value describes a credential, as JSON Schema and OpenAPI do, rather than being one."""
    if not isinstance(value, dict) or not value.keys() <= _DESCRIBING:
        return False
    return isinstance(value.get("type"), str | list) or not value.keys().isdisjoint({"$ref", "anyOf", "allOf", "oneOf"})


def is_assigned_secret(match: re.Match[str]) -> bool:
    """Return True if the text after a name and a sign is a credential rather than code."""
    value, quoted = match["secret"], bool(match["quote"])
    if match["after"] or is_placeholder(value):
        return False
    if match["likely"]:
        return looks_random(value) and not _is_uuid(value) and ("cookie" not in match["likely"].lower() or "=" in value)
    if looks_random(value) or (looks_generated(value) and not _is_uuid(value)):
        return True
    if match["scheme"] and "auth" in match["name"].lower():
        return any(map(str.isdigit, value)) or not (value[1:].islower() or value.isupper())
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    # Without quotes, a short value counts only if written like an environment variable: NAME=value.
    return has_both and (quoted or (match["sign"] == "=" and match["name"].isupper()))


def _is_uuid(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text))


# -- pre-filter for the rules above ------------------------------------------------------------------------------------

# Between a name and its value: anything but letters and digits, or an escape of JSON.
_SIGN = r"(?:[^A-Za-z0-9]|\\[bfnrt]|\\u[0-9a-f]{4})*[:=]"
HINTS = (
    *(form.hint for form in FORMS),
    rf"(?i:key|token|secrets?|auth|pwd){_SIGN}",
    r"(?i:passw|passphrase|authorization|cookie|credential)",
    r"(?i:--[a-z0-9 _-]*(?:key|token|secret|auth|pwd))",
    r"curl(?s:.*)-(?:[uU]|-user|-proxy-user)",
    # Invisible characters inside a word, in UTF-8 and as escapes.
    r"[A-Za-z0-9_-](?:\xe2\x80[\x8b-\x8d]|\xe2\x81\xa0|\xef\xbb\xbf|\xc2\xad)",
    r"(?i:\\u(?:00ad|200[bcd]|2060|feff))",
)
"""RE2 expressions over UTF-8. A text without a match has no credential, except secrets and patterns of the
installation."""
