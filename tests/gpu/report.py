# SPDX-License-Identifier: Apache-2.0
"""The one table, and its files."""
import json
import time

HEAD = ("what", "result", "ms", "rate", "of the measured peak", "peak memory", "note")


def cells(row):
    ms, share, memory = row.get("ms"), row.get("share"), row.get("memory_bytes")
    return (row["what"], row["result"].upper() if row["result"] == "failed" else row["result"],
            f"{ms:.3g}" if ms is not None and ms < 100 else f"{ms:.0f}" if ms is not None else "",
            row.get("rate") or "", f"{100 * share:.1f} %" if share else "",
            f"{memory / 2**30:.1f} GiB" if memory else "", row.get("note", "").replace("|", "/"))


def table(rows):
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines)


def text(machine, facts, rows, seconds):
    m = machine
    memory = f", {m.memory_bytes / 2**30:.0f} GiB" if m.memory_bytes else ""
    card = "rehearsed on the CPU" if m.rehearse else f"{m.card} (sm_{m.architecture}{memory})"
    parts = [f"{time.strftime('%Y-%m-%d')} · {card} · PyTorch {m.torch or 'not there'} · "
             f"{seconds:.0f} s"]
    if facts.get("matrix_flops_per_s"):
        parts.append(f"Measured peaks: {facts['matrix_flops_per_s'] / 1e12:.3g} TFLOP/s (bf16 "
                     f"matrices of random numbers, the faster of ours and PyTorch's), "
                     f"{facts['copy_bytes_per_s'] / 1e9:,.0f} GB/s (copy, bytes read and written). "
                     "Training counts 6 N + 12 L T C floating-point operations per token, N all "
                     "parameters; both sides keep f32 weights, gradients and AdamW state.")
    return "\n\n".join(parts + [table(rows)]) + "\n"


def write(run, out):
    seconds = time.monotonic() - run.begin
    told = text(run.machine, run.facts, run.rows, seconds)
    (out / "report.md").write_text(told, encoding="utf-8")
    facts = {"card": run.machine.card, "architecture": run.machine.architecture,
             "torch": run.machine.torch, "seconds": seconds, "rows": run.rows, **run.facts}
    (out / "report.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    run.log.flush()
    print("\n" + told)
