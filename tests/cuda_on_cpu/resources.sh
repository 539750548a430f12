#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# resources.sh FOLDER: what every kernel takes of a multiprocessor, from the assembler's reports
# FOLDER/*.ptxas. Fails when a kernel spills registers or has a stack, or when there is no report.
set -eu
awk '
    FNR == 1 { file = FILENAME; sub(".*/", "", file); sub("\\..*", "", file) }
    /Compiling entry function/ { split($0, part, "\047"); name = part[2]; arch = part[4] }
    /bytes stack frame/ { stack = $1; spill = $5 + $9 }
    /Used [0-9]+ registers/ {
        shared = 0
        for (i = 2; i <= NF; i++) {
            if ($i == "registers,") registers = $(i - 1)
            if ($i == "smem" || $i == "smem,") shared = $(i - 2)
        }
        printf "%s %4d registers %6d B shared %3d B stack %3d B spilt  %s: %s\n",
               arch, registers, shared, stack, spill, file, name
        kernels++
        if (stack > 0 || spill > 0) bad++
    }
    END {
        printf "%d kernels, %d that spill\n", kernels, bad
        exit kernels == 0 || bad > 0
    }' "$1"/*.ptxas | { if command -v c++filt >/dev/null; then c++filt; else cat; fi; } |
    sed -e 's/(anonymous namespace):://g' -e 's/: void /: /' -e 's/(.*//' >"$1/resources.txt"
cat "$1/resources.txt"
grep -q '^[1-9][0-9]* kernels, 0 that spill$' "$1/resources.txt"
