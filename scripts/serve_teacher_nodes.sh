#!/usr/bin/env bash
# Serve a teacher by vLLM over several machines. The same command runs on each of them; the first
# one answers at http://HEAD:PORT/v1, for `engine: {kind: openai, base_url: ...}`.
#
#   scripts/serve_teacher_nodes.sh [--dry-run] --nodes N --head HOST [--rank R] [--by WAY] \
#     MODEL [any option of `vllm serve`]
#
# WAY says how the machines work together:
#   ranks     one model, its tensor and pipeline parts on all machines, by vLLM alone (the default)
#   ray       the same over a Ray cluster, which is started for it and stopped after it
#   replicas  whole models, --data-parallel-size of them, as many on each machine, behind one port
#
# R is the number of this machine, 0 being HOST; without --rank it is SLURM_NODEID. `ray` finds it
# out by itself. PORT and PYTHON are taken from the environment as serve_teacher.sh does, and
# CLUSTER_PORT (29501, for `ray` 6379) is where the machines find each other. The network between
# them must be trusted: vLLM's own messages are not encrypted.
#
#   scripts/serve_teacher_nodes.sh --nodes 2 --head node-a --rank 0 deepseek-ai/DeepSeek-R1 \
#     --tensor-parallel-size 8 --pipeline-parallel-size 2 --reasoning-parser deepseek_r1
#
# --dry-run prints the command of each machine and checks it; nothing is started.
set -euo pipefail

usage="usage: $0 [--dry-run] --nodes N --head HOST [--rank R] [--by ranks|ray|replicas] MODEL [any option of vllm serve]"
fail() {
  echo "$0: $1" >&2
  exit 2
}

dry_run= nodes= head= rank=${SLURM_NODEID-} by=ranks
while [ "$#" -gt 0 ]; do
  case $1 in
    --dry-run) dry_run=1 && shift && continue ;;
    --nodes | --head | --rank | --by) [ "$#" -ge 2 ] || fail "$1 needs a value" ;;
    --*) fail "$1 is unknown here; options of vllm serve come after the model" ;;
    *) break ;;
  esac
  case $1 in
    --nodes) nodes=$2 ;;
    --head) head=$2 ;;
    --rank) rank=$2 ;;
    --by) by=$2 ;;
  esac
  shift 2
done
[ "$#" -ge 1 ] || fail "no model; $usage"
[[ $nodes =~ ^[1-9][0-9]*$ ]] || fail "--nodes takes a number of machines"
[[ $head =~ ^[A-Za-z0-9._:-]+$ ]] || fail "--head takes a host name or address"
[[ $by =~ ^(ranks|ray|replicas)$ ]] || fail "--by takes ranks, ray or replicas"
if [ -z "$dry_run" ] && [ "$by" != ray ]; then
  [[ $rank =~ ^[0-9]+$ ]] && [ "$rank" -lt "$nodes" ] || fail "--rank takes 0 to $((nodes - 1))"
fi

# The value of an option of either name, `--name value` or `--name=value`; 1 where it isn't given.
value_of() {
  local long=$1 short=$2 value=1
  shift 2
  while [ "$#" -gt 0 ]; do
    case $1 in
      "$long" | "$short") value=${2-} ;;
      "$long="* | "$short="*) value=${1#*=} ;;
    esac
    shift
  done
  printf '%s' "$value"
}

serve=$(dirname "$0")/serve_teacher.sh
tensor=$(value_of --tensor-parallel-size -tp "$@")
pipeline=$(value_of --pipeline-parallel-size -pp "$@")
replicas=$(value_of --data-parallel-size -dp "$@")
for size in "$tensor" "$pipeline" "$replicas"; do
  [[ $size =~ ^[1-9][0-9]*$ ]] || fail "a parallel size is a number, not $size"
done
if [ "$by" = replicas ]; then
  [ $((replicas % nodes)) -eq 0 ] && [ "$replicas" -ge "$nodes" ] \
    || fail "--data-parallel-size $replicas can't be spread evenly over $nodes machines"
else
  [ $((tensor * pipeline % nodes)) -eq 0 ] \
    || fail "tensor x pipeline size $((tensor * pipeline)) can't be spread evenly over $nodes machines"
fi

# Sets `command` to what machine number $1 runs.
command_of() {
  local this=$1
  shift
  case $by in
    ray)
      # vLLM looks for the cluster by RAY_ADDRESS, which Ray sets for what it runs.
      command=(ray symmetric-run --address "$head:${CLUSTER_PORT:-6379}" --min-nodes "$nodes" --
        "$serve" "$@" --distributed-executor-backend ray)
      ;;
    ranks)
      command=("$serve" "$@" --nnodes "$nodes" --node-rank "$this" --master-addr "$head"
        --master-port "${CLUSTER_PORT:-29501}")
      ;;
    replicas)
      command=("$serve" "$@" --data-parallel-size-local $((replicas / nodes))
        --data-parallel-address "$head" --data-parallel-rpc-port "${CLUSTER_PORT:-29501}")
      ;;
  esac
  [ "$by" = ray ] || [ "$this" -eq 0 ] || command+=(--headless)
  [ "$by" != replicas ] || [ "$this" -eq 0 ] \
    || command+=(--data-parallel-start-rank $((this * replicas / nodes)))
}

if [ -z "$dry_run" ]; then
  command_of "${rank:-0}" "$@"
  exec "${command[@]}"
fi
for ((machine = 0; machine < nodes; machine++)); do
  command_of "$machine" "$@"
  printf '# machine %d: ' "$machine"
  printf '%q ' "${command[@]}"
  echo
done
# The machines differ in their numbers only: the last one's options are checked for all.
options=("${command[@]}")
while [ "${options[0]}" != "$serve" ]; do options=("${options[@]:1}"); done
"$serve" --dry-run "${options[@]:1}"
