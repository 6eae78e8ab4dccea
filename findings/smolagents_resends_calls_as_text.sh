#!/bin/sh
# smolagents 1.26.0: ToolCallingAgent resends the model's tool calls as a text of the assistant.
#
# The model answers with a tool call. The next request has no `tool_calls` and no message of the role `tool`, but an
# assistant message "Calling tools: [...]" and a user message "Observation: ...".
# Expected: the call and its result in the form in which the API gave and takes them. A model sees its own turns in a
# form that it does not write, prompts never continue the tokens of the call before, and caches of prefixes miss.
# Output seen:
#
#     resent roles: system user assistant user; tool_calls: 0; assistant begins: 'Calling tools:'
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet "smolagents[openai]==1.26.0"
cat > "$folder/agent.py" <<'END'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from smolagents import OpenAIModel, ToolCallingAgent, tool

requests = []
calls = [("multiply", '{"a": 6, "b": 7}'), ("final_answer", '{"answer": "42"}')]


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        name, arguments = calls[len(requests) - 1]
        call = {"id": f"c{len(requests)}", "type": "function", "function": {"name": name, "arguments": arguments}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
        body = {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a * b


server = HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
model = OpenAIModel("m", api_base=f"http://127.0.0.1:{server.server_port}/v1", api_key="none")
ToolCallingAgent([multiply], model, verbosity_level=-1).run("What is 6 * 7?")
messages = requests[1]["messages"]
content = messages[2]["content"]
text = content if isinstance(content, str) else content[0]["text"]
seen = (
    f"resent roles: {' '.join(one['role'] for one in messages)}; "
    f"tool_calls: {sum(len(one.get('tool_calls') or ()) for one in messages)}; assistant begins: {text[:14]!r}"
)
print(seen)
assert seen == "resent roles: system user assistant user; tool_calls: 0; assistant begins: 'Calling tools:'"
END
"$folder/bin/python" -W ignore "$folder/agent.py"
