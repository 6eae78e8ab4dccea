"""What is taken for a credential, what is not, and what the look costs."""

import json
from random import Random

import msgspec
import pytest

from apps.gym.redaction.redactor import Pattern, Redactor
from tests.deadlines import cpu_deadline

PLAIN = Redactor()
_PEM_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n" * 6


def random_text(alphabet, length, seed=7):
    return "".join(Random(seed).choices(alphabet, k=length))


LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
HEX = "0123456789abcdef"
ALNUM40 = "Q7" + random_text(LETTERS, 38)

SECRETS = {
    "pem": "-----BEGIN " + "RSA PRIVATE KEY-----\n" + _PEM_BODY + "-----END RSA PRIVATE KEY-----",
    "openssh": "-----BEGIN " + "OPENSSH PRIVATE KEY-----\n" + _PEM_BODY + "-----END OPENSSH PRIVATE KEY-----",
    "cut pem": "-----BEGIN " + "PRIVATE KEY-----\n" + _PEM_BODY,
    "jwt": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0"
    ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "openai": "sk-proj-" + ALNUM40,
    "openai old": "sk-" + ALNUM40,
    "anthropic": "sk-ant-api03-" + ALNUM40,
    "langfuse": "sk-lf-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
    "nvidia": "nvapi-" + ALNUM40 + "-" + ALNUM40,
    "hugging face": "hf_" + ALNUM40[:34],
    "hugging face letters": "hf_" + random_text(LETTERS[:49], 34),
    "hugging face organisation": "api_org_" + random_text(LETTERS[:49], 34),
    "docker": "dckr_pat_" + ALNUM40[:27],
    "xai": "xai-" + ALNUM40,
    "groq": "gsk_" + ALNUM40,
    "google": "AIza" + ALNUM40[:35],
    "our own api keys": "gw_" + "0123456789ab" + "_" + random_text(LETTERS, 43),
    "github": "ghp_" + ALNUM40[:36],
    "github fine": "github_pat_" + ALNUM40,
    "gitlab": "glpat-" + ALNUM40[:20],
    "npm": "npm_" + ALNUM40[:36],
    "pypi": "pypi-AgEIcHlwaS5vcmc" + ALNUM40 + ALNUM40,
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "google oauth": "ya29." + ALNUM40,
    "databricks": "dapi" + random_text(HEX, 32),
    "vault": "hvs." + ALNUM40,
    "slack": "xoxb-" + "123456789012-123456789012-" + ALNUM40[:24],
    "stripe": "sk_live_" + ALNUM40[:24],
    "sendgrid": "SG." + ALNUM40[:22] + "." + ALNUM40 + "abc",
    "shopify": "shpat_" + random_text(HEX, 32),
    "atlassian": "ATATT3" + ALNUM40 + ALNUM40,
    "age": "AGE-SECRET-KEY-1" + random_text("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", 58),
    "telling length": "tvly-" + ALNUM40[:32],
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_credential_is_found_by_its_form_in_any_place(name):
    secret = SECRETS[name]
    places = [
        secret,
        f"The key is {secret}, keep it.",
        f'{{"result": "{secret}"}}',
        json.dumps({"output": json.dumps({"deep": json.dumps(f"one\n{secret}\ntwo")})}),
        f"模型说：{secret} 。",
    ]
    for text in places:
        clean, counts = PLAIN.redact_text(text)
        assert (secret in clean, sum(counts.values())) == (False, 1), clean
        value, found = PLAIN.redact_value({"items": [{"content": [{"text": text}]}]})
        assert (secret in json.dumps(value), sum(found.values())) == (False, 1)
        encoded = msgspec.json.encode({"items": [{"content": text}]}).decode()
        stored, found = PLAIN.redact_json(encoded)
        assert (secret in json.loads(stored)["items"][0]["content"], sum(found.values())) == (False, 1)


@pytest.mark.parametrize("name", sorted(set(SECRETS) - {"pem", "openssh", "cut pem"}))
def test_a_credential_is_found_in_the_name_of_a_file_and_of_a_variable(name):
    secret = SECRETS[name]
    for text in (f"creds-{secret}", f"OLD_{secret}", f"a_long_name-of-something_{secret} and more"):
        clean, counts = PLAIN.redact_text(text)
        assert (secret in clean, sum(counts.values())) == (False, 1), clean
    own = Redactor(patterns=[Pattern(kind="corp", prefix="corp.", least=6)])
    assert own.redact_text("old-corp.abc123") == ("old-[REDACTED:corp]", {"corp": 1})


@pytest.mark.parametrize("name", ["openai", "anthropic", "nvidia", "github", "github fine", "gitlab"])
def test_an_unmistakable_beginning_is_found_inside_a_word(name):
    secret = SECRETS[name]
    clean, counts = PLAIN.redact_value({"items": [{"id": f"t{secret}"}]})
    assert (secret[8:] in json.dumps(clean), sum(counts.values())) == (False, 1), clean
    assert PLAIN.redact_text("creds-" + SECRETS["github"] + ".txt") == (
        "creds-[REDACTED:github_token].txt",
        {"github_token": 1},
    )


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcDEF1234567890abcdef", "abcDEF1234567890abcdef"),
        ("curl -H 'Authorization: Basic dXNlcjpwYXNz' http://host", "dXNlcjpwYXNz"),
        ("postgres://app:hunter2@db.internal:5432/app", "hunter2"),
        ("git clone https://bot:abc123@git.example.com/x.git", "abc123"),
        ('{"password": "swordfish"}', "swordfish"),
        ('{\\"db_password\\": \\"swordfish\\"}', "swordfish"),
        ("{'api_key': 'a-key-in-python'}", "a-key-in-python"),
        ("DB_PASSWORD=hunter2\nDEBUG=1", "hunter2"),
        ("export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY1", "wJalrXUtnFEMI"),
        ('client = Client(api_key="ab12cd34")', "ab12cd34"),
        ("users:\n  - name: ann\n    password: z6TxRtlDxseU\n    shell: sh", "z6TxRtlDxseU"),
        ("api_key: Xk9mP2vLq7", "Xk9mP2vLq7"),
        ("mysqldump --password=hunter2 app", "hunter2"),
        ("tool --db-password 'hunter2' --verbose", "hunter2"),
        ("tool --api-key wQ7xhunter2", "wQ7xhunter2"),
        ('tool --apiKey="wQ7xhunter2"', "wQ7xhunter2"),
        ("tool --token 0a1b2c3d4e5f6a7b8c9d", "0a1b2c3d4e5f6a7b8c9d"),
        ("curl -u bob:swordfish https://host/x", "swordfish"),
        ("curl -s -X POST --user 'bob:pw' https://host/x", ":pw"),
        ("https://discord.com/api/webhooks/123456789012345678/" + ALNUM40 + "-_x", ALNUM40),
        ("https://api.telegram.org/bot123456789:AA" + ALNUM40[:33] + "/getMe", ALNUM40[:33]),
        ("bot = Bot('1234567890:" + ALNUM40[:35] + "')", ALNUM40[:35]),
        ("X-Auth-Token: 0a1b2c3d4e5f6a7b8c9d", "0a1b2c3d4e5f6a7b8c9d"),
        ("DefaultEndpointsProtocol=https;AccountKey=" + ALNUM40 + "==;", ALNUM40),
        ("https://hooks.slack.com/services/T00000000/B00000000/abcdefABCDEF123456789012", "abcdefABCDEF123456789012"),
    ],
)
def test_a_credential_is_found_by_its_context(text, secret):
    clean, counts = PLAIN.redact_text(text)
    assert (secret in clean, sum(counts.values())) == (False, 1), clean


