#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of this folder: a small GPT and two MLPs, computed by PyTorch in float64.

Nothing of carole is used here: the models are written out below as plain formulas, gradients are
autograd's and the updates torch.optim's. Each case gives two files:

  CASE.safetensors   param/NAME    (f32) initial parameters; exact in float64 too
                     grad/NAME     (f32) gradient of the *sum* of the losses of step 1
                     final/OPTIMIZER/NAME (f32) parameters after the last step
                     field/NAME    (steps, batch, ...) what the data set would give
  CASE.json          the sizes, the options of every optimizer as config settings, and per step
                     samples, loss, weight, gradient norm and learning rate

Run: /usr/bin/python3 tests/golden/make_golden.py   (Debian: python3-torch). Not run by the tests.
"""
import json
import math
import os
import struct

import torch

FOLDER = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCH, SHORT = 6, 6, 4  # the last step has SHORT samples only
IGNORE = -100


# -- models: name -> (parameters, loss sum and weight of a batch) ---------------------------------

def draw(generator, shape, scale, around=0.0):
    """Numbers that are exact in float32."""
    value = around + scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    return value.float().double()


def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred ** 2).mean(-1, keepdim=True) + 1e-5) * weight + bias


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def cross_entropy(logits, targets, ignore, label_weight):
    """Sum over the rows that count, and the sum of their weights."""
    logits, targets = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    counts = targets != ignore
    logits, targets = logits[counts], targets[counts].long()
    loss = torch.logsumexp(logits, -1) - logits.gather(1, targets[:, None])[:, 0]
    weight = label_weight[targets]
    return (weight * loss).sum(), weight.sum()


class Gpt:
    layers, heads, channels, context, vocabulary = 2, 3, 36, 20, 101

    def parameters(self, generator):
        c, result = self.channels, {}
        result["wte.token"] = draw(generator, (self.vocabulary, c), 0.3)
        result["wte.position"] = draw(generator, (self.context, c), 0.2)
        for i in range(self.layers):
            sizes = {"attn.qkv": (3 * c, c), "attn.proj": (c, c), "mlp.fc": (4 * c, c),
                     "mlp.proj": (c, 4 * c)}
            for name in ("ln1", "attn.qkv", "attn.proj", "ln2", "mlp.fc", "mlp.proj"):
                shape = sizes.get(name, (c,))
                around = 1.0 if len(shape) == 1 else 0.0
                result[f"h{i}.{name}.weight"] = draw(generator, shape, 0.2, around)
                result[f"h{i}.{name}.bias"] = draw(generator, shape[:1], 0.1)
        result["lnf.weight"] = draw(generator, (c,), 0.2, 1.0)
        result["lnf.bias"] = draw(generator, (c,), 0.1)
        return result

    def fields(self, generator):
        size = (STEPS, BATCH, self.context)
        tokens = torch.randint(0, self.vocabulary, size, generator=generator)
        targets = torch.randint(0, self.vocabulary, size, generator=generator)
        targets[torch.rand(size, generator=generator) < 0.15] = IGNORE
        return {"tokens": tokens, "targets": targets}

    def attention(self, qkv):
        b, t, _ = qkv.shape
        q, k, v = (part.reshape(b, t, self.heads, -1).transpose(1, 2)
                   for part in qkv.split(self.channels, -1))
        score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        future = torch.ones(t, t).triu(1).bool()
        y = torch.softmax(score.masked_fill(future, -math.inf), -1) @ v
        return y.transpose(1, 2).reshape(b, t, self.channels)

    def loss(self, p, field):
        def linear(name, x):
            return x @ p[name + ".weight"].T + p[name + ".bias"]

        def norm(name, x):
            return layer_norm(x, p[name + ".weight"], p[name + ".bias"])

        x = p["wte.token"][field["tokens"]] + p["wte.position"]
        for i in range(self.layers):
            y = self.attention(linear(f"h{i}.attn.qkv", norm(f"h{i}.ln1", x)))
            x = x + linear(f"h{i}.attn.proj", y)
            y = gelu_tanh(linear(f"h{i}.mlp.fc", norm(f"h{i}.ln2", x)))
            x = x + linear(f"h{i}.mlp.proj", y)
        logits = norm("lnf", x) @ p["wte.token"].T
        ones = torch.ones(self.vocabulary, dtype=torch.float64)
        return cross_entropy(logits, field["targets"], IGNORE, ones)

    def model(self):
        return ["model.type=gpt", f"model.layers={self.layers}", f"model.heads={self.heads}",
                f"model.channels={self.channels}", f"model.context={self.context}",
                f"model.vocabulary={self.vocabulary}"]


class Mlp:
    """Weighted: label 2 is ignored, the others have weights; the test describes that model."""

    def __init__(self, weighted):
        self.weighted = weighted
        self.ignore = 2 if weighted else IGNORE
        self.label_weight = torch.tensor([1, 0.5, 1, 2, 0, 0.25, 3] if weighted else [1] * 7,
                                         dtype=torch.float64)

    def parameters(self, generator):
        result = {}
        for name, shape in (("fc1", (23, 30)), ("fc2", (19, 23)), ("head", (7, 19))):
            result[name + ".weight"] = draw(generator, shape, 0.4)
            result[name + ".bias"] = draw(generator, shape[:1], 0.1)
        return result

    def fields(self, generator):
        images = draw(generator, (STEPS, BATCH, 5, 6), 1.0)
        labels = torch.randint(0, 7, (STEPS, BATCH), generator=generator)
        labels[:, 0] = 2
        return {"images": images, "labels": labels}

    def loss(self, p, field):
        x = field["images"].reshape(-1, 30)
        for name in ("fc1", "fc2"):
            x = torch.clamp(x @ p[name + ".weight"].T + p[name + ".bias"], min=0)
        logits = x @ p["head.weight"].T + p["head.bias"]
        return cross_entropy(logits, field["labels"], self.ignore, self.label_weight)

    def model(self):
        if self.weighted:
            return ["model.type=weighted_mlp"]
        return ["model.type=mlp", "model.inputs=[5, 6]", "model.hidden=[23, 19]",
                "model.classes=7"]


# -- training -------------------------------------------------------------------------------------

def rate_of(options, step):
    """Linear warm-up from 0, then half a cosine down to the minimum at the last step."""
    peak, low, warm = (options[k] for k in ("learning_rate", "minimum_rate", "warmup_steps"))
    if step < warm:
        return peak * step / warm
    if options["rate_schedule"] == "constant":
        return peak
    done = (step - warm) / (STEPS - warm)
    return low + (peak - low) * (1 + math.cos(math.pi * done)) / 2


# The gradient of a key's bias is exactly zero, which float32 computes as some 1e-9: an epsilon far
# above that keeps Adam from blowing the noise up.
OPTIMIZERS = {
    "adamw": {"type": "adamw", "learning_rate": 0.01, "minimum_rate": 0.001, "warmup_steps": 2,
              "rate_schedule": "cosine", "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95,
              "epsilon": 1e-4, "clip": 0.9},
    "sgd": {"type": "sgd", "learning_rate": 0.05, "minimum_rate": 0, "warmup_steps": 1,
            "rate_schedule": "constant", "weight_decay": 0.02, "momentum": 0.9,
            "nesterov": True, "clip": 2},
}


def optimizer_of(options, parameters):
    """Only matrices decay."""
    groups = [{"params": [p for p in parameters.values() if p.dim() > 1],
               "weight_decay": options["weight_decay"]},
              {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0}]
    if options["type"] == "adamw":
        return torch.optim.AdamW(groups, lr=1.0, betas=(options["beta1"], options["beta2"]),
                                 eps=options["epsilon"])
    return torch.optim.SGD(groups, lr=1.0, momentum=options["momentum"],
                           nesterov=options["nesterov"])


def samples_of(step):
    return SHORT if step == STEPS else BATCH


def batch_of(fields, step):
    return {name: value[step - 1, :samples_of(step)] for name, value in fields.items()}


def train(case, initial, fields, options):
    """Per step loss (mean), norm and rate; and the parameters at the end."""
    parameters = {k: v.clone().requires_grad_(True) for k, v in initial.items()}
    optimizer = optimizer_of(options, parameters)
    history = []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        total, weight = case.loss(parameters, batch_of(fields, step))
        (total / weight).backward()
        norm = math.sqrt(sum(float((p.grad ** 2).sum()) for p in parameters.values()))
        if options["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(parameters.values(), options["clip"])
        for group in optimizer.param_groups:
            group["lr"] = rate_of(options, step)
        optimizer.step()
        history.append({"samples": samples_of(step), "loss": float(total / weight),
                        "weight": float(weight), "gradient_norm": norm,
                        "learning_rate": rate_of(options, step)})
    return history, {k: v.detach() for k, v in parameters.items()}


def gradients_of(case, initial, fields):
    parameters = {k: v.clone().requires_grad_(True) for k, v in initial.items()}
    total, _ = case.loss(parameters, batch_of(fields, 1))
    total.backward()
    return {k: v.grad for k, v in parameters.items()}, float(total)


# -- files ----------------------------------------------------------------------------------------

def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        whole = not value.dtype.is_floating_point
        value = value.to(torch.int32 if whole else torch.float32).contiguous()
        part = bytes(value.numpy().tobytes())
        header[name] = {"dtype": "I32" if whole else "F32", "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def setting(key, value):
    return f"optimizer.{key}={str(value).lower() if isinstance(value, bool) else value}"


def write_case(name, case, seed):
    generator = torch.Generator().manual_seed(seed)
    initial, fields = case.parameters(generator), case.fields(generator)
    gradient, loss_sum = gradients_of(case, initial, fields)
    tensors = {"param/" + k: v for k, v in initial.items()}
    tensors.update({"grad/" + k: v for k, v in gradient.items()})
    tensors.update({"field/" + k: v for k, v in fields.items()})
    facts = {"torch": torch.__version__, "seed": seed, "batch": BATCH, "loss_sum": loss_sum,
             "model": case.model(), "optimizers": {}}
    for kind, options in OPTIMIZERS.items():
        history, final = train(case, initial, fields, options)
        facts["optimizers"][kind] = {"settings": [setting(k, v) for k, v in options.items()],
                                     "steps": history}
        tensors.update({f"final/{kind}/{k}": v for k, v in final.items()})
        print(name, kind, [round(h["loss"], 4) for h in history],
              [round(h["gradient_norm"], 4) for h in history])
    write_safetensors(os.path.join(FOLDER, name + ".safetensors"), tensors)
    with open(os.path.join(FOLDER, name + ".json"), "w") as file:
        json.dump(facts, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_case("gpt", Gpt(), 20240601)
    write_case("mlp", Mlp(False), 20240602)
    write_case("mlp_weighted", Mlp(True), 20240603)
