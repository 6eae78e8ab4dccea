"""What a credential looks like: rules by form, each with the literal that must be there for it to be worth a look.

The forms are narrow on purpose. Hashes, UUIDs, long numbers, base64 of pictures and names in code are what traces are
full of, and a rule by randomness alone would take them for credentials. Every expression begins with a literal, has
bounded repeats or nothing after an open one, and so takes time in proportion to the text.
"""

import re
from collections.abc import Callable

import msgspec

Check = Callable[[str], bool]

# Where a credential may begin: not inside a word, but after `-` or `_`, as in names of files and variables, and right
# after an escape such as the `\n` of JSON.
START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_END = r"(?![A-Za-z0-9_-])"
_RUN = re.compile(r"[A-Za-z0-9]+")
_LONG_RUN = 16


def looks_random(text: str) -> bool:
    """Whether it has a long run with digits and letters, as no word and no name in code has."""
    return any(
        len(run) >= _LONG_RUN and any(map(str.isdigit, run)) and any(map(str.isalpha, run))
        for run in _RUN.findall(text)
    )


def has_both_cases(text: str) -> bool:
    """As 34 letters at random have; a name in small letters has not."""
    body = text.rpartition("_")[2]
    return any(map(str.isupper, body)) and any(map(str.islower, body))


class Form(msgspec.Struct, frozen=True):
    """`literals` are case-sensitive: without one of them in a text its expression is not tried.

    The group `secret`, where there is one, is what is replaced; else the whole match.
    """

    kind: str
    literals: tuple[str, ...]
    expression: re.Pattern[str]
    check: Check | None = None
    is_prefix: bool = False


def _form(kind: str, literals: str, expression: str, check: Check | None = None) -> Form:
    return Form(kind, tuple(literals.split()), re.compile(expression), check)


def _prefixed(kind: str, literals: str, tail: str, check: Check | None = None, *, start: str = START) -> Form:
    """Literal and tail. With an empty `start` also inside a word: for literals that nothing else has."""
    starts = "|".join(map(re.escape, literals.split()))
    expression = re.compile(f"{start}(?:{starts}){tail}")
    return Form(kind, tuple(literals.split()), expression, check, is_prefix=True)


PRIVATE_KEY = Form(
    "private_key",
    ("PRIVATE KEY",),
    re.compile(
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!----)){32,65536}-----END [A-Z0-9 ]{1,80}-----"
        # Cut off before its end, as the output of a tool may be.
        r"|(?:(?:\s|\\{1,8}[nr]){0,16}[A-Za-z0-9+/=]{20,})+)"
    ),
)

FORMS: tuple[Form, ...] = (
    PRIVATE_KEY,
    _form(
        "jwt",
        "eyJ",
        # After `-` or `_` its first part is bounded: every one in a long run would else be followed to the run's end.
        rf"(?:(?<![-_]){START}eyJ[A-Za-z0-9_-]{{10,}}|(?<=[-_])eyJ[A-Za-z0-9_-]{{10,512}})"
        r"\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]{8,}){0,2}",
    ),
    _form(
        "bearer",
        "Bearer bearer BEARER",
        r"\b(?:Bearer|bearer|BEARER)(?:\s|%20|\+)+(?P<secret>[A-Za-z0-9._~+/-]{16,4096}=*)",
        looks_random,
    ),
    _form(
        "url_password",
        "://",
        r"://[^\s/@:\"'<>]{0,128}:(?P<secret>[^\s/@\"'<>{}$*]{1,256})@(?=[A-Za-z0-9_.\[-])",
    ),
    # -- models
    _prefixed("api_key", "sk- pk-lf-", r"[A-Za-z0-9_-]{20,}", looks_random),
    _prefixed("api_key", "sk-proj- sk-ant- sk-svcacct- sk-or-v1-", r"[A-Za-z0-9_-]{32,}", looks_random, start=""),
    _prefixed("api_key", "sk-lf-", r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    _prefixed("api_key", "nvapi-", r"[A-Za-z0-9_-]{40,}", start=""),
    # Without digits too, one in three hundred of them: its length says what it is.
    _form("api_key", "hf_ api_org_", rf"{START}(?:hf|api_org)_[A-Za-z0-9]{{34}}{_END}", has_both_cases),
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
    _form("azure_key", "AccountKey=", r"AccountKey=(?P<secret>[A-Za-z0-9+/]{40,}={0,2})"),
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
    ),
    _form(
        "discord_webhook",
        "/webhooks/",
        r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{5,24}/(?P<secret>[A-Za-z0-9_-]{20,})",
    ),
    _form(
        "telegram_token",
        ":",
        rf":(?<=[0-9]{{8}}:)(?P<secret>[A-Za-z0-9_-]{{35}}){_END}",
        lambda text: text.startswith("AA") or looks_random(text),
    ),
    _prefixed("stripe_key", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_", r"[A-Za-z0-9+/]{16,}"),
    _prefixed("sendgrid_key", "SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}"),
    _prefixed("shop_token", "shpat_ shpca_ shppa_ shpss_", r"[0-9a-fA-F]{32}"),
    _prefixed("service_token", "ATATT3", r"[A-Za-z0-9_=-]{50,}"),
    _prefixed("service_token", "PMAK- ntn_ lin_api_", r"[A-Za-z0-9-]{30,}"),
)

# -- names that say what stands beside them ------------------------------------------------------------------------

_CERTAIN = (
    r"authorization|proxy[-_]?authorization|api[-_ ]?key|api[-_ ]?token|access[-_ ]?token|refresh[-_ ]?token"
    r"|auth[-_ ]?token|session[-_ ]?token|bearer[-_ ]?token|client[-_ ]?secret|secret[-_ ]?key"
    r"|secret[-_ ]?access[-_ ]?key|private[-_ ]?key|signing[-_]?key|encryption[-_]?key|account[-_]?key|passwords?"
    r"|passwd|passphrase"
)
_LIKELY = r"token|secrets?|pwd|credentials?|(?:set[-_])?cookies?|auth"

# A camel-case name goes on with a capital: `openaiApiKey`.
_BEFORE = r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z])|(?<=\\[nrt]))"

