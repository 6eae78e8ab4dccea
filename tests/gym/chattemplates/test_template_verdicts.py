"""What a template loses, changes or raises, found by markers: small templates, each with one fault."""

import json

import pytest

from apps.gym.chat_templates.conversation_shapes import find_shape
from apps.gym.chat_templates.jinja_rendering import Rendering
from apps.gym.chat_templates.template_child import Renderer
from apps.gym.chat_templates.template_sources import ChatTemplate, TemplateRefused, read_template
from apps.gym.exporters.split_calls import split_calls

EXACT = """{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}<{{ m.role }}>
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}
{%- for c in m.tool_calls or [] %}{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}
{%- endfor %}"""

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds",
        "parameters": {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"], "title": None}}},
    },
}


def call(number, **arguments):
    return {"id": f"c{number}", "type": "function", "function": {"name": "add", "arguments": arguments}}


def talk(*, text="I add.", calls=1, reasoning="", arguments=None):
    made = [call(number, **({"a": "x", "b": None} if arguments is None else arguments)) for number in range(calls)]
    asked = {"role": "assistant", "content": text, "tool_calls": made}
    if reasoning:
        asked["reasoning_content"] = reasoning
    results = [
        {"role": "tool", "name": "add", "tool_call_id": f"c{number}", "content": '{"sum": 3}'}
        for number in range(calls)
    ]
    opening = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add."}]
    return [*opening, asked, *results, {"role": "assistant", "content": "3"}]


def kinds(template, messages, tools=(TOOL,)):
    return set(Renderer(ChatTemplate(title="t", text=template)).judge((messages, list(tools))).kinds)


def changed(old, new):
    assert old in EXACT
    return EXACT.replace(old, new)


def test_exact_template_has_no_finding():
    assert kinds(EXACT, talk(calls=2, reasoning="Hm.")) == set()


