# pi (npm install @mariozechner/pi-coding-agent) with a provider of its own.
set -eu
mkdir -p "$HOME/.pi/agent"
cat > "$HOME/.pi/agent/models.json" <<END
{
  "providers": {
    "gymweb": {
      "baseUrl": "$OPENAI_BASE_URL",
      "api": "openai-completions",
      "apiKey": "$OPENAI_API_KEY",
      "models": [{"id": "any"}]
    }
  }
}
END
PI_OFFLINE=1 pi --model gymweb/any --print "$PROMPT"
