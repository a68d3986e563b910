#!/usr/bin/env bash
#SBATCH --job-name=prerouter-teach
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#
# The teach stage on a SLURM cluster: the machines of the job serve the teacher, and prerouter asks
# it from the first of them. A job that was ended goes on with what is missing when it is begun
# again, so its time limit may be shorter than the work.
#
#   sbatch --nodes 2 --gpus-per-node 8 scripts/teach_slurm.sh [--dry-run] [--by WAY] RECIPE MODEL \
#     [any option of `vllm serve`]
#
# WAY is ranks, ray or replicas as in serve_teacher_nodes.sh, or `ray-data`: then there is no server
# but one vLLM replica a machine under Ray Data (`engine: {kind: ray}`), with the engine settings of
# the recipe, which has to be of kind vllm or ray; any machine may be lost.
#
#   sbatch --nodes 4 --gpus-per-node 8 scripts/teach_slurm.sh --by ray-data RECIPE
#
# Run it from the repository's folder. PORT, CLUSTER_PORT, PYTHON and SECONDS_TO_START (3600) are
# taken from the environment. --dry-run prints every command and checks what it can, with or without
# SLURM; NODES stands for the number of machines then (2).
set -euo pipefail

usage="usage: $0 [--dry-run] [--by ranks|ray|replicas|ray-data] RECIPE MODEL [any option of vllm serve]"
fail() {
  echo "$0: $1" >&2
  exit 2
}

dry_run= by=ranks
while [ "$#" -gt 0 ]; do
  case $1 in
    --dry-run) dry_run=1 && shift ;;
    --by) [ "$#" -ge 2 ] || fail "--by needs a value" && by=$2 && shift 2 ;;
    --*) fail "$1 is unknown here; options of vllm serve come after the model" ;;
    *) break ;;
  esac
done
[[ $by =~ ^(ranks|ray|replicas|ray-data)$ ]] || fail "--by takes ranks, ray, replicas or ray-data"
[ "$#" -ge 1 ] || fail "no recipe; $usage"
recipe=$1
shift
[ -f "$recipe" ] || fail "$recipe: no such recipe"
if [ "$by" = ray-data ]; then
  [ "$#" -eq 0 ] || fail "$1: with ray-data the recipe names the model and its settings"
else
  [ "$#" -ge 1 ] || fail "no model; $usage"
fi

# SLURM runs a copy of this file from a folder of its own.
scripts=${SLURM_SUBMIT_DIR:+$SLURM_SUBMIT_DIR/scripts}
scripts=${scripts:-$(dirname "$0")}
[ -f "$scripts/serve_teacher_nodes.sh" ] || fail "$scripts: submit it from the repository's folder"
python=${PYTHON:-python3}
port=${PORT:-8000}
if [ -n "${SLURM_JOB_NODELIST-}" ]; then
  nodes=$SLURM_JOB_NUM_NODES
  hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
  head=${hosts%%$'\n'*}
elif [ -n "$dry_run" ]; then
  nodes=${NODES:-2}
  head=node-0
else
  fail "this is no SLURM job; use sbatch, or --dry-run"
fi

prerouter=("$python" -m prerouter)
on_all=(srun --nodes "$nodes" --ntasks "$nodes" --kill-on-bad-exit=1)
if [ "$by" = ray-data ]; then
  work=("${on_all[@]}" ray symmetric-run --address "$head:${CLUSTER_PORT:-6379}"
    --min-nodes "$nodes" -- "${prerouter[@]}" teach "$recipe"
    --set teach.engine.kind=ray --set "teach.engine.replicas=$nodes")
else
  # The engine as flow YAML: names in JSON's quotes, whatever stands in them.
  name=$("$python" -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$1")
  engine="{kind: openai, model: $name, base_url: \"http://127.0.0.1:$port/v1\"}"
  serve=("${on_all[@]}" "$scripts/serve_teacher_nodes.sh" --nodes "$nodes" --head "$head" --by "$by"
    "$@")
  work=("${prerouter[@]}" teach "$recipe" --set "teach.engine=$engine")
fi

if [ -n "$dry_run" ]; then
  show() {
    printf '%q ' "$@"
    echo
  }
  show "${prerouter[@]}" cases "$recipe"
  [ "$by" = ray-data ] || show "${serve[@]}"
  show "${work[@]}"
  if [ "$by" = ray-data ]; then
    sets=(--set teach.engine.kind=ray --set "teach.engine.replicas=$nodes")
  else
    "$scripts/serve_teacher_nodes.sh" --dry-run --nodes "$nodes" --head "$head" --by "$by" "$@"
    sets=(--set "teach.engine=$engine")
  fi
  exec "${prerouter[@]}" check "$recipe" "${sets[@]}"
fi

"${prerouter[@]}" cases "$recipe"
if [ "$by" = ray-data ]; then
  exec "${work[@]}"
fi
"${serve[@]}" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" || true' EXIT
deadline=$((SECONDS + ${SECONDS_TO_START:-3600}))
until "$python" -c '
import sys, urllib.request
urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/health", timeout=5)
' "$port" 2>/dev/null; do
  kill -0 "$server" 2>/dev/null || fail "the server ended; its own lines are above"
  [ "$SECONDS" -lt "$deadline" ] || fail "the server is not up after ${SECONDS_TO_START:-3600} s"
  sleep 5
done
"${work[@]}"
