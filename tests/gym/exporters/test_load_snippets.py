"""Each format has code that loads its export, valid in its language and without a placeholder."""

import gzip
import re
import subprocess
import sys

import pytest
import yaml

from apps.gym.exporters.load_snippets import write_snippet
from apps.gym.exporters.registry import FORMATS
from tests.docs.test_code_blocks import find_fault

CASES = [(slug, encoding) for slug, format in FORMATS.items() for encoding in format.encodings]


@pytest.mark.parametrize(("slug", "encoding"), CASES)
def test_the_code_is_valid_and_names_the_files(slug, encoding):
    files = {"train": f"train.{encoding}", "validation": f"validation.{encoding}"}
    language, code = write_snippet(slug, files, folder="made-7")
    assert find_fault(language, code) == ""
    assert re.findall("FOLDER|FILE|SPLIT|READ|OPEN", code) == []
    assert "made-7" in code
    assert language == ("yaml" if slug.startswith(("nemo_rl", "axolotl", "llama")) else language)


def test_each_kind_of_code():
    files = {"train": "train.jsonl.gz"}
    assert "gzip.open(" in write_snippet("atif", files, folder="x")[1]
    assert "load_dataset(" in write_snippet("verifiers_prompts", {"train": "train.parquet"}, folder="x")[1]
    assert "vf-eval" in write_snippet("verifiers_prompts", {"train": "train.jsonl"}, folder="x")[1]
    axolotl = yaml.safe_load(write_snippet("axolotl_dpo", {"train": "train.jsonl"}, folder="x")[1])
    assert axolotl == {"rl": "dpo", "datasets": [{"path": "x", "split": "train"}]}
    validation = write_snippet("llama_factory_sft", {"validation": "validation.jsonl"}, folder="x")[1]
    assert yaml.safe_load(validation) == {"dataset_dir": "x", "dataset": "rollouts_validation"}


@pytest.mark.parametrize("file", ["train.jsonl", "train.jsonl.gz"])
def test_lines_are_read_whatever_the_locale(file, tmp_path):
    """In the locale C without UTF-8 mode, `open` would read ASCII."""
    opened = gzip.open if file.endswith(".gz") else open
    with opened(tmp_path / file, "wb") as written:
        written.write('{"a": "\\u2028é"}\n{"a": 2}\n'.encode())
    code = write_snippet("atif", {"train": file}, folder=str(tmp_path))[1]
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    shown = subprocess.run(
        [sys.executable, "-c", code + "print(ascii(rows))"], env=environment, capture_output=True, check=True
    )
    assert shown.stdout.decode().strip() == ascii([{"a": "\u2028é"}, {"a": 2}])
