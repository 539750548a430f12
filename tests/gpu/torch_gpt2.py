#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer: training steps of a GPT-2 of our own in PyTorch, eager and compiled in turns.

Weights, gradients and AdamW's state (fused) are f32; forward and backward run under autocast in the
given type: what carole keeps and computes in. Pre-LN blocks, learned positions, GELU (tanh), tied
head, causal scaled_dot_product_attention, no dropout. Modes: eager; compile: the whole model;
regions: each block, and what follows the last, which takes a deep model seconds and not minutes.
One JSON line per mode and turn.

  torch_gpt2.py LAYERS HEADS CHANNELS CONTEXT VOCABULARY BATCH STEPS DEVICE TYPE MODES
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.fc, self.out = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(self.ln1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, heads, channels, context, vocabulary):
        super().__init__()
        self.token = nn.Embedding(vocabulary, channels)
        self.position = nn.Embedding(context, channels)
        self.blocks = nn.Sequential(*(Block(channels, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(channels)
        self.regions = None
        for p in (self.token.weight, self.position.weight):
            nn.init.normal_(p, std=0.02)

    def loss(self, x, targets):
        logits = F.linear(self.norm(x), self.token.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position.weight
        *blocks, loss = self.regions or (*self.blocks, self.loss)
        for block in blocks:
            x = block(x)
        return loss(x, targets)


class Trainer:
    def __init__(self, shape, batch, device, dtype):
        self.device, self.dtype = device, dtype
        self.model = GPT2(*shape).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.compiled = self.regions = None
        context, vocabulary = shape[3:]
        tokens = torch.randint(0, vocabulary, (batch, context + 1), device=device)
        self.x, self.y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step(self, model):
        begin = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, self.dtype, enabled=self.dtype != torch.float32):
            loss = model(self.x, self.y)
        loss.backward()
        self.optimizer.step()
        loss.item()  # waits for the device
        return (time.perf_counter() - begin) * 1e3

    def mode(self, name):
        self.model.regions = None
        if name == "compile":
            self.compiled = self.compiled or torch.compile(self.model)
            return self.compiled
        if name == "regions":
            if self.regions is None:
                parts = (*self.model.blocks, self.model.loss)
                self.regions = [torch.compile(part) for part in parts]
            self.model.regions = self.regions
        return self.model


def main():
    *shape, batch, steps = (int(word) for word in sys.argv[1:8])
    device, dtype, modes = sys.argv[8], getattr(torch, sys.argv[9]), sys.argv[10].split(",")
    torch.manual_seed(1)
    on_gpu = device == "cuda"
    with torch.device(device):  # random weights of a large model take long elsewhere
        trainer = Trainer(shape, batch, device, dtype)
    for name in modes:
        begin = time.perf_counter()
        model = trainer.mode(name)
        for _ in range(3):
            trainer.step(model)
        warm_s = time.perf_counter() - begin
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        times = [trainer.step(model) for _ in range(steps)]
        peak = torch.cuda.max_memory_allocated() if on_gpu else 0
        print(json.dumps({"mode": name, "ms": times, "peak_bytes": peak,
                          "warm_s": round(warm_s, 1)}), flush=True)


if __name__ == "__main__":
    main()
