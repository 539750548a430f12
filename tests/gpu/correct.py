# SPDX-License-Identifier: Apache-2.0
"""Stages that prove: the build, the tests of kernels and layers on the card, devices and layouts
against each other, NVIDIA's sanitizers."""
import math
import os
import re
import shutil

from runner import last_line, why
from train import train

PROGRAMS = ["carole", "bench_kernels", "bench_sums"]
ON_THE_CARD = ["test_cuda", "test_layers_gpu"]
TINY = (4, 4, 64, 64, 256)  # layers, heads, channels, context, vocabulary
BATCH = {"train.global_batch": 16, "train.micro_batch": 2, "train.steps": 6, "numerics.lanes": 4,
         "run.threads": 1, "optimizer.learning_rate": 0.003}

# The same bits each: pipeline, replicas, schedule, virtual stages.
LAYOUTS = [(1, 1, "1f1b", 0), (2, 1, "gpipe", 0), (4, 1, "1f1b", 0), (1, 4, "1f1b", 0),
           (2, 2, "zb-h1", 0), (2, 1, "interleaved", 2)]


def build(run):
    m = run.machine
    jobs = str(os.environ.get("JOBS") or os.cpu_count())
    cuda = "AUTO" if m.rehearse else "ON"
    configured = run.command(
        ["cmake", "-S", m.root, "-B", m.build, "-DCMAKE_BUILD_TYPE=Release", "-DCRL_WERROR=OFF",
         f"-DCRL_WITH_CUDA={cuda}", f"-DCRL_CUDA_ARCHITECTURES={m.architecture}",
         "-DCRL_WITH_MPI=OFF"] + m.options)
    if configured.rc != 0:
        errors = re.findall(r"CMake Error.*\n+ *(.*)", configured.text)
        run.proof("configure", False, errors[0] if errors else why(configured))
        return
    built = run.command(["cmake", "--build", m.build, "-j", jobs, "--target"] + PROGRAMS)
    note = ("carried: " + ", ".join(m.carried)) if m.carried else ""
    run.proof("build", built.rc == 0,
              f"{configured.seconds + built.seconds:.0f} s {note}".rstrip()
              if built.rc == 0 else why(built))
    if m.rehearse:
        return
    # Each by itself, so that one that does not compile leaves the others.
    for name in ON_THE_CARD:
        done = run.command(["cmake", "--build", m.build, "-j", jobs, "--target", name])
        run.proof(f"build of {name}", done.rc == 0,
                  f"{done.seconds:.0f} s" if done.rc == 0 else why(done))


def tests(run, name, argv=(), what=None):
    """A GoogleTest program; its failed tests are named."""
    what = what or name
    program = run.machine.program(name)
    if not program.exists():
        run.proof(what, False, "not built")
        return
    result = run.command([program, "--gtest_brief=1"] + list(argv))
    passed = re.search(r"\[  PASSED  \] (\d+) test", result.text)
    failed = list(dict.fromkeys(re.findall(r"\[  FAILED  \] ([\w./]+)", result.text)))
    if result.rc == 0:
        run.proof(what, True, f"{passed.group(1) if passed else '?'} tests")
    else:
        run.proof(what, False, f"{len(failed)} tests: {', '.join(failed[:5])}" if failed
                  else why(result))


def kernels(run):
    if not run.machine.rehearse:
        tests(run, "test_cuda", what="kernels against the CPU's")


def layers(run):
    """Without one thing that cuDNN does not promise: between its two products attention's
    probabilities are of 16 bits."""
    if not run.machine.rehearse:
        tests(run, "test_layers_gpu", ["--gtest_filter=-*ResultsAreThoseOfF32RoundedOnce/attention*"],
              what="layers, every type")


def devices(run):
    """The same training on both devices."""
    settings = {**BATCH, "train.steps": 10}
    for precision, bound in (("f32", 1e-5), ("bf16", 2e-2)):
        chosen = {**settings, "numerics.precision": precision}
        both = [train(run, TINY, {**chosen, "run.device": device})
                for device in ("cpu", run.machine.device)]
        note = "; ".join(one.note for one in both if one.note)
        if not all(one.ok for one in both):
            run.proof(f"cpu and {run.machine.device}, {precision}", False, note)
            continue
        # A loss that is no number is null in the log.
        far = [abs(a - b) / abs(a) if a and b else math.inf
               for a, b in zip(both[0].losses, both[1].losses)]
        run.proof(f"cpu and {run.machine.device}, {precision}: losses", all(d <= bound for d in far),
                  f"differ by {max(far):.1e} at most, expected {bound:.0e}")


def layouts(run):
    """Equal bits of all parameters after some steps, with dropout, whoever computes what."""
    for precision, count in (("f32", 6), ("bf16", 4), ("f16", 2)):
        seen, notes = {}, []
        for pipeline, replicas, schedule, virtual in LAYOUTS[:count]:
            sets = {**BATCH, "parallel.pipeline": pipeline, "parallel.data": replicas,
                    "parallel.schedule": schedule, "parallel.virtual_stages": virtual,
                    "numerics.precision": precision, "model.dropout": 0.1}
            if not run.machine.rehearse and pipeline * replicas > 1:
                sets["comm.wire"] = "shared"
            one = train(run, TINY, sets)
            name = f"{pipeline} x {replicas} {schedule}"
            if one.ok and one.bits:
                seen.setdefault(one.bits, []).append(name)
            else:
                notes.append(f"{name}: {one.note or 'no bits'}")
        good = len(seen) == 1 and not notes
        if len(seen) > 1:
            notes.append("differ: " + " | ".join(", ".join(names) for names in seen.values()))
        run.proof(f"{count} layouts, {precision}: parameter bits", good,
                  next(iter(seen)) if good else "; ".join(notes))


def sanitizer(run):
    """Memory and races, on some tests of the kernels: all take too long."""
    m = run.machine
    path = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path=os.path.dirname(m.nvcc) if m.nvcc else None)
    program = m.program("test_cuda")
    if m.rehearse or not path or not program.exists():
        run.row("compute-sanitizer", "left out", note="not there")
        return
    for tool, chosen in (("memcheck", "*Layernorm*:*Embedding*:*Reduce*"),
                         ("racecheck", "*Reduce*:*CrossEntropy*")):
        result = run.command([path, "--tool", tool, "--error-exitcode", "9", program,
                              "--gtest_brief=1", f"--gtest_filter={chosen}"], run.left() / 2)
        if "Device not supported" in result.text:
            run.row(tool, "left out", note="the device is not supported here")
        elif result.rc == 124:
            run.row(tool, "left out", note=f"not through after {result.seconds:.0f} s")
        else:
            summary = re.findall(r"=+ ((?:ERROR|RACECHECK) SUMMARY.*)", result.text)
            run.proof(tool, result.rc == 0,
                      summary[-1] if summary else last_line(result.text))
