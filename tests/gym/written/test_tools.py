import asyncio
import dataclasses
import enum
from typing import Annotated, Literal

import msgspec
import pytest

from apps.gym.environments.protocol import ToolRefused
from apps.gym.written import Environment, tool
from apps.gym.written.typed_tools import describe_tool, read_docstring, write_output


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Place:
    city: str
    street: str = ""


class Shop(Environment):
    """A shop
    of several lines."""

    @tool
    async def order(
        self,
        what: str,
        count: Annotated[int, msgspec.Meta(ge=1, le=9)],
        colour: Colour,
        size: Literal["s", "m"],
        to: Place,
        notes: list[str] | None = None,
        gift: bool = False,
    ) -> dict[str, int]:
        """Order something.

        It is sent at once.

        Args:
            what: the thing, by its name
              as the catalogue has it
            count (int): how many
        """
        return {what: count}

    @tool
    def cancel(self) -> None:
        """Cancel the order."""


def test_the_schema_of_a_tool_is_that_of_its_type_hints():
    order, cancel = Shop.tools
    assert (order["name"], order["strict"], order["type"]) == ("order", False, "function")
    assert order["description"] == "Order something. It is sent at once."
    schema = order["parameters"]
    assert schema["required"] == ["what", "count", "colour", "size", "to"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["what"] == {"type": "string", "description": "the thing, by its name as the catalogue has it"}
    assert properties["count"] == {"type": "integer", "minimum": 1, "maximum": 9, "description": "how many"}
    assert properties["colour"] == {"enum": ["blue", "red"]}
    assert properties["size"] == {"enum": ["m", "s"]}
    assert properties["to"]["required"] == ["city"]
    assert properties["to"]["properties"]["city"] == {"type": "string"}
    assert properties["notes"]["anyOf"] == [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]
    assert properties["gift"] == {"type": "boolean", "default": False}
    empty = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert cancel == {
        "type": "function",
        "name": "cancel",
        "description": "Cancel the order.",
        "parameters": empty,
        "strict": True,
    }


def test_the_class_gives_its_name_and_description():
    assert (Shop.name, Shop.description) == ("shop", "A shop of several lines.")

    class TwoWords(Environment):
        description = "another"

    assert (TwoWords.name, TwoWords.description, TwoWords.tools) == ("two_words", "another", [])

    class Named(Environment):
        name = "something-else"

    assert Named.name == "something-else"


def test_arguments_have_the_types_of_the_method():
    read = Shop.written_tools["order"].read
    given = {"what": "tea", "count": 2, "colour": "red", "size": "m", "to": {"city": "Oslo"}}
    assert read(given) == {
        "what": "tea",
        "count": 2,
        "colour": Colour.RED,
        "size": "m",
        "to": Place("Oslo"),
        "notes": None,
        "gift": False,
    }
    wrong = [{**given, "count": 0}, {**given, "count": "2"}, {**given, "more": 1}, {"what": "tea"}, {**given, "to": 3}]
    for arguments in wrong:
        with pytest.raises(ToolRefused, match="order: ") as refused:
            read(arguments)
        assert refused.value.error == "bad_arguments"


def test_a_default_is_made_anew_for_each_call():
    class Lists(Environment):
        @tool
        async def add(self, to: list[int] = []) -> list[int]:  # noqa: B006 - what it must stand
            """Add one."""
            to.append(1)
            return to

    shop = Lists()
    read = Lists.written_tools["add"].read
    assert [asyncio.run(shop.add(**read({}))) for _ in range(2)] == [[1], [1]]


def refuse(method):
    with pytest.raises(TypeError) as refused:
        describe_tool(method)
    return str(refused.value)


def test_a_tool_that_no_model_could_be_told_of_is_refused_with_what_it_lacks():
    async def untyped(self, word):
        """Do."""

    async def undescribed(self, word: str):
        pass

    async def many(self, *words: str):
        """Do."""

    async def strange(self, word: object | complex):
        """Do."""

    async def imaginary(self, word: list[complex]):
        """Do."""

    async def unknown(self, word: "Undefined"):  # noqa: F821 - what is tried
        """Do."""

    async def verify(self, word: str):
        """Do."""

    assert refuse(untyped) == "the tool untyped: give word a type, for example word: str"
    assert refuse(undescribed).startswith("the tool undescribed: add a docstring")
    assert refuse(many) == "the tool many: give each argument its own name instead of *words: str"
    assert refuse(strange).startswith("the tool strange: ")
    assert refuse(imaginary).startswith("the tool imaginary: complex cannot be")
    assert refuse(unknown) == "the tool unknown: its types cannot be read: NameError: name 'Undefined' is not defined"
    assert refuse(verify).startswith("the tool verify: ")
    assert "already has verify" in refuse(verify)


def test_a_type_that_holds_itself_is_refused():
    class Tree(msgspec.Struct):
        children: "list[Tree]"

    Tree.__annotations__["children"] = list[Tree]

    async def grow(self, tree: Tree):
        """Grow."""

    assert refuse(grow) == "the tool grow: recursive types are not supported"


@pytest.mark.parametrize(
    ("text", "does", "told"),
    [
        ("Do it.", "Do it.", {}),
        ("Do it.\n\nwhat: the thing", "Do it.", {"what": "the thing"}),
        (
            "Do it.\n\nArgs:\n    what: the thing\n        and more\n\nReturns:\n    a: b",
            "Do it.",
            {"what": "the thing and more", "a": "b"},
        ),
        ("Do it: now.\nNote that it costs.", "Do it: now. Note that it costs.", {}),
        ("", "", {}),
    ],
)
def test_a_docstring_is_what_the_tool_does_and_a_line_for_each_parameter(text, does, told):
    assert read_docstring(text) == (does, told)


def test_results_of_tools_become_text():
    assert write_output("as it is") == "as it is"
    assert write_output({"a": [1, 2.5, None]}) == '{"a":[1,2.5,null]}'
    assert write_output(Place("Oslo")) == '{"city":"Oslo","street":""}'
    assert write_output(None) == "null"
    with pytest.raises(TypeError):
        write_output(object())


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"t": [1.0, float("nan")]}, "a number at /t/1 that is not finite"),
        (float("-inf"), "a number at the top that is not finite"),
        ("a\ud800b", "half a surrogate pair at character 1"),
    ],
)
def test_what_json_has_no_form_for_is_no_output(value, told):
    with pytest.raises(ValueError, match=told):
        write_output(value)
