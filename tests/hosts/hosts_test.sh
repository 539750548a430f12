#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts (network namespaces joined by a bridge), two ranks each, TCP between them, started by mpirun:
# the same bits as four threads of one process. Needs root and the right to make namespaces; skips (77)
# where that is refused.
#   hosts_test.sh CAROLE
set -euo pipefail
carole=$(readlink -f "$1")
id=crl$$
work=$(mktemp -d)
skip() {
    echo "SKIPPED: $1"
    exit 77
}
clean() {
    for host in 1 2; do
        ip netns del "${id}h$host" 2>/dev/null || true
    done
    ip link del "${id}b" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

command -v mpirun >/dev/null || skip "no mpirun"
command -v ip >/dev/null || skip "no ip command (package iproute2)"
"$carole" info | grep -qi '^ *mpi.*yes\|mpi: *yes\|mpi *open' || skip "carole was built without MPI"
ip netns add "${id}h1" 2>/dev/null || skip "network namespaces are not permitted here"
ip netns exec "${id}h1" true 2>/dev/null || skip "a namespace cannot be entered here (a chroot?)"
ip link add "${id}b" type bridge 2>/dev/null || skip "bridges are not permitted here"

ip addr add 10.213.7.254/24 dev "${id}b"
ip link set "${id}b" up
ip netns add "${id}h2"
for host in 1 2; do
    ip link add "${id}v$host" type veth peer name eth0 netns "${id}h$host"
    ip link set "${id}v$host" master "${id}b" up
    ip -n "${id}h$host" addr add "10.213.7.$host/24" dev eth0
    ip -n "${id}h$host" link set eth0 up
    ip -n "${id}h$host" link set lo up
done

# What mpirun calls instead of ssh: runs the command inside the host, under its name.
cat >"$work/agent" <<'AGENT'
#!/bin/bash
while [[ ${1:-} == -* ]]; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare --uts /bin/sh -c "hostname $host; $*"
AGENT
chmod +x "$work/agent"
printf '%s slots=2\n%s slots=2\n' "${id}h1" "${id}h2" >"$work/hosts"

head -c 60000 /dev/urandom | base64 >"$work/text.txt"
"$carole" data tokenize "$work/text.txt" --out "$work/train.bin" >/dev/null
cat >"$work/gpt.yaml" <<YAML
model: {type: gpt, layers: 4, heads: 2, channels: 32, context: 16, vocabulary: 256, dropout: 0.1}
data: {train: [$work/train.bin]}
parallel: {pipeline: 2, data: 2}
numerics: {lanes: 4}
train: {steps: 5, global_batch: 16, micro_batch: 2}
optimizer: {type: adamw, clip: 1}
comm: {deadline: 60}
run: {directory: $work/run, threads: 1}
YAML
bits() {
    sed -n 's/.*parameter bits \([0-9a-f]*\).*/\1/p'
}

one=$("$carole" train "$work/gpt.yaml" --transport local | bits)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
two=$(timeout 120 mpirun -n 4 --hostfile "$work/hosts" --map-by slot --bind-to none \
    --mca plm_rsh_agent "$work/agent" --mca pml ob1 --mca btl self,vader,tcp \
    --mca btl_tcp_if_include 10.213.7.0/24 --mca oob_tcp_if_include 10.213.7.0/24 \
    "$carole" train "$work/gpt.yaml" | tee "$work/log" | bits) || {
    cat "$work/log"
    exit 1
}
echo "one process: $one, two hosts: $two"
[ -n "$one" ] && [ "$one" = "$two" ]
