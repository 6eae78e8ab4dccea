"""Settings are read strictly: what cannot be right is refused, with its name, its value and what is allowed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gymweb.databases import POSTGRES, SQLITE, connect
from gymweb.environment_variables import Environment, SettingRefused

ROOT = Path(__file__).resolve().parents[2]
NAME = "GYMWEB_X"


def given(value: str) -> Environment:
    return Environment({NAME: value})


def refusal(read) -> str:
    with pytest.raises(SettingRefused) as refused:
        read()
    return str(refused.value)


@pytest.mark.parametrize("value", ["abc", "1e1", "0x10", "1_000", "1.0", "٣", "-1", "101", "9" * 5000, "1 000", "nan"])
def test_a_whole_number_is_digits_within_its_range(value):
    said = refusal(lambda: given(value).whole(NAME, default=7, least=0, most=100))
    shown = value if len(value) <= 40 else "9" * 40 + "…"
    assert said.startswith(f"GYMWEB_X is {shown!r}: ")
    assert ("whole number from 0 to 100" in said, "as 7." in said) == (True, True)


@pytest.mark.parametrize("value", ["abc", "1e1", "1e12", "0x10", "inf", "nan", "1,5", ".5", "-0.1", "100.1", "9" * 400])
def test_a_number_is_digits_within_its_range(value):
    said = refusal(lambda: given(value).number(NAME, default=7.5, least=0, most=100))
    shown = value if len(value) <= 40 else "9" * 40 + "…"
    assert said.startswith(f"GYMWEB_X is {shown!r}: ")
    assert ("from 0 to 100" in said, "as 7.5." in said) == (True, True)


def test_valid_settings_are_read():
    assert [given(text).whole(NAME, default=7, least=0, most=100) for text in ("0", "100", " 42 ", "", "007")] == [
        *(0, 100, 42, 7, 7)
    ]
    assert [given(text).number(NAME, default=7.5, least=0, most=100) for text in ("0", "99.5", "")] == [0.0, 99.5, 7.5]
    assert [given(text).switch(NAME, default=True) for text in ("1", "0", "True", "no", "")] == [
        *(True, False, True, False, True)
    ]
    assert given(" a, b,,c ").texts(NAME) == ["a", "b", "c"]
    assert given("").texts(NAME, default=["x"]) == ["x"]
    assert given("debug").choice(NAME, default="INFO", choices=("DEBUG", "INFO")) == "DEBUG"
    assert given("https://a.example.org, http://b:8080").origins(NAME) == ["https://a.example.org", "http://b:8080"]
    assert given("https://A.Example.org:443/,http://[::1]:80").origins(NAME) == [
        "https://a.example.org",
        "http://[::1]",
    ]


def test_switches_choices_and_origins_that_cannot_be_right_are_refused():
    assert re.match("GYMWEB_X is 'ture': .*1 or 0", refusal(lambda: given("ture").switch(NAME, default=False)))
    loud = refusal(lambda: given("LOUD").choice(NAME, default="INFO", choices=("DEBUG", "INFO")))
    assert re.match("GYMWEB_X is 'LOUD': .*DEBUG, INFO", loud)


@pytest.mark.parametrize(
    "origin",
    [
        *("gym.example.org", "ftp://gym.example.org", "https://", "https://gym.example.org/path"),
        *("https://[gym.example.org", "https://gym.example.org:99999", "https://:443"),
    ],
)
def test_an_origin_has_scheme_and_host_and_no_more(origin):
    assert refusal(lambda: given(origin).origins(NAME)).startswith(f"GYMWEB_X: {origin!r} is not an origin")


@pytest.mark.parametrize(
    "address",
    [
        *("garbage", "mysql://u:geheim@h/x", "postgres://u:geheim@h", "postgres://u:geheim@h:port/x", "sqlite:///"),
        *("postgres://[h/x", "sqlite://host/rows.sqlite3", "http://h/x", "postgres:", "postgres://u:geheim@h:99999/x"),
    ],
)
def test_a_database_that_cannot_be_one_is_refused_and_its_password_not_said(address):
    said = refusal(lambda: given(address).database(NAME, default=""))
    assert (said.startswith("GYMWEB_X "), "postgres://NAME:PASSWORD@" in said) == (True, True)
    assert "geheim" not in said


@pytest.mark.parametrize(
    "address",
    [
        "garbage",
        "http://h",
        "redis://",
        "redis://:geheim@h:port/0",
        "redis://h/zero",
        "redis://[h",
        "unix://",
        "h:6379",
    ],
)
def test_a_redis_that_cannot_be_one_is_refused_and_its_password_not_said(address):
    said = refusal(lambda: given(address).redis(NAME))
    assert (said.startswith("GYMWEB_X is not a Redis URL"), "geheim" in said) == (True, False)


def test_addresses_that_are_right_are_read():
    for address in (
        "",
        "redis://h",
        "redis://:p@h:6379/0",
        "rediss://h:1",
        "unix:///run/redis.sock",
        "redis://[::1]/3",
    ):
        assert given(address).redis(NAME) == address
    read = given("postgres://u:p%40w@h:5432/gym").database(NAME, default="")
    assert [read[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT")] == ["gym", "u", "p@w", "h", 5432]
    assert given("postgres:///gymweb").database(NAME, default="")["NAME"] == "gymweb"
    assert given("sqlite:////var/rows.sqlite3").database(NAME, default="")["NAME"] == "/var/rows.sqlite3"
    assert given("sqlite://:memory:").database(NAME, default="")["NAME"] == ":memory:"
    assert given("").database(NAME, default="sqlite:////a/b")["NAME"] == "/a/b"


def options_of(address: str) -> dict[str, object]:
    database = given(address).database(NAME, default="")
    return connect(database, test_file=Path("/t"), idle_seconds=15)["OPTIONS"]


def test_a_connection_to_postgres_gives_up_on_a_machine_that_vanished_and_guards_idle_transactions():
    guard = "-c idle_in_transaction_session_timeout=15000"
    assert options_of("postgres://u:p@h/gym") == {**POSTGRES, "options": guard}
    assert POSTGRES["connect_timeout"] == 5


def test_what_the_url_says_of_a_connection_wins_and_the_guard_stays():
    own = options_of("postgres://u:p@h/gym?connect_timeout=30&sslmode=require&options=-c%20statement_timeout%3D60000")
    assert own == {
        **POSTGRES,
        "connect_timeout": 30,
        "sslmode": "require",
        "options": "-c idle_in_transaction_session_timeout=15000 -c statement_timeout=60000",
    }
    assert options_of("sqlite:////a/b?timeout=5") == {**SQLITE, "timeout": 5}


def test_no_setting_is_read_in_another_way():
    """Each of the readers above is strict; a call of another one would not be."""
    tree = ast.parse((ROOT / "gymweb" / "settings.py").read_text())
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    readers = {call.attr for call in calls if isinstance(call, ast.Attribute) and ast.unparse(call.value) == "env"}
    assert readers == {
        "text",
        "texts",
        "origins",
        "choice",
        "switch",
        "whole",
        "number",
        "database",
        "redis",
        "email",
        "telemetry",
    }


def test_a_file_cannot_be_the_data_folder(tmp_path):
    (tmp_path / "file").touch()
    ended = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env={**os.environ, "GYMWEB_VAR": str(tmp_path / "file" / "var")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert f"GYMWEB_VAR: {tmp_path}/file/var cannot be created" in ended.stderr
