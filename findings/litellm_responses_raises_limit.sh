#!/bin/sh
# litellm 1.108.7: over the Responses API, a limit of 5 output tokens becomes 16 for every server, without a warning.
#
# OpenAI's own servers refuse less than 16 tokens. litellm raises the limit also for other providers, as hosted_vllm,
# whose servers take it. Chat completions keep the limit.
# Expected: the server gets the limit of the request, and decides. Output seen:
#
#     chat completions: 5, responses: 16
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"${PYTHON:-python3.13}" -m venv "$folder"
"$folder/bin/pip" install --quiet litellm==1.108.7
LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/bin/python" -W ignore - <<'END'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm

limits = {}
message = {"role": "assistant", "content": "Yes."}
chat = {
    "id": "r",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}
part = {"type": "output_text", "text": "Yes.", "annotations": []}
response = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [{"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]}],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_chat = self.path.endswith("/chat/completions")
        if is_chat:
            limits["chat completions"] = body["max_tokens"]
        else:
            limits["responses"] = body["max_output_tokens"]
        data = json.dumps(chat if is_chat else response).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
given = {"model": "hosted_vllm/m", "api_base": f"http://127.0.0.1:{server.server_port}/v1", "api_key": "none"}
litellm.completion(messages=[{"role": "user", "content": "Is 6 * 7 = 42?"}], max_tokens=5, **given)
litellm.responses(input="Is 6 * 7 = 42?", max_output_tokens=5, **given)
seen = ", ".join(f"{api}: {limit}" for api, limit in limits.items())
print(seen)
assert seen == "chat completions: 5, responses: 16"
END
