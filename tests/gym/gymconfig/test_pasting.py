"""Several configurations in one text, and what one of them includes."""

import pytest

from apps.gym.gymconfig.descriptions import describe_texts
from apps.gym.gymconfig.merging import ConfigRefused
from apps.gym.gymconfig.pasted_files import join_texts, split_texts
from tests.gym.gymconfig.test_describing import ENV, LAB, MODEL


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a: 1", ["document 1"]),
        ("a: 1\n---\nb: 2", ["document 1", "document 2"]),
        ("--- # lab.yaml\na: 1\n---  #   env.yaml  \r\nb: 2\n", ["lab.yaml", "env.yaml"]),
        ("--- # x\na: 1\n--- # x\nb: 2", ["x", "x (2)"]),
        ("---\n\n---\na: 1\n---\n", ["document 1"]),
        ("a: |\n  ---\n  text\n", ["document 1"]),
        ("a: 1\n---- # no divider\n", ["document 1"]),
        ("", []),
        ("---\n" * 20_000, []),
        ("--- #" + " " * 90_000 + "x y\na: 1", ["x y"]),
        ("--- #x" + " " * 90_000 + "y\na: 1", ["x" + " " * 99]),
        ("---" + " " * 90_000 + "x\na: 1", ["document 1"]),
    ],
)
def test_a_text_is_parted_at_its_dividers(text, names):
    assert list(split_texts(text)) == names


def test_files_that_were_joined_are_parted_again():
    files = [("lab.yaml", "a: 1\n"), ("env\n.yaml", "b: 2")]
    assert split_texts(join_texts(files)) == {"lab.yaml": "\na: 1\n\n", "env .yaml": "\nb: 2"}


def test_later_texts_override_and_includes_come_first():
    texts = {
        "top.yaml": "config_paths: [configs/lab.yaml]\nlab: {resources_servers: {lab: {port: 9}}}",
        "lab.yaml": LAB,
        "model.yaml": MODEL,
        "env.yaml": ENV,
    }
    description, values = describe_texts(texts)
    assert [(server.url, server.description) for server in description.servers] == [
        ("http://127.0.0.1:9", "Tools of the lab")
    ]
    assert values.file_of("lab.resources_servers.lab.port") == "top.yaml"
    assert description.size == 5


def test_no_file_of_this_machine_is_read(tmp_path):
    (tmp_path / "lab.yaml").write_text(LAB)
    with pytest.raises(ConfigRefused, match="was not given"):
        describe_texts({"top.yaml": f"config_paths: [{tmp_path}/lab.yaml]"})