FAULTS = {
    "text beside a call": (changed("{{ m.content }}", "{{ m.content if not m.tool_calls }}"), {"call_text_lost"}),
    "second call": (changed("m.tool_calls or []", "(m.tool_calls or [])[:1]"), {"parallel_call_lost"}),
    "all calls": (changed("m.tool_calls or []", "[]"), {"call_lost", "parallel_call_lost"}),
    "arguments": (changed("{{ c.function.arguments | tojson }}", ""), {"call_lost", "parallel_call_lost"}),
    "name of the call": (changed("{{ c.function.name }}", ""), {"call_part_lost"}),
    "encoded twice": (changed("arguments | tojson", "arguments | tojson | tojson"), {"arguments_as_text"}),
    "as Python": (changed("arguments | tojson", "arguments"), {"python_values"}),
    "reasoning": (changed("m.reasoning_content %}", "false %}"), {"reasoning_lost"}),
    "results": (changed("{{ m.content }}", "{{ m.content if m.role != 'tool' }}"), {"result_lost"}),
    "escaped results": (
        changed("{{ m.content }}", "{{ m.content | tojson if m.role == 'tool' else m.content }}"),
        {"reworded"},
    ),
    "system": (changed("{{ m.content }}", "{{ m.content if m.role != 'system' }}"), {"system_lost"}),
    "text of a message": (changed("{{ m.content }}", "{{ m.content if m.role != 'user' }}"), {"text_lost"}),
    "tools": (changed("{{ tools | tojson }}", ""), {"tools_lost"}),
    "schema": (changed("{{ tools | tojson }}", "{{ tools[0].function.name }}"), {"schema_lost"}),
    "null of a schema": (
        changed("{{ tools | tojson }}", "{{ tools | string | replace(\"'\", '\"') }}"),
        {"python_values"},
    ),
    "calls before text": (
        changed("{{ m.content }}", "").replace("{% endfor %}\n{%- endfor", "{% endfor %}{{ m.content }}\n{%- endfor"),
        {"moved"},
    ),
    "raise": ("{{ raise_exception('only one call') }}", {"raised"}),
    "zero": ("{{ 1 / 0 }}", {"raised"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_no_other(name):
    template, expected = FAULTS[name]
    assert kinds(template, talk(calls=2, reasoning="Hm.")) == expected


VALUES = {"n": 7, "f": 0.5, "w": 2.0, "m": -3, "z": 0, "o": 0.0, "t": True, "u": False, "e": None, "l": [], "d": {}}
NESTED = {"k": [1, True, {"x": [None, 0.25]}, [], "s", False], "empty": ""}


@pytest.mark.parametrize("arguments", [VALUES, NESTED])
@pytest.mark.parametrize(
    "written",
    [
        "arguments | tojson",
        "arguments | tojson(indent=2)",
        "arguments.items() | list | tojson",
    ],
)
def test_all_values_of_arguments_survive_an_exact_template(arguments, written):
    assert kinds(changed("arguments | tojson", written), talk(arguments=arguments)) == set()
    text = talk(arguments=arguments)
    text[2]["tool_calls"][0]["function"]["arguments"] = json.dumps(arguments)
    assert kinds(changed("arguments | tojson", "arguments"), text) == set()


def each(value):
    """The template with each argument as a tag, as of GLM 4.5, whose value is this expression."""
    tag = "{% for k, v in c.function.arguments.items() %}<k>{{ k }}</k>{{ " + value + " }}{% endfor %}"
    return changed("{{ c.function.arguments | tojson }}", tag)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize(
    ("value", "lost"),
    [
        ("v | tojson", ""),
        ("v if v else ''", "zouled"),
        ("v | int if v is number else v | tojson", "fwotu"),
        ("v | float if v is number else v | tojson", "nmztu"),
        ("v | abs if v is number and v is not boolean else v | tojson", "m"),
        ("v | string if v is string else ''", "nfwmzotueld"),
        ("v | tojson if v is not none else ''", "e"),
        ("'' if v is boolean else v | tojson", "tu"),
        ("v | tojson if v else ''", "zouled"),
    ],
)
def test_a_value_that_a_template_loses_or_changes_is_named(name, value, lost):
    found = kinds(each(value), talk(arguments={name: VALUES[name], "more": "x"}))
    assert found - {"python_values"} == ({"call_part_lost"} if name in lost else set())


@pytest.mark.parametrize("value", [7, 0.5, None, True, 0, [], {}, "x"])
def test_a_nested_value_that_is_lost_is_named(value):
    """Only texts of a list are written."""
    template = each("v | select('string') | list | tojson")
    assert kinds(template, talk(arguments={"k": [value, "y"]})) == (set() if value == "x" else {"call_part_lost"})


@pytest.mark.parametrize("length", [200, 1_000, 2_000])
@pytest.mark.parametrize("role", ["system", "user", "tool"])
def test_a_template_that_cuts_texts_is_named(length, role):
    template = changed("{{ m.content }}", f"{{{{ m.content[:{length}] if m.role == '{role}' else m.content }}}}")
    assert kinds(template, talk()) == {"text_cut"}


def test_a_middle_that_is_cut_and_an_end_far_behind_are_named():
    middle = changed("{{ m.content }}", "{{ m.content[:500] }}{{ m.content[-500:] }}")
    assert kinds(middle, talk()) == {"text_cut"}
    end = changed("{{ m.content }}", "{{ m.content[:9000] }}")
    assert (kinds(end, talk()), kinds(end, talk(text="a" * 9_001))) == (set(), {"text_cut"})


def test_texts_of_arguments_that_are_cut_are_named():
    assert kinds(each("v[:100]"), talk(arguments={"a": "x"})) == {"call_part_lost"}
    assert kinds(each("v[:300]"), talk(arguments={"a": "x" * 301})) == {"call_part_lost"}


@pytest.mark.parametrize(
    ("template", "renderings"), [(EXACT, 2), (changed("{{ m.content }}", "{{ m.content }}{{ m.tool_call_id }}"), 3)]
)
def test_rows_that_differ_in_words_are_rendered_once(template, renderings, monkeypatch):
    rendered, render = [], Rendering.render
    monkeypatch.setattr(Rendering, "render", lambda *given: rendered.append(1) or render(*given))
    renderer = Renderer(ChatTemplate(title="t", text=template))
    for word, number in (("a", 1), ("b", 2), ("c", 0)):
        row = talk(text=word, arguments={word: word, "n": number})
        row[2]["tool_calls"][0]["id"] = row[3]["tool_call_id"] = f"call_{word}"
        assert renderer.judge((row, [TOOL])).kinds == ()
    # 0 is a value of its own, and so is an id that the template reads.
    assert len(rendered) == renderings


def test_the_name_of_a_result_does_not_hide_a_lost_name_or_call():
    named = changed("{{ m.content }}", "{{ m.name }}{{ m.content }}")
    assert kinds(named, talk(arguments={})) == set()
    assert kinds(named.replace("{{ c.function.name }}", ""), talk()) == {"call_part_lost"}
    assert kinds(named.replace("m.tool_calls or []", "[]"), talk(arguments={})) == {"call_lost"}


def test_text_with_the_tag_of_thoughts_is_cut():
    """As in Qwen 3: what stands before the tag is lost."""
    template = changed("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
    messages = talk(text="I say </think> and add.")
    assert kinds(template, messages) == {"text_cut"}
    assert kinds(template, talk()) == set()


def test_text_before_the_tag_that_becomes_reasoning_is_cut():
    """As in Qwen 3: all of the text is rendered, but the model learns a part of it as its reasoning."""
    template = changed("{{ m.content }}", "<think>{{ m.content.split('</think>') | join('\n</think>\n') }}")
    assert kinds(template, talk(text="I say </think> and add.")) == {"text_cut"}
    assert kinds(template, talk()) == set()


def test_text_arguments_are_encoded_twice_by_a_template_for_objects():
    text = talk()
    text[2]["tool_calls"][0]["function"]["arguments"] = json.dumps({"a": "x"})
    assert kinds(EXACT, text) == {"arguments_as_text"}
    assert kinds(changed("arguments | tojson", "arguments"), text) == set()


def test_object_arguments_raise_in_a_template_for_text():
    verdict = Renderer(
        ChatTemplate(title="t", text=changed("c.function.arguments | tojson", "'' + c.function.arguments"))
    )
    found = verdict.judge((talk(), None))
    assert found.kinds == ("raised",)
    assert "TypeError" in found.error


def test_templates_read_no_attributes_of_python():
    found = Renderer(ChatTemplate(title="t", text="{{ messages.__class__.__mro__ }}")).judge((talk(), None))
    assert found.kinds == ("raised",)
    assert "SecurityError" in found.error


def test_generation_tags_and_loop_controls_are_those_of_the_trainer():
    template = EXACT.replace("{{ m.content }}", "{% generation %}{{ m.content }}{% endgeneration %}{% continue %}")
    assert "call_lost" in kinds(template, talk())
    assert "text_lost" not in kinds(template, talk())


SAME = [
    (talk(text="One."), talk(text="Another.")),
    (talk(arguments={"a": "x"}), talk(arguments={"b": "y"})),
    (talk(arguments={"a": 1, "b": 2.5}), talk(arguments={"a": 90, "b": 0.1})),
]
OTHER = [
    (talk(), talk(text="")),
    (talk(), talk(calls=2)),
    (talk(), talk(reasoning="Hm.")),
    (talk(), talk(text="a </think> b")),
    (talk(arguments={"a": "x"}), talk(arguments={"a": None})),
    (talk(arguments={"a": "x"}), talk(arguments={"a": {"b": "x"}})),
    (talk(arguments={}), talk(arguments={"a": "x"})),
    (talk(arguments={"a": 1}), talk(arguments={"a": 0})),
    (talk(arguments={"a": 1}), talk(arguments={"a": -1})),
    (talk(arguments={"a": 1.0}), talk(arguments={"a": 1.5})),
    (talk(arguments={"a": True}), talk(arguments={"a": False})),
    (talk(), talk()[1:]),
]


@pytest.mark.parametrize("pair", SAME)
def test_shapes_ignore_texts_and_names(pair):
    assert find_shape(pair[0], [TOOL]) == find_shape(pair[1], [TOOL])


@pytest.mark.parametrize("pair", OTHER)
def test_shapes_differ_by_what_templates_distinguish(pair):
    assert find_shape(pair[0], [TOOL]) != find_shape(pair[1], [TOOL])


def test_shapes_of_tools_differ_by_nulls_and_keywords():
    def tool(**schema):
        return [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", **schema}}}]

    shapes = [
        find_shape(talk(), tools)
        for tools in (None, [], [TOOL], tool(), tool(title=None), tool(title="T"), tool(required=["a"]))
    ]
    assert len(set(shapes)) == len(shapes)


def test_long_conversations_repeat_their_shape():
    loop = talk()[2:4]
    assert find_shape([*talk()[:2], *loop * 5], None) == find_shape([*talk()[:2], *loop * 9], None)
    assert find_shape([*talk()[:2], *loop], None) != find_shape([*talk()[:2], *loop * 2], None)


def test_parallel_calls_become_turns_with_their_own_results():
    messages = talk(calls=3, reasoning="Hm.")
    messages[3], messages[5] = messages[5], messages[3]  # results in another order
    made = [one for one, _ in split_calls(messages)]
    assert [one["role"] for one in made[2:]] == ["assistant", "tool"] * 3 + ["assistant"]
    turns = made[2:8:2]
    assert [one["tool_calls"][0]["id"] for one in turns] == ["c0", "c1", "c2"]
    assert [one["tool_call_id"] for one in made[3:8:2]] == ["c0", "c1", "c2"]
    assert [one["content"] for one in turns] == ["I add.", "", ""]
    assert [one.get("reasoning_content") for one in turns] == ["Hm.", None, None]


@pytest.mark.parametrize("left", [4, 3])
def test_calls_without_a_result_each_stay_in_one_turn(left):
    messages = talk(calls=2)[:left]
    assert [one for one, _ in split_calls(messages)] == messages


def test_tokenizer_folders_are_read_and_never_run(tmp_path):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenization_custom.py").write_text("raise SystemExit('it ran')")
    config = {
        "auto_map": {"AutoTokenizer": ["tokenization_custom.T", None]},
        "bos_token": {"content": "<s>"},
        "eos_token": "</s>",
        "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    found = read_template(str(folder), "", allowed=[str(tmp_path)])
    assert (found.text, found.tool_text) == ("D", "T")
    assert found.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "chat_template.jinja").write_text("newer")
    assert read_template(str(folder), "", allowed=[str(tmp_path)]).text == "newer"
    assert read_template(str(folder / "chat_template.jinja"), "", allowed=[str(tmp_path)]).text == "newer"
    # As transformers saves a tokenizer with two templates.
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("newer, with tools")
    found = read_template(str(folder), "", allowed=[str(tmp_path)])
    assert (found.text, found.tool_text) == ("newer", "newer, with tools")


def test_only_allowed_folders_are_read(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "t.jinja").write_text("secret")
    (inside / "link.jinja").symlink_to(outside / "t.jinja")
    (inside / "chat_template.jinja").symlink_to(outside / "t.jinja")
    for path in (outside / "t.jinja", inside / "link.jinja", inside / ".." / "out" / "t.jinja", inside, inside / "no"):
        with pytest.raises(TemplateRefused, match="GYMWEB_TOKENIZERS"):
            read_template(str(path), "", allowed=[str(inside)])
    with pytest.raises(TemplateRefused, match="no folder"):
        read_template(str(outside / "t.jinja"), "", allowed=[])


@pytest.mark.parametrize("named", ["trl/../secret", "os/path", "llama3_1", "../x", "trl/"])
def test_other_families_are_refused(named):
    with pytest.raises(TemplateRefused):
        read_template(named, "", allowed=["/"])