CERTAIN_NAME = re.compile(rf"(?:.*[-_. ]|.*[a-z0-9](?=[A-Z]))?(?i:{_CERTAIN})", re.DOTALL)
"""The value of such a key is a credential unless it is plainly none."""
LIKELY_NAME = re.compile(rf"(?:.*[-_. ]|.*[a-z0-9](?=[A-Z]))?(?i:{_LIKELY})", re.DOTALL)
"""The value of such a key is one where it looks random: `token` is also a word of a text, `secret` one of a game."""
MAX_NAME = 128

QUOTED = re.compile(
    rf"{_BEFORE}(?i:(?P<certain>{_CERTAIN})|(?P<likely>{_LIKELY}))"
    r"\\{0,3}[\"']\s{0,4}(?::|=>)\s{0,4}(?P<quote>\\{0,3}[\"'])(?P<secret>.{4,2048}?)(?<!\\)(?P=quote)"
)
"""A member of JSON, or of a literal of Python, inside a text."""
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
"""A user and a password for curl. Other commands mean a group by what follows the colon."""
HIDDEN = re.compile(
    r"(?<=[A-Za-z0-9_-])(?:[\u00ad\u200b-\u200d\u2060\ufeff]|\\{1,4}u(?:00ad|200[bcd]|2060|feff)){1,32}(?=[A-Za-z0-9_-])",
    re.IGNORECASE,
)
"""What nobody sees, inside what would be a word without it."""

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
    """Whether it only stands where a credential would."""
    return _MARK in text or not text.strip() or bool(_PLACEHOLDER.fullmatch(text[:2048].strip()))


def is_secret_beside(*, certain: bool, name: str, value: str) -> bool:
    """Whether the value of a key with a telling name is a credential."""
    if is_placeholder(value):
        return False
    if certain:
        return len(value) >= 4
    if "cookie" in name.lower():
        return "=" in value and looks_random(value)
    return looks_random(value) and " " not in value.strip() and not _is_uuid(value.strip())


_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]")


def looks_made_up(text: str) -> bool:
    """Whether letters of both cases and digits change so fast that it is no name in code, as in `z6TxRtlDxseU`."""
    kinds = (str.isdigit, str.isupper, str.islower)
    if not 10 <= len(text) <= 128 or "://" in text or not all(any(map(kind, text)) for kind in kinds):
        return False
    return not is_path(text) and len(text) <= 2.5 * len(_PIECE.findall(text))


def is_option(match: re.Match[str]) -> bool:
    """Whether what follows an option such as `--api-key` is a credential, rather than the next word of a sentence."""
    value = match["secret"]
    if is_placeholder(value) or _SHORT_PLACEHOLDER.fullmatch(value) or is_path(value):
        return False
    if match["likely"]:
        return looks_random(value) and not _is_uuid(value)
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def is_user_password(text: str) -> bool:
    """Whether what follows the user in `curl -u user:…` is a password, rather than the word for one."""
    return not (is_placeholder(text) or _SHORT_PLACEHOLDER.fullmatch(text))


def is_path(text: str) -> bool:
    """Whether it names something in code: `settings.key2`."""
    return "." in text and _PATH_OF_NAMES.fullmatch(text) is not None


LEAST_NUMBER = 1000
"""The same four characters that a text has to have."""
_COUNT = re.compile(r"(?:.*_)?(?:tokens|counts?|size|length|len|at|created|updated|expires?|expires_in|ttl)|passwords")