@pytest.mark.parametrize("sign", ["\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u200b\u200b", "\\u200b"])
def test_a_credential_with_invisible_characters_is_found(sign):
    secret = SECRETS["github"]
    for at in (2, 4, 12, 30):
        text = f"The key is {secret[:at]}{sign}{secret[at:]}, keep it."
        assert PLAIN.redact_text(text) == ("The key is [REDACTED:github_token], keep it.", {"github_token": 1})
        value, counts = PLAIN.redact_value({"output": json.dumps({"x": text})})
        assert (secret[30:] in value["output"], counts) == (False, {"github_token": 1})


def test_the_value_of_a_telling_key_is_taken_out_and_its_neighbours_stay():
    value = {
        "headers": {"Authorization": "abc def", "X-Api-Key": "plain words here", "Accept": "json"},
        "openaiApiKey": "swordfish",
        "client_secret": "swordfish",
        "password": "correct horse",
        "nested": [{"refresh_token": "swordfish"}],
        "user": "ann",
    }
    clean, counts = PLAIN.redact_value(value)
    assert clean == {
        "headers": {"Authorization": "[REDACTED:named]", "X-Api-Key": "[REDACTED:named]", "Accept": "json"},
        "openaiApiKey": "[REDACTED:named]",
        "client_secret": "[REDACTED:named]",
        "password": "[REDACTED:named]",
        "nested": [{"refresh_token": "[REDACTED:named]"}],
        "user": "ann",
    }
    assert counts == {"named": 6}


