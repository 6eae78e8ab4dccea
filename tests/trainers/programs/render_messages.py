"""In the trainers' environment: render conversations with chat templates that TRL ships.

`render_messages.py IN OUT TEMPLATE…` reads from IN a JSON list of `{messages, tools}` and writes to OUT a JSON object:
for each template, by its name, the text of each conversation.
"""

import json
import sys
from pathlib import Path

import trl
from transformers.utils.chat_template_utils import _compile_jinja_template


def main() -> None:
    given, out = map(Path, sys.argv[1:3])
    conversations = json.loads(given.read_text())
    folder = Path(trl.__file__).parent / "chat_templates"
    found = {}
    for name in sys.argv[3:]:
        template = _compile_jinja_template((folder / name).read_text())
        found[name] = [template.render(**one, add_generation_prompt=False) for one in conversations]
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
