"""In the trainers' environment: render conversations with the chat templates of families, as trainers do.

`template_families.py IN OUT FAMILY…` reads a JSON list of `{messages, tools}` and writes, by family, for each
conversation its text, or null if the template raises.
"""

import json
import sys
from pathlib import Path

import trl
from transformers.utils.chat_template_utils import render_jinja_template

TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>"}


def rendered(template: str, one: dict) -> str | None:
    try:
        texts, _ = render_jinja_template([one["messages"]], tools=one["tools"], chat_template=template, **TOKENS)
        return texts[0]
    except Exception:
        return None


def main() -> None:
    given, out = map(Path, sys.argv[1:3])
    folder = Path(trl.__file__).parent / "chat_templates"
    conversations = json.loads(given.read_text())
    found = {
        name: [rendered((folder / f"{name}.jinja").read_text(), one) for one in conversations] for name in sys.argv[3:]
    }
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
