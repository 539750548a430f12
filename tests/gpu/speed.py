# SPDX-License-Identifier: Apache-2.0
"""Stages that measure: kernels against the rates of the card, training beside PyTorch, sums between
ranks of one card. Nothing here proves anything; what fails is in the table all the same."""
import json
import pathlib
import statistics

from runner import why
from train import time_steps

HERE = pathlib.Path(__file__).resolve().parent
# layers, heads, channels, context, vocabulary
GPT2_124M = (12, 12, 768, 1024, 50257)
GPT2_1558M = (48, 25, 1600, 1024, 50257)
TINY = (2, 2, 32, 32, 300)


def parameters(model):
    """Of a GPT-2 with its head tied to the token embedding."""
    layers, _, c, context, vocabulary = model
    return layers * (12 * c * c + 13 * c) + 2 * c + (context + vocabulary) * c


def flops_per_token(model):
    """6 N for products with N weights, forward and backward, and 12 L T C for attention."""
    layers, _, c, context, _ = model
    return 6 * parameters(model) + 12 * layers * context * c


def batch_for(model, memory_bytes, most=64):
    """The largest power of two whose training should fit in 0.7 of the memory: 20 bytes per
    parameter (weights, gradient, two moments, 16-bit copy, slack), 60 per channel and block of a
    token, 14 per logit."""
    layers, _, c, context, vocabulary = model
    token = layers * c * 60 + vocabulary * 14
    batch = 1
    while batch < most and (parameters(model) * 20 + 2 * batch * context * token
                            <= 0.7 * memory_bytes):
        batch *= 2
    return batch


def json_lines(text):
    found = []
    for line in text.split("\n"):
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass  # cut off by a time limit
    return found


def rate_row(run, line, peak_flops, copy_bytes):
    """A kernel's row: its rate, and the share of what the card was seen to do."""
    s = line["us"] * 1e-6
    work, unit, peak = ((line["flops"] / s, 1e12, peak_flops) if line["flops"]
                        else (line["bytes"] / s, 1e9, copy_bytes))
    run.row(f"{line['kernel']}, {line['dtype']}", "ok", ms=s * 1e3, share=work / peak if peak else None,
            rate=f"{work / unit:,.1f} " + ("TFLOP/s" if line["flops"] else "GB/s"))


def measure_kernels(run, dtype, extra):
    m = run.machine
    argv = [m.program("bench_kernels"), m.device, dtype] + (["tiny"] if m.rehearse else [])
    result = run.command(argv)
    lines = json_lines(result.text) + extra
    run.facts.setdefault("kernels", []).extend(lines)
    if result.rc != 0:
        run.row(f"kernels, {dtype}", "failed", note=why(result))
    return lines


def rates(run):
    m, extra = run.machine, []
    if m.python:
        sizes = ["256", "100000"] if m.rehearse else ["8192", str(1 << 28)]
        result = run.command([m.python, HERE / "torch_rates.py", m.device] + sizes, run.left() / 2)
        extra = json_lines(result.text)
        if result.rc != 0:
            run.row("PyTorch's rates", "failed", note=why(result))
    lines = measure_kernels(run, "bf16", extra)

    def best(unit, *names):
        return max((line[unit] / (line["us"] * 1e-6) for line in lines
                    if line["kernel"] in names), default=0)
    run.facts["matrix_flops_per_s"] = best("flops", "matmul square", "torch matmul square")
    run.facts["copy_bytes_per_s"] = best("bytes", "copy (device's)", "torch copy", "copy")
    for line in lines:
        rate_row(run, line, run.facts["matrix_flops_per_s"], run.facts["copy_bytes_per_s"])


def rates_f32(run):
    for line in measure_kernels(run, "f32", []):
        rate_row(run, line, 0 if line["flops"] else 1, run.facts.get("copy_bytes_per_s", 0))


def train_row(run, what, model, batch, ms, peak_bytes, note=""):
    if not ms:
        run.row(what, "failed", note=note)
        return
    s = statistics.median(ms) * 1e-3
    tokens_per_s = batch * model[3] / s
    flops_per_s = tokens_per_s * flops_per_token(model)
    peak = run.facts.get("matrix_flops_per_s")
    run.row(what, "ok", ms=s * 1e3, share=flops_per_s / peak if peak else None,
            memory_bytes=peak_bytes, note=note,
            rate=f"{tokens_per_s:,.0f} tokens/s, {flops_per_s / 1e12:.1f} TFLOP/s")


