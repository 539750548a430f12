#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch gets out of the device: its copy rate and its bf16 matrix rate on random numbers.
Two JSON lines in the form of bench_kernels.    torch_rates.py DEVICE SQUARE COPY_ELEMENTS"""
import json
import statistics
import sys
import time

import torch

DEVICE, SQUARE, COPY = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def seconds(run, calls):
    def batch():
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / calls
    batch()
    return statistics.median(batch() for _ in range(7))


def main():
    a, b = (torch.randn(SQUARE, SQUARE, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    x = torch.randn(COPY, device=DEVICE)
    y = torch.empty_like(x)
    for name, run, nbytes, flops in (
            ("torch copy", lambda: y.copy_(x), 8 * COPY, 0),
            ("torch matmul square", lambda: torch.mm(a, b, out=c), 0, 2 * SQUARE**3)):
        print(json.dumps({"kernel": name, "dtype": "bf16" if flops else "f32", "bytes": nbytes,
                          "flops": flops, "us": seconds(run, 10) * 1e6}))


main()