def is_count(place: str | int) -> bool:
    """Whether a number of that name counts or dates something, also below a telling name: `max_tokens`."""
    return isinstance(place, str) and len(place) <= MAX_NAME and _COUNT.fullmatch(place.lower()) is not None


_DESCRIBING_NAMES = (
    "type title description format enum items properties required additionalProperties minLength maxLength minimum "
    "maximum minItems maxItems uniqueItems pattern nullable readOnly writeOnly deprecated anyOf allOf oneOf not $ref "
    "in name scheme bearerFormat"
)
_DESCRIBING = frozenset(_DESCRIBING_NAMES.split())


def is_description(value: object) -> bool:
    """Whether it says what a credential would be, as JSON Schema and OpenAPI do, rather than being one."""
    if not isinstance(value, dict) or not value.keys() <= _DESCRIBING:
        return False
    return isinstance(value.get("type"), str | list) or not value.keys().isdisjoint({"$ref", "anyOf", "allOf", "oneOf"})


def is_assigned(match: re.Match[str]) -> bool:
    """Whether what follows a name and a sign in a text is a credential, rather than code."""
    value, quoted = match["secret"], bool(match["quote"])
    if match["after"] or is_placeholder(value):
        return False
    if match["likely"]:
        return looks_random(value) and not _is_uuid(value) and ("cookie" not in match["likely"].lower() or "=" in value)
    if looks_random(value) or (looks_made_up(value) and not _is_uuid(value)):
        return True
    if match["scheme"] and "auth" in match["name"].lower():
        return any(map(str.isdigit, value)) or not (value[1:].islower() or value.isupper())
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    # Without quotes a short value is one only in the way of environment variables: NAME=value.
    return has_both and (quoted or (match["sign"] == "=" and match["name"].isupper()))


def _is_uuid(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text))


# -- what must be there for anything above to be found -------------------------------------------------------------
# Every event of every rollout is asked, so the usual answer, no, costs a handful of searches.


def _hints(*expressions: bytes) -> tuple[Callable[[bytes], re.Match[bytes] | None], ...]:
    """Expressions that begin with a literal, which is as fast as searching for that, over text in lower case."""
    return tuple(re.compile(one).search for one in expressions)


_SIGN = rb"[\"'\\ ]{0,8}[:=]"
CERTAIN_HINTS = _hints(rb"key" + _SIGN, rb"token" + _SIGN, rb"secret" + _SIGN, rb"pass(?:w|phrase)", rb"authorization")
"""Without one of these, an option or something hidden no certain name is there. All other rules need a run of 16
letters, digits, `_`, `-` or `%`."""
(OPTION_HINT,) = _hints(
    rb"-(?:-(?:[a-z0-9]{1,20}[-_]){0,4}[a-z]{0,12}(?:key|token)|u(?:ser)?[ =][ \"'\\]{0,6}[^\s:\"']{1,128}:)"
)
(ESCAPED_HINT,) = _hints(rb"\\u(?:00ad|200[bcd]|2060|feff)")
HIDDEN_HINTS = _hints(rb"\xe2(?:\x80[\x8b-\x8d]|\x81\xa0)", rb"\xef\xbb\xbf", rb"\xc2\xad")
"""One of the signs that nobody sees, in UTF-8."""
LIKELY_HINTS = _hints(rb"auth" + _SIGN, rb"pwd" + _SIGN, rb"secrets" + _SIGN, rb"cookie", rb"credential", rb"bearer")
RUNS = bytes(0x78 if (one < 128 and chr(one).isalnum()) or one in b"-_%" else 0x20 for one in range(256))
LONG_RUN = re.compile(b"x" * _LONG_RUN).search
_OPENING = re.compile(r"[A-Za-z0-9]*[-_.]")
_PREFIXES = {literal for form in FORMS if form.is_prefix for literal in form.literals}
BODY = re.compile(rb"[-_.](?=[A-Za-z0-9_%-]{16})")
"""What stands before it may be one of PREFIXES: those of the forms, each up to its first separator."""
PREFIXES = tuple({found[0].encode() for one in _PREFIXES if (found := _OPENING.match(one))})
LONGEST_PREFIX = max(map(len, PREFIXES))
NUMBERED = re.compile(rb":(?=[A-Za-z0-9_-]{35})")
"""What stands before it may be the number of a bot."""
_LITERALS = (
    *(re.escape(one.encode()) for one in _PREFIXES if not _OPENING.match(one)),
    *(b"eyJ", rb"hooks\.slack\.com/", b"PRIVATE KEY", b"/webhooks/", b"api_org_"),
)
# An expression finds its literal faster than `in` does.
LITERALS = _hints(*_LITERALS)
