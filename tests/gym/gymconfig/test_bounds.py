"""Configurations of a few lines that stand for any amount: each is refused, and soon."""

import pytest

from apps.gym.gymconfig.descriptions import describe_texts
from apps.gym.gymconfig.merging import ConfigRefused, NotYaml, read_yaml

SERVER = 'lab:\n  resources_servers:\n    lab: {host: 127.0.0.1, port: 8123, description: "%s"}\n'


def refusal(text):
    with pytest.raises(ConfigRefused) as caught:
        describe_texts({"lab.yaml": text})
    return str(caught.value)


def levels(line, count=9):
    return "".join(line(f"a{place}", f"a{place - 1}") for place in range(1, count + 1))


HOSTILE = {
    "aliases": (
        "a0: &a0 [x, x]\n" + levels(lambda name, last: f"{name}: &{name} [{', '.join([f'*{last}'] * 10)}]\n"),
        "values through aliases",
    ),
    "merge keys": (
        "a0: &a0 {x: 1}\n" + levels(lambda name, last: f"{name}: &{name} {{<<: [{', '.join([f'*{last}'] * 10)}]}}\n"),
        "values through aliases",
    ),
    "an alias to what holds it": ("a: &a [*a]\n", "nested more than 64 deep"),
    "brackets": ("a: " + "[" * 3000 + "]" * 3000, "nested more than 64 deep"),
    "a long number": ("a: " + "1" * 5000, "is not YAML"),
    "a date that is none": ("a: 2020-13-45", "is not YAML"),
    "inheritance": (
        "a0: {x: 1}\n"
        + levels(
            lambda name, last: (
                f"{name}: {{{', '.join(f'k{place}: {{_inherit_from: {last}}}' for place in range(10))}}}\n"
            )
        ),
        "the inheritance expands to more than",
    ),
    "references": (
        "a0: [x, x]\n"
        + levels(lambda name, last: f"{name}: [" + ", ".join([f'"${{{last}}}"'] * 10) + "]\n")
        + SERVER % "${a9}",
        "the references expand to more than",
    ),
    "references within a text": (
        "a0: "
        + "x" * 1000
        + "\n"
        + levels(lambda name, last: f"{name}: '" + f"${{{last}}}" * 10 + "'\n")
        + SERVER % "${a9}",
        "becomes longer than",
    ),
    "no number": ("a: {b: [1, .nan]}", "a.b[1]: is not a finite number"),
    "an infinite number": ("a: -.inf", "is not a finite number"),
    "a large number": ("a: 9223372036854775808", "a number of more than 64 bits"),
    "a zero byte": (SERVER % "\\0", "description: contains a NUL character or an unpaired surrogate"),
    "half a character": (SERVER % "\\ud800", "contains a NUL character or an unpaired surrogate"),
    "a zero byte in a name": ('a: {"b\\0": 1}', "in its name"),
    "a dot in a name": ("a.b: {resources_servers: {lab: {port: 1}}}", "a.b: has a dot in its name"),
    "a zero byte in a default": (
        "lab: {resources_servers: {lab: {port: 1, description: '${oc.env:NOWHERE,\"\\0\"}'}}}",
        "its default contains a NUL character",
    ),
    "a default": (SERVER % "${oc.env:NOWHERE,[*a]}", "its default is not YAML"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_endless_references_are_refused(name):
    text, told = HOSTILE[name]
    assert told in refusal(text)


def test_no_environment_variable_is_given_out(monkeypatch):
    monkeypatch.setenv("GYMWEB_SECRET_KEY", "hidden")
    told = refusal(SERVER % "${oc.env:GYMWEB_SECRET_KEY}")
    assert "reads GYMWEB_SECRET_KEY from the environment, which is not set there" in told
    description, _ = describe_texts({"lab.yaml": SERVER % "${oc.env:GYMWEB_SECRET_KEY,none}"})
    assert description.servers[0].description == "none"


@pytest.mark.parametrize("text", ["a: \x1b", "\x82{", "\ufffe"])
def test_a_character_that_yaml_has_not_is_no_yaml(text):
    with pytest.raises(NotYaml, match=r"is not YAML: .*special characters are not allowed"):
        read_yaml(text)
