"""All export formats by slug."""

from apps.gym.exporters import (
    art,
    atif,
    axolotl,
    llama_factory,
    nemo_gym_rollouts,
    nemo_rl,
    openai,
    openrlhf,
    otel_genai,
    scored,
    trl,
    unsloth,
    verifiers_prompts,
    verl,
)
from apps.gym.exporters.branches import offer_branches
from apps.gym.exporters.protocol import Format

_MODULES = [
    trl,
    nemo_rl,
    verl,
    openrlhf,
    axolotl,
    llama_factory,
    unsloth,
    openai,
    verifiers_prompts,
    nemo_gym_rollouts,
    atif,
    otel_genai,
    art,
    scored,
]

FORMATS: dict[str, Format] = {format.slug: offer_branches(format) for module in _MODULES for format in module.FORMATS}
"""In the order in which pages list them."""


class FormatUnknown(Exception):
    """Raised if there is no such format."""


def find_format(slug: str) -> Format:
    """Return a format. Raises FormatUnknown with the available formats."""
    try:
        return FORMATS[slug]
    except KeyError:
        raise FormatUnknown(f"Unknown format {slug}. Choose one of: {', '.join(FORMATS)}.") from None
