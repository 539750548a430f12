#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a training step of a GPT-2 of our own in PyTorch (eager, fp32, CPU): the peer of carole's.

Usage: torch_gpt2.py BATCH CONTEXT THREADS STEPS [bf16]   prints the median step in ms.
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

BATCH, CONTEXT, THREADS, STEPS = (int(x) for x in sys.argv[1:5])
LAYERS, HEADS, CHANNELS, VOCABULARY = 12, 12, 768, 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
        self.qkv, self.proj = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.fc, self.out = nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(4 * CHANNELS, CHANNELS)

    def attention(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2)
                   for y in self.qkv(x).split(c, dim=2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) * (c // HEADS) ** -0.5
            mask = torch.ones(t, t, dtype=torch.bool).tril()
            y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, CHANNELS), nn.Embedding(CONTEXT, CHANNELS)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(CHANNELS)
        for p in (self.token.weight, self.position.weight):
            nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.blocks(self.token(tokens) + self.position.weight)
        logits = self.norm(x) @ self.token.weight.t()
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


torch.set_num_threads(THREADS)
torch.manual_seed(1)
model = GPT2()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
times = []
for step in range(STEPS + 1):
    tokens = torch.randint(0, VOCABULARY, (BATCH, CONTEXT + 1))
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    loss.backward()
    optimizer.step()
    loss.item()
    if step > 0:
        times.append((time.perf_counter() - begin) * 1e3)
print(f"{statistics.median(times):.0f}")
