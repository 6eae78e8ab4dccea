"""Settings of well-known command line agents."""

import msgspec

from apps.gym.boxes.command_spec import CommandSpec


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was tested with the version of the package."""

    title: str
    package: str
    version: str
    spec: CommandSpec


_CODEX_CONFIG = """\
model = "{model}"
model_provider = "gymweb"

[model_providers.gymweb]
name = "GymWeb"
base_url = "{openai_base_url}"
env_key = "GYMWEB_API_KEY"
wire_api = "responses"
"""

PRESETS: dict[str, Preset] = {
    "claude-code": Preset(
        title="Claude Code",
        package="@anthropic-ai/claude-code",
        version="2.1.330",
        spec=CommandSpec(
            command=[
                "claude",
                "-p",
                "{instruction}",
                "--permission-mode",
                "bypassPermissions",
                "--max-turns",
                "{max_turns}",
            ],
            variables={
                "ANTHROPIC_BASE_URL": "{anthropic_base_url}",
                "ANTHROPIC_API_KEY": "{api_key}",
                "ANTHROPIC_MODEL": "{model}",
                "ANTHROPIC_DEFAULT_SONNET_MODEL": "{model}",
                "ANTHROPIC_DEFAULT_OPUS_MODEL": "{model}",
                "ANTHROPIC_DEFAULT_HAIKU_MODEL": "{model}",
                "CLAUDE_CODE_SUBAGENT_MODEL": "{model}",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
                "IS_SANDBOX": "1",
            },
        ),
    ),
    "codex": Preset(
        title="Codex",
        package="@openai/codex",
        version="0.169.0",
        spec=CommandSpec(
            command=[
                "codex",
                "exec",
                "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox",
                "{instruction}",
            ],
            variables={"CODEX_HOME": "{workdir}/.codex", "GYMWEB_API_KEY": "{api_key}"},
            files={".codex/config.toml": _CODEX_CONFIG},
        ),
    ),
}
"""By name. Claude Code keeps its files in the home folder of the sandbox."""