def run_ours(run, model, batch, steps):
    sets = {"train.global_batch": batch, "train.micro_batch": batch, "numerics.precision": "bf16",
            "numerics.lanes": 1}
    return time_steps(run, model, sets, steps + 3)


def run_torch(run, model, batch, steps, limit):
    m = run.machine
    # Compiling 48 blocks as one takes longer than there is time.
    compiled = "compile" if model[0] <= 12 else "regions"
    modes = "eager" if m.rehearse else f"eager,{compiled},eager,{compiled}"
    argv = [m.python, HERE / "torch_gpt2.py", *model, batch, steps, m.device, "bfloat16", modes]
    return run.command(argv, limit) if m.python else None


def is_full(text):
    """Says carole, CUDA or PyTorch that the card's memory does not suffice?"""
    return "of device memory asked for" in text or "out of memory" in text.lower()


def gpt2(run, name, model, steps):
    """Ours, PyTorch's, ours again: what the machine does meanwhile meets both."""
    m = run.machine
    model = TINY if m.rehearse else model
    batch = 2 if m.rehearse else batch_for(model, m.memory_bytes)
    peer = None
    for _ in range(2):
        ours = [run_ours(run, model, batch, steps)]
        peer = run_torch(run, model, batch, steps, run.left() * 0.8) if run.left() > 20 else None
        if not is_full(ours[0].note + (peer.text if peer else "")) or batch == 1:
            break
        batch //= 2
    if run.left() > 15 and ours[0].ok:
        ours.append(run_ours(run, model, batch, steps))
    report_gpt2(run, f"{name} B{batch} T{model[3]}", model, batch, ours, peer)


def report_gpt2(run, what, model, batch, ours, peer):
    ms = [step for one in ours for step in one.ms[3:]]
    note = next((one.note for one in ours if one.note), "")
    run.facts.setdefault("training", {})[what] = {"carole": [one.ms for one in ours]}
    train_row(run, f"{what}: carole", model, batch, ms, ours[0].peak_bytes, note)
    if peer is None:
        run.row(f"{what}: PyTorch", "left out",
                note="no time left" if run.machine.python else "no PyTorch here")
        return
    modes = {}
    for line in json_lines(peer.text):
        mode = modes.setdefault(line["mode"], {"ms": [], "peak_bytes": 0})
        mode["ms"] += line["ms"]
        mode["peak_bytes"] = max(mode["peak_bytes"], line["peak_bytes"])
    run.facts["training"][what].update(modes)
    names = {"compile": "torch.compile", "regions": "torch.compile of each block"}
    for mode, seen in modes.items():
        train_row(run, f"{what}: PyTorch {names.get(mode, mode)}", model, batch, seen["ms"],
                  seen["peak_bytes"])
    if peer.rc != 0:
        run.row(f"{what}: PyTorch", "failed", note=why(peer))


def gpt2_124m(run):
    gpt2(run, "GPT-2 124M bf16", GPT2_124M, 20)


def gpt2_1558m(run):
    gpt2(run, "GPT-2 1558M bf16", GPT2_1558M, 10)


def sums(run):
    """All-reduces between ranks of one card. Bytes of a sum: each rank's read and written once."""
    m = run.machine
    for ranks in (2, 4):
        argv = [m.program("bench_sums"), m.device, ranks, "auto" if m.rehearse else "shared"]
        result = run.command(argv + (["tiny"] if m.rehearse else []), run.left() / 2)
        lines = json_lines(result.text)
        run.facts.setdefault("sums", []).extend(lines)
        for line in lines:
            moved = 2 * ranks * line["bytes"] / (line["us"] * 1e-6)
            run.row(f"all-reduce {line['sum']}, {ranks} ranks, {line['bytes'] >> 10} KiB", "ok",
                    ms=line["us"] * 1e-3, rate=f"{moved / 1e9:,.1f} GB/s",
                    share=moved / run.facts["copy_bytes_per_s"]
                    if run.facts.get("copy_bytes_per_s") else None)
        if result.rc != 0:
            run.row(f"all-reduce, {ranks} ranks", "failed", note=why(result))
