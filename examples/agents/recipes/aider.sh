# aider (pip install aider-chat): it writes a program, runs it, and corrects it until it runs without an error.
set -eu
aider --model openai/any --yes-always --no-git --no-pretty --no-check-update --no-show-model-warnings \
  --analytics-disable --auto-test --test-cmd "python3 answer.py" \
  --message "$PROMPT Write answer.py, which prints the answer." answer.py >&2
python3 answer.py
