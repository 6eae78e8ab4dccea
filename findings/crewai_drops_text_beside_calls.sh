#!/bin/sh
# crewai 1.15.30: the next request lacks the text that the model wrote beside a tool call.
#
# The model answers "First, I multiply." together with a tool call. The next request repeats the call with empty content.
# Expected: the text is in the history, as the API of chat completions allows. So the model continues a conversation
# that it did not write, and its tokens do not match the prompt. Output seen:
#
#     reply: 'First, I multiply.' with 1 call; resent: None with 1 call
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet crewai==1.15.30
HOME=$folder CREWAI_DISABLE_TELEMETRY=true OTEL_SDK_DISABLED=true CREWAI_TRACING_ENABLED=false \
    "$folder/bin/python" -W ignore - <<'END' | tail -n 1 | tee "$folder/seen"
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

requests = []
call = {"id": "c1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 6, "b": 7}'}}
replies = [{"content": "First, I multiply.", "tool_calls": [call]}, {"content": "42"}]


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        reply = replies[min(len(requests), 2) - 1]
        finish = "tool_calls" if "tool_calls" in reply else "stop"
        choice = {"index": 0, "message": {"role": "assistant", **reply}, "finish_reason": finish}
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
    """Multiply two numbers."""
    return a * b


server = HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
llm = LLM("openai/m", base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none")
agent = Agent(role="solver", goal="Solve tasks", backstory="You calculate.", tools=[multiply], llm=llm)
Crew(agents=[agent], tasks=[Task(description="What is 6 * 7?", expected_output="a number", agent=agent)]).kickoff()
(resent,) = (one for one in requests[1]["messages"] if one["role"] == "assistant")
print(
    f"reply: {replies[0]['content']!r} with {len(replies[0]['tool_calls'])} call; "
    f"resent: {resent.get('content') or None!r} with {len(resent['tool_calls'])} call"
)
END
grep -qx "reply: 'First, I multiply.' with 1 call; resent: None with 1 call" "$folder/seen"
