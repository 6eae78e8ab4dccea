import pytest

from apps.gym.code_blocks import Block, find_block, read_blocks
from tests.deadlines import cpu_deadline

CODE = "def f():\n    return 1"
NAMES = frozenset({"python", "py"})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nCODE\n```", CODE),
        ("```python\r\nCODE\r\n```\r\n", CODE),
        ("```python\rCODE\r```", CODE),
        ("Plan:\n\n```text\nthink\n```\n\nCode:\n\n```python\nCODE\n```\n", CODE),
        ("```bash\npip install x\n```\nThen\n```python\nCODE\n```", CODE),
        ("```python\nCODE\n```\nOutput:\n```text\n1\n```", CODE),
        ("```python\nCODE\n```\nOutput:\n```\n1\n```", CODE),
        ("```\nold\n```\n```\nCODE\n```", CODE),
        ("```python\nold\n```\n```PY\nCODE\n```", CODE),
        ("```js\nlet a\n```", None),
        ("nothing", None),
        # the info string
        ("``` python title=x\nCODE\n```", CODE),
        ("```python:main.py\nCODE\n```", CODE),
        ("```{.python .numbered}\nCODE\n```", CODE),
        ("~~~ python `x`\nCODE\n~~~", CODE),
        ("```python `x`\nno block\n```", ""),
        ("```pythonic\nCODE\n```", None),
        # the marks
        ("~~~python\nCODE\n~~~", CODE),
        ("````python\nCODE\n````", CODE),
        ("````python\n```\nCODE\n```\n````", f"```\n{CODE}\n```"),
        ("```python\nCODE\n`````  ", CODE),
        ("```python\nCODE\n~~~\n```", f"{CODE}\n~~~"),
        ("```python\nCODE\n``` python\n```", f"{CODE}\n``` python"),
        ("``python\nCODE\n``", None),
        # indentation
        ("   ```python\n   CODE\n   ```", CODE),
        ("  ```python\nCODE\n```", CODE),
        ("   ```python\n  CODE\n   ```", CODE),
        ("    ```python\n    CODE\n    ```", None),
        (
            '```python\ndef f():\n    """\n    ```\n    f()\n    ```\n    """\n```',
            'def f():\n    """\n    ```\n    f()\n    ```\n    """',
        ),
        ("```python\n\tCODE\n```", "\tdef f():\n    return 1"),
        # list items
        ("1. Here:\n\n   ```python\n   CODE\n   ```", CODE),
        ("- a\n  - b\n\n    ```python\n    CODE\n    ```\n", CODE),
        ("10) a\n    ```python\n    CODE\n    ```", CODE),
        ("- ```python\n  CODE\n  ```", CODE),
        ("1. Here:\n   ```python\nCODE\n   ```", CODE),
        ("1. Here:\n\n    ```python\n    CODE\n    ```\n", CODE),
        ("- a\n\nText.\n\n    ```python\n    CODE\n    ```", None),
        # never closed
        ("```python\nCODE", CODE),
        ("```python\nCODE```", CODE),
        ("```python\nCODE``` Done.", f"{CODE}``` Done."),
        ("```text\nnever closed\n```python\nCODE\n```", None),
    ],
)
def test_a_block_is_read_by_commonmarks_rules(text, code):
    first = text.partition("CODE")[0].rpartition("\n")[2]
    indentation = first if first.strip(" ") == "" else ""
    lines = CODE.split("\n")
    written = lines[0] + "".join(f"\n{indentation}{line}" for line in lines[1:])
    assert find_block([text.replace("CODE", written)], NAMES) == code


def test_an_open_block_does_not_reach_into_the_next_text():
    assert find_block(["```python\nopen", f"Now:\n```python\n{CODE}\n```"], NAMES) == CODE
    assert find_block([f"```python\n{CODE}\n```", "Done."], NAMES) == CODE


def test_all_blocks_are_read_in_order():
    assert read_blocks("```a\n1\n```\n```\n2\n\n```\n~~~b\n~~~") == [Block("a", "1"), Block("", "2\n"), Block("b", "")]


@pytest.mark.parametrize(
    "text", ["`" * 200_000, "```" + " " * 200_000 + "x", "- " * 50_000, "1. a\n" * 50_000, "```\n" * 50_001]
)
def test_a_long_text_takes_no_longer_than_its_length(text):
    with cpu_deadline():
        read_blocks(text)
