"""Code that connects an external agent to a collection, for each client library."""

from dataclasses import dataclass

_LOOP = """\
import asyncio

{imports}
from gymweb_client import AsyncGymWeb


async def work(gym):
    while attempt := await gym.attempt({collection}, wait_seconds=10):
        async with attempt{entered}:
{body}


async def main():
    async with AsyncGymWeb("{base}", "gw_…") as gym:
        await asyncio.gather(*(work(gym) for _ in range(8)))


asyncio.run(main())
"""
_OPENAI_CLIENT = ", openai.AsyncOpenAI(base_url=attempt.openai_base_url, api_key=attempt.api_key) as client"
_OPENAI = """\
            await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": attempt.prompt}]
            )"""
_AGENTS = """\
            agents.set_tracing_disabled(True)
            model = agents.OpenAIChatCompletionsModel(model="any", openai_client=client)
            agent = agents.Agent(name="agent", model=model)
            result = await agents.Runner.run(agent, attempt.prompt)
            await attempt.finish(str(result.final_output))"""
_ANTHROPIC_CLIENT = ", anthropic.AsyncAnthropic(base_url=attempt.anthropic_base_url, api_key=attempt.api_key) as client"
_ANTHROPIC = """\
            await client.messages.create(
                model="any", max_tokens=4096, messages=[{"role": "user", "content": attempt.prompt}]
            )"""
_CURL = """\
# Take an attempt. The reply has its rollout, its key and the addresses of the model.
curl -s {base}/api/v1/attempts/ -H "Authorization: Bearer $GYMWEB_KEY" \\
  -H "Idempotency-Key: $(uuidgen)" -H 'Content-Type: application/json' \\
  -d '{{"collection": {collection}, "wait_seconds": 10}}' > attempt.json

# Call the model.
curl -s $(jq -r .openai_base_url attempt.json)/chat/completions -H 'Content-Type: application/json' \\
  -H "Authorization: Bearer $(jq -r .api_key attempt.json)" \\
  -d '{{"model": "any", "messages": [{{"role": "user", "content": "Hello"}}]}}'

# Finish the attempt.
curl -s {base}/api/v1/attempts/$(jq .rollout attempt.json)/finish/ -H "Authorization: Bearer $GYMWEB_KEY" \\
  -H 'Content-Type: application/json' -d "{{\\"attempt\\": $(jq .attempt attempt.json)}}"
"""


@dataclass(frozen=True, slots=True)
class Snippet:
    """`slug` is unique on the page, `packages` are the arguments of `pip install`."""

    slug: str
    title: str
    code: str
    packages: str = ""


def write_snippets(base: str, collection: int) -> list[Snippet]:
    """Return the snippets for a collection of the server at `base`, a URL without a final slash."""

    def loop(imports: str, entered: str, body: str) -> str:
        return _LOOP.format(imports=imports, entered=entered, body=body, base=base, collection=collection)

    return [
        Snippet("openai", "openai", loop("import openai", _OPENAI_CLIENT, _OPENAI), "openai"),
        Snippet(
            "openai-agents",
            "openai-agents",
            loop("import agents\nimport openai", _OPENAI_CLIENT, _AGENTS),
            "openai-agents",
        ),
        Snippet("anthropic", "anthropic", loop("import anthropic", _ANTHROPIC_CLIENT, _ANTHROPIC), "anthropic"),
        Snippet("curl", "curl", _CURL.format(base=base, collection=collection)),
    ]
