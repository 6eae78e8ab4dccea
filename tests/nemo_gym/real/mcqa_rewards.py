"""Print the rewards of NeMo Gym 0.7's mcqa for the table of multiple-choice replies, as one JSON list.

    $(scripts/build_environment.py nemo)/bin/python tests/nemo_gym/real/mcqa_rewards.py

That Python needs `nemo-gym==0.7.0` and its requirements. A reply that makes NeMo Gym fail has null.
"""

import asyncio
import json
import logging
import runpy
import sys
from importlib.metadata import distribution
from pathlib import Path
from unittest.mock import MagicMock

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.gym.verifiers.choice_forms import Form, read_forms

VERSION = "0.7.0"


def reward_of(app: dict, form: Form) -> float | None:
    config = app["MCQAResourcesServerConfig"](host="127.0.0.1", port=1, entrypoint="", name="", grading_mode=form.mode)
    server = app["MCQAResourcesServer"].model_construct(config=config, server_client=MagicMock())
    content = [{"type": "output_text", "text": form.reply, "annotations": []}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    request = app["MCQAVerifyRequest"](
        responses_create_params={"input": "?"},
        response={
            "id": "r",
            "created_at": 0.0,
            "model": "m",
            "object": "response",
            "output": [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        },
        options=[{letter: text} for letter, text in form.options.items()],
        expected_answer=form.expected,
        template_metadata=form.metadata,
    )
    try:
        return asyncio.run(server.verify(request)).reward
    except AttributeError:  # Its code fails on patterns with several groups.
        return None


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    package = distribution("nemo-gym")
    if package.version != VERSION:
        sys.exit(f"This Python has nemo-gym {package.version}. Use one with {VERSION}.")
    app = runpy.run_path(str(package.locate_file("resources_servers/mcqa/app.py")))
    print(json.dumps([reward_of(app, form) for form in read_forms()]))