def test_values_below_a_sensitive_key_are_redacted():
    mark = "[REDACTED:named]"
    value = {
        "password": 12345678901234,
        "auth_token": 123456,
        "secrets": {"api_key": ["plainsecret", "other words"]},
        "cfg": {"password": {"value": "plainsecret", "old": [{"deep": 9876543210}]}},
        "Authorization": [["Basic", "abc def"]],
        "access_token": {"type": "text", "value": "plainsecret"},
        "after": ["plain", 12345],
    }
    encoded = msgspec.json.encode(value).decode()
    cleaned = {
        "password": mark,
        "auth_token": mark,
        "secrets": {"api_key": [mark, mark]},
        "cfg": {"password": {"value": mark, "old": [{"deep": mark}]}},
        "Authorization": [["Basic", mark]],
        "access_token": {"type": "text", "value": mark},
        "after": ["plain", 12345],
    }
    assert PLAIN.redact_value(value) == (cleaned, {"named": 8})
    stored, counts = PLAIN.redact_json(encoded)
    assert (json.loads(stored), counts) == (cleaned, {"named": 8})
    assert PLAIN.redact_json(stored) == (stored, {})
    own = Redactor(patterns=[Pattern(kind="badge", name="badge")], exceptions=["blue 18", "4711"])
    clean, counts = own.redact_value({"Badge": ["blue 17", "blue 18", 4711, 4712]})
    assert (clean, counts) == ({"Badge": ["[REDACTED:badge]", "blue 18", 4711, "[REDACTED:badge]"]}, {"badge": 2})


def test_counts_switches_and_descriptions_below_a_telling_key_stay():
    value = {
        "max_tokens": 4096,
        "token_count": 123456,
        "tokens": 123,
        "token": 151643,
        "input_token": [151643, 151644],
        "passwords": 20000,
        "password": {"type": "string", "description": "At least eight letters", "minLength": 1024},
        "api_key": {"$ref": "#/components/schemas/Key"},
        "authorization": {"type": "http", "scheme": "bearer"},
        "private_key": {"created_at": 1718000000, "max_tokens": 4096, "enabled": True, "value": None},
        "components": {"password": 1500.0},
        "passphrase": False,
    }
    encoded = msgspec.json.encode(value).decode()
    assert PLAIN.redact_json(encoded) == (encoded, {})
    assert PLAIN.redact_value(json.loads(encoded)) == (value, {})


def test_a_number_of_any_length_is_taken_out():
    number = 10**5000
    assert PLAIN.redact_value({"password": number}) == ({"password": "[REDACTED:named]"}, {"named": 1})


def test_a_credential_that_is_the_name_of_a_member_is_found():
    clean, counts = PLAIN.redact_value({SECRETS["github"]: 1})
    assert (clean, counts) == ({"[REDACTED:github_token]": 1}, {"github_token": 1})


