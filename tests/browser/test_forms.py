"""What texts become on a page, in a browser without a site: what a trace holds is what is read."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.gymweb.serving import ROOT

pytestmark = pytest.mark.slow
SCRIPTS = [
    *sorted(Path(ROOT, "static/vendor").glob("marked-*/marked.umd.js")),
    *sorted(Path(ROOT, "static/vendor").glob("dompurify-*/purify.min.js")),
]
RENDER = """async texts => {
  const { readMarkdown } = await import("/js/markdown.js");
  return texts.map(text => {
    const shown = document.createElement("div");
    shown.append(readMarkdown(text, marked, DOMPurify));
    for (const br of shown.querySelectorAll("br")) br.replaceWith("\\n");
    return [shown.textContent.trim(), shown.innerHTML];
  });
}"""
SHOW = """async ([form, texts]) => {
  const { show } = await import("/js/forms.js");
  const made = [];
  for (const text of texts) made.push((await show(text, form, {}, "")).innerHTML);
  return made;
}"""
CELLS = """html => {
  const all = document.createElement("div");
  all.innerHTML = html;
  return [[...all.querySelectorAll("td")].map(each => each.textContent), all.querySelector("pre")?.textContent];
}"""
AS_WRITTEN = [
    "17*23*2 = 782 and 2*3*4",
    "so 2**n + 3**m and x**2**3, a*b*c",
    "(a)**2 + (b)**2 - (c)**2",
    "(x)*y*(z) and 6/*x*/2 and ^.*foo.*$",
    '"*.py" and "*.js"',
    "__init__.py, __name__ and obj.__class__.__name__",
    "the method __init__ takes _args_list_ no: snake_case_name",
    r"\(a_1 * b_2 * c\) and \[x^2 * y * z\]",
    "$a *b$ and $c* d$, $x_1$ and $x_2$",
    "$$\nx\n+ y\n- z\n= 3\n===\n$$",
    "so:\n\\[\na * b *\n- c\n\\]",
    "\\begin{align}\na &= b \\\\\n- c * d * e\n\\end{align}",
    "about ~3~ or ~4~ of them",
    r"\*not em\* \_ \# C:\new\_dir \\ \$5",
    "cc -o x \\\n  x.c",
    "&lt;b&gt; &amp;amp; &#42; <b>no markup</b> <pre>a</pre>",
    "<answer>\n42\n</answer>",
    "f[i](x) and a[0](b, c)",
    "[1]: https://example.org/ the source",
    ">>> print(1)\n>= 5",
    "a\n--\nb",
    "the * in 5 * 3 * 2",
    "*args, **kwargs and **opts",
    "price $5 and $6",
    "a |b| c || d",
]
MARKUP = [
    ("**bold** and *em*, _em_ and ***both***", "bold and em, em and both", "<strong>bold</strong>"),
    ("The total is **$42** or **$10**.", "The total is $42 or $10.", "<strong>$42</strong>"),
    ("**Answer**: 5 (*so*)", "Answer: 5 (so)", "<strong>Answer</strong>"),
    ("这是**重点**内容", "这是重点内容", "<strong>重点</strong>"),
    ("~~gone~~", "gone", "<del>gone</del>"),
    ("`a*b*c` and `__x__`", "a*b*c and __x__", "<code>a*b*c</code>"),
    ("# Title", "Title", "<h4>Title</h4>"),
    ("> said", "said", "<blockquote>"),
    ("[a](https://a.example/)", "a", 'href="https://a.example/"'),
    ("3. c\n7. d", "c\nd", '<li value="7">d</li>'),
    ("2) b", "b", '<ol class="paren">'),
    ("+ 4", "4", '<ul class="plus">'),
    ("**a *b* c**", "a b c", "<strong>a <em>b</em> c</strong>"),
    ("**bold with $x*y$ in it**", "bold with $x*y$ in it", "<strong>"),
]


def serve(route: Route) -> None:
    path = urlsplit(route.request.url).path
    if path == "/":
        route.fulfill(content_type="text/html", body="<!doctype html>")
    else:
        route.fulfill(path=Path(ROOT, f"static{path}"))


@pytest.fixture(scope="module")
def blank(chromium: Browser) -> Any:
    context = chromium.new_context()
    page = context.new_page()
    # Nothing is sent: what the page asks for comes from the source tree.
    page.route("**/*", serve)
    page.goto("http://127.0.0.1/")
    for script in SCRIPTS:
        page.add_script_tag(path=script)
    yield page
    context.close()


def test_markdown_keeps_every_character_that_is_not_certainly_markup(blank: Page):
    shown = blank.evaluate(RENDER, AS_WRITTEN)
    assert [text for text, _ in shown] == AS_WRITTEN


def test_markdown_that_is_certainly_markup_is_shown_so(blank: Page):
    shown = blank.evaluate(RENDER, [source for source, _, _ in MARKUP])
    assert [text for text, _ in shown] == [text for _, text, _ in MARKUP]
    assert [wanted for (_, _, wanted), (_, html) in zip(MARKUP, shown, strict=True) if wanted not in html] == []


def test_no_text_takes_long(blank: Page):
    units = ["$", "\\(", "$a *b ", "*a", "**a $$ ", "a\n\n", "\\[\n", "_a_ ~~", "[a](", "`$"]
    took = blank.evaluate(
        """async texts => {
          const { readMarkdown } = await import("/js/markdown.js");
          return texts.map(text => {
            const from = performance.now();
            readMarkdown(text, marked, DOMPurify);
            return performance.now() - from;
          });
        }""",
        [(unit * 20_000)[:20_000] for unit in units],
    )
    assert {unit: each for unit, each in zip(units, took, strict=True) if each > 2_000} == {}


def test_json_keeps_numbers_and_names_as_written(blank: Page):
    table = '[{"id":12345678901234567890,"x":1.0,"s":"a\\u00e9"},{"id":9007199254740993,"x":2.50,"s":null}]'
    twice = '{"a":1e400,"a":2.50,"b":[],"c":{},"d":[1,{"e":-0.0}],"rows":[{"n":1.10},{"n":1e2}]}'
    first, second, cut = blank.evaluate(SHOW, ["json", [table, twice, '{"a": [1.0, 12345678901234567890, "ab']])
    cells = blank.evaluate(CELLS, first)
    assert cells == [["12345678901234567890", "1.0", "aé", "9007199254740993", "2.50", "null"], None]
    cells = blank.evaluate(CELLS, second)
    lines = [
        "{",
        '  "a": 1e400,',
        '  "a": 2.50,',
        '  "b": [],',
        '  "c": {},',
        '  "d": [',
        "    1,",
        "    {",
        '      "e": -0.0',
        "    }",
        "  ]",
        "}",
    ]
    assert cells == [["1.10", "1e2"], "\n".join(lines)]
    assert "12345678901234567890" in cut
    assert '"ab' in cut


def test_terminals_keep_their_colours_and_weights(blank: Page):
    cases = {
        "\x1b[38;2;250;40;40mred\x1b[0m": ("red", "sgr-1"),
        "\x1b[38:2::40:250:40mgreen\x1b[m": ("green", "sgr-2"),
        "\x1b[38;5;196mred\x1b[39m": ("red", "sgr-1"),
        "\x1b[1;4mboth\x1b[0m": ("both", "sgr-bold sgr-underline"),
        "\x1b[7minverse\x1b[27m": ("inverse", "sgr-inverse"),
        "\x1b[48;2;0;0;255;1mx\x1b[0m": ("x", "sgr-bold sgr-back-4"),
        "\x1b[4:0;9mx\x1b[0m": ("x", "sgr-struck"),
    }
    shown = blank.evaluate(SHOW, ["ansi", [*cases, "\x1b[2K10 %\r20 %\r\n"]])
    pre = '<pre class="code terminal">'
    wanted = [f'{pre}<span class="{names}">{text}</span></pre>' for text, names in cases.values()]
    assert shown == [*wanted, f"{pre}10 %\n20 %\n</pre>"]


def test_a_removed_line_of_a_diff_that_begins_like_a_heading_is_a_removed_line(blank: Page):
    diff = "--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,2 @@\n same\n--- a comment\n+++ one more\n--- a/y.sql\n+++ b/y.sql"
    (shown,) = blank.evaluate(SHOW, ["diff", [diff]])
    kinds = ["file", "file", "hunk", "removed", "added", "file", "file"]
    assert re.findall('class="diff-([a-z]+)"', shown) == kinds


def test_the_current_item_is_marked_without_colours_and_scrolled_below_the_bar(chromium: Browser):
    page = chromium.new_page(viewport={"width": 700, "height": 400}, forced_colors="active")
    page.set_content(
        """<html data-theme="dark"><header class="top">bar</header><nav class="nav">
        <a href="#s" aria-current="page">a</a><a href="#s">b</a></nav>
        <p class="theme"><button value="dark">x</button></p><p style="height: 90rem"></p>
        <div class="step verdict" id="s">head<pre>text</pre></div><p style="height: 90rem"></p>"""
    )
    for name in ("gymweb", "trace"):
        page.add_style_tag(path=Path(ROOT, f"static/css/{name}.css"))
    lines = "each => getComputedStyle(document.querySelector(each)).outlineStyle"
    marked = ["[aria-current]", "nav a:last-child", "button"]
    assert [page.evaluate(lines, each) for each in marked] == ["solid", "none", "solid"]
    page.evaluate("document.getElementById('s').scrollIntoView({ block: 'start' })")
    top = page.evaluate("document.getElementById('s').getBoundingClientRect().top")
    assert top >= page.evaluate("document.querySelector('.top').getBoundingClientRect().bottom")
    # The card of a verdict that is compared is no button of a verdict that is given.
    assert page.evaluate("getComputedStyle(document.getElementById('s')).display") == "block"
    page.close()


def test_the_form_of_an_agent_shows_the_fields_of_its_kind(site, tab):
    tab.goto(f"{site.base}/agents/new/")
    parallel = tab.locator("[name=parallel_tool_calls]")
    expect(parallel).to_be_visible()
    tab.locator("[name=kind]").select_option("external")
    expect(parallel).to_be_hidden()
    expect(tab.locator("[name=max_steps]")).to_be_visible()
