#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fails.sh PATTERN COMMAND...: succeeds when COMMAND fails, in time, and says PATTERN.
pattern=$1
shift
said=$(timeout 60 "$@" 2>&1)
code=$?
echo "$said"
echo "ended with $code"
[ "$code" -ne 0 ] && [ "$code" -ne 124 ] && echo "$said" | grep -q -- "$pattern"