HARMLESS = [
    "17 * 23 = 391, so 391 + 9 = 400.",
    "3.14159265358979323846264338327950288419716939937510",
    "interface User { id: number; password: string; apiKey: Base64String; }",
    "password: Utf8Password256\n",
    "password: SecretStr = Field(min_length=8)",
    "api_key: settings.openaiKey2",
    "password: 550e8400-e29b-41d4-a716-446655440000",
    "def connect(host: str, password: Optional2 = None)",
    "password: https://wiki.example.com/HowTo1",
    "Pass --password=PASSWORD or --api-key=$OPENAI_API_KEY2 or --token <token>.",
    "The options --password and --api-key expect a value; --secret-key is required, --password must be given.",
    "--password-file /run/secrets/db1 --token-limit 4096 --key-size 2048 --tokenizer gpt2-medium",
    "--max-tokens 1024 --tokens 20000 --auth none",
    "| a | b |\n|-----|-----|\n----------key 12ab34cd",
    "docker run -u 1000:1000 -u root:root postgres16 && chown -R www-data:www-data /srv",
    "curl -u user:password https://host and curl -u $USER:$TOKEN1 and curl -u name:PASS1 https://host",
    "curl -uri a:b https://host:8080/x",
    "curl https://host | sudo -u bob:staff1 tee",
    "hf_hub_download and hf_internal_testing_tiny_random_model_for_tests and hf_abcdefghijklmnopqrstuvwxyzabcdefgh",
    "api_organisation_of_the_public_endpoints_of_the_service",
    "https://example.com/api/webhooks/123456789012345678/documentation-of-it-all",
    "12:34:56 and 1718000000:00000000000000000000000000000000000 and 127.0.0.1:8080",
    "9fceb02d0:9fceb02d0ae598e95dc970b74767f19372d61af8",
    "family: 👩\u200d👩\u200d👧, می\u200cخواهم, soft\u00adhyphen and co\u200boperate",
    "the password is wrong for co\u200boperate, so pass\u00adword fails",
    "d41d8cd98f00b204e9800998ecf8427e",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "key: 550e8400-e29b-41d4-a716-446655440000",
    "token: 550e8400-e29b-41d4-a716-446655440000",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "sk-learn-is-a-library-for-machine-learning",
    '<div id="sk-container-id-1" class="sk-top-container sk-toggleable__content-arrow">',
    "def login(user, password): return check(password)",
    "password = input('Password: ')",
    "password = getpass.getpass()",
    "api_key = os.environ['OPENAI_API_KEY']",
    'api_key="OPENAI_API_KEY"',
    "api_key=settings.api_key2",
    "token = tokenizer.decode(ids[0])",
    "for token in tokens: print(token)",
    'eos_token="<|im_end|>", pad_token="<|endoftext|>"',
    "max_tokens=1024, output_tokens: 20",
    "The secret word is: apple. The password is your pet's name.",
    "Password: must have at least 8 characters",
    'fetch(url, {credentials: "same-origin"})',
    "Cookie: chocolate chip; sugar",
    "Bearer authentication is described in RFC 6750.",
    "Authorization: Bearer <token>",
    "Authorization: Bearer {api_key}",
    "Authorization: Basic authentication is required",
    "if '-----BEGIN PRIVATE KEY-----' in text:",
    "-----BEGIN CERTIFICATE-----\n" + _PEM_BODY + "-----END CERTIFICATE-----",
    "mail ann@example.com or see https://example.com/a:b",
    "http://localhost:8000/v1 and user@host",
    "postgres://user:${PASSWORD}@host/db",
    "ASIAN and ASIA are words, AKIAs too; eyJ is not",
    "risk-assessment-for-the-year-2024-and-beyond",
    "github_actions_workflow_runner_configuration",
    "my_function_name_that_is_very_long_indeed_2",
    "task-0123456789abcdef0123456789abcdef and disk-9fceb02d0ae598e95dc970b74767f19372d61af8",
    "module_task_test_abcdefghijklmnopqrstuvwxyz and my-risk-assessment-for-the-year-2024",
    "a-sk-learn-pipeline-of-many-steps_and_sk-container-id-1",
    "lru_cache(key=lambda item: item.identifier2)",
    "sorted(rows, key=operator.itemgetter2)",
    '{"keys": ["password", "api_key", "token"]}',
    '{"type": "object", "properties": {"password": {"type": "string"}}, "required": ["password"]}',
    '{"password": "string", "api_key": null, "secret": "apple", "token": "hello"}',
]


@pytest.mark.parametrize("text", HARMLESS)
def test_lookalikes_of_credentials_are_kept(text):
    assert PLAIN.redact_text(text) == (text, {})
    assert PLAIN.redact_value({"output": text}) == ({"output": text}, {})
    encoded = msgspec.json.encode({"output": text}).decode()
    assert PLAIN.redact_json(encoded) == (encoded, {})


