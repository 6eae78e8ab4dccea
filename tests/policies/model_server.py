"""Stands where vLLM's server module stands: answers /health, or behaves as the name of its model's folder says."""

import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_):
        pass


def option(name):
    return sys.argv[sys.argv.index(name) + 1]


def main():
    print("arguments:", *sys.argv[1:], flush=True)
    print("offline:", os.environ.get("HF_HUB_OFFLINE"), "cpu:", os.environ.get("VLLM_CPU_KVCACHE_SPACE"), flush=True)
    behaviour = Path(option("--model")).name
    if behaviour == "dying":
        print("there is no memory for that", flush=True)
        sys.exit(7)
    if behaviour == "silent":
        time.sleep(3600)
    engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    print(f"engine {engine.pid}", flush=True)
    server = HTTPServer((option("--host"), int(option("--port"))), Handler)
    if behaviour == "short-lived":
        server.timeout = 60
        server.handle_request()
        sys.exit("the engine died")
    server.serve_forever()


main()