def test_keys_that_mean_something_else_keep_their_values():
    value = {
        "max_tokens": 5,
        "token": "hello",
        "tokens_note": "none",
        "password": {"type": "string"},
        "secret": "apple",
        "token_id": "550e8400-e29b-41d4-a716-446655440000",
        "key": "d41d8cd98f00b204e9800998ecf8427e",
        "api_key": "",
        "password_hint": "the name of a pet",
        "cookie": "chocolate",
    }
    assert PLAIN.redact_value(dict(value)) == (value, {})


def test_our_own_secrets_are_found_in_every_way_they_are_written():
    redactor = Redactor(known=['pa"ss wörd/7', "short"])
    text = json.dumps({"plain": 'pa"ss wörd/7', "url": "pa%22ss%20w%C3%B6rd%2F7", "short": "short"}, ensure_ascii=False)
    clean, counts = redactor.redact_json(text)
    assert json.loads(clean) == {"plain": "[REDACTED:own_secret]", "url": "[REDACTED:own_secret]", "short": "short"}
    assert counts == {"own_secret": 2}


def test_an_installation_adds_names_prefixes_and_exceptions():
    redactor = Redactor(
        patterns=[Pattern(kind="badge", name="badge"), Pattern(kind="corp", prefix="corp.", least=6)],
        exceptions=["AKIA" + "IOSFODNN7EXAMPLE"],
    )
    value = {"Badge": "blue 17", "text": "corp.abc123 corp.abc AKIAIOSFODNN7EXAMPLE", "line": "badge: blue17"}
    clean, counts = redactor.redact_value(value)
    assert clean == {
        "Badge": "[REDACTED:badge]",
        "text": "[REDACTED:corp] corp.abc AKIAIOSFODNN7EXAMPLE",
        "line": "badge: [REDACTED:badge]",
    }
    assert counts == {"badge": 2, "corp": 1}


def test_redacted_text_is_not_redacted_again():
    text = "password=" + "hunter2" + " " + "DB_PASSWORD=hunter2 " + SECRETS["github"] + ' {"api_key": "swordfish"}'
    once, counts = PLAIN.redact_text(text)
    assert counts == {"named": 2, "github_token": 1}
    assert PLAIN.redact_text(once) == (once, {})


def test_a_redactor_that_is_off_changes_nothing():
    off = Redactor(known=["our-own-secret"], enabled=False)
    text = f"our-own-secret {SECRETS['aws']}"
    assert off.redact_text(text) == (text, {})
    assert off.redact_value({"password": text}) == ({"password": text}, {})


def test_values_nested_a_hundred_thousand_deep_are_cleaned_without_recursion():
    deep = inner = []
    for _ in range(100_000):
        inner.append([])
        inner = inner[0]
    inner.append(SECRETS["github"])
    _, counts = PLAIN.redact_value(deep)
    assert (inner, counts) == (["[REDACTED:github_token]"], {"github_token": 1})


@pytest.mark.parametrize(
    "part",
    [
        "eyJ",
        "sk-",
        "-----BEGIN PRIVATE KEY-----",
        "password=",
        '"password": "',
        "://a:",
        "Bearer ",
        "a1",
        "api_",
        "\\n",
        "-eyJabcdefghijk",
        "-eyJabcdefghijk.",
        "_sk-proj-",
        "tsk-proj-abcdefghijklmnopqrstuvwxyzabcdefgh-",
        "-ghp_abc",
        "-hf_abcdefghijklmnopqrstuvwxyzabcdefgh-",
        "-SG.abcdefghijklmnopqrst",
        "curl ",
        "curl -u a",
        "curl -u a:",
        "--a-",
        "--abcdefghijklmnopqrst-api-",
        "--api-key ",
        "-u aaaa",
        "123456789:",
        "1234567890:abcdefghijklmnopqrstuvwxyzabcdefg",
        "discord.com/api/webhooks/12345",
        "a\u200b",
        "ghp_\u200b",
        "password: z6TxRtlDx",
        "\\u200b",
    ],
)
def test_hostile_text_takes_time_in_proportion_to_its_length(part):
    text = "password Bearer PRIVATE KEY eyJ " + part * (200_000 // len(part))
    with cpu_deadline():
        PLAIN.redact_text(text)


def test_big_numbers_and_key_order_survive_a_redaction():
    text = '{"b":12345678901234567890123,"a":0.1,"password":"swordfish"}'
    clean, _ = PLAIN.redact_json(text)
    assert clean == '{"b":12345678901234567890123,"a":0.1,"password":"[REDACTED:named]"}'
