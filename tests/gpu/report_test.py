#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of what tests/gpu/run counts and tells, without a GPU."""
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
import correct  # noqa: E402
import report  # noqa: E402
import runner  # noqa: E402
import speed  # noqa: E402
import train  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        machine = types.SimpleNamespace(env={}, build=self.path, rehearse=False, python="python3")
        self.run_ = runner.Runner(machine, self.path, 100)
        self.addCleanup(self.run_.log.close)


class Stages(Case):
    def stage(self, function, limit=50):
        self.run_.stage("s", function, limit)
        return self.run_.rows[-1]

    def test_a_fault_of_a_stage_is_a_failed_proof_and_the_rest_goes_on(self):
        def breaks(_):
            raise KeyError("x")
        self.assertEqual(self.stage(breaks)["result"], "failed")
        self.assertTrue(self.run_.failed())
        self.assertEqual(self.stage(lambda run: run.proof("p", True))["result"], "ok")

    def test_a_failed_measurement_does_not_fail_the_run(self):
        self.stage(lambda run: run.row("m", "failed"))
        self.assertFalse(self.run_.failed())

    def test_a_program_that_hangs_is_ended_with_its_children(self):
        def hangs(run):
            result = run.command(["sh", "-c", "echo begun; sleep 1000 & wait"], 0.2)
            run.row("h", "failed", note=f"{result.rc} {result.text.strip()}")
        self.assertEqual(self.stage(hangs)["note"], "124 begun")

    def test_without_time_a_stage_is_left_out(self):
        self.run_.seconds = 1
        self.assertEqual(self.stage(lambda run: run.proof("p", False))["result"], "left out")

    def test_a_missing_program_is_told(self):
        def missing(run):
            run.row("m", "failed", note=runner.why(run.command(["/nonexistent/program"])))
        self.assertIn("No such file", self.stage(missing)["note"])


class Proofs(Case):
    """What trainings that differ, or fail, make of the proofs about them."""

    def rows(self, stage, trained):
        answers = iter(trained * 20)
        with unittest.mock.patch.object(correct, "train", lambda *_: next(answers)):
            self.run_.machine.device = "cuda"
            self.run_.stage("s", stage, 50)
        return [row["result"] for row in self.run_.rows]

    @staticmethod
    def trained(bits="a", loss=5.0, ok=True):
        return train.Trained(ok, [loss], [1.0], bits, 0, 0, "" if ok else "broken")

    def test_equal_bits_pass(self):
        self.assertEqual(self.rows(correct.layouts, [self.trained()]), ["ok"] * 3)

    def test_different_bits_fail(self):
        both = [self.trained("a"), self.trained("b")]
        self.assertEqual(self.rows(correct.layouts, both), ["failed"] * 3)

    def test_a_layout_that_does_not_run_fails(self):
        both = [self.trained(), self.trained(ok=False)]
        self.assertEqual(self.rows(correct.layouts, both), ["failed"] * 3)

    def test_losses_that_differ_fail(self):
        both = [self.trained(loss=5.0), self.trained(loss=5.001)]
        self.assertEqual(self.rows(correct.devices, both), ["failed", "ok"])

    def test_a_loss_that_is_no_number_fails(self):
        both = [self.trained(loss=5.0), self.trained(loss=float("nan"))]
        self.assertEqual(self.rows(correct.devices, both), ["failed", "failed"])

    def test_a_test_that_was_not_built_fails(self):
        self.run_.machine.program = lambda name: self.path / name
        self.run_.stage("s", correct.kernels, 50)
        self.assertEqual(self.run_.rows[0]["result"], "failed")


class Counts(Case):
    def test_parameters_are_those_of_the_published_models(self):
        self.assertEqual(speed.parameters(speed.GPT2_124M), 124439808)
        self.assertEqual(speed.parameters(speed.GPT2_1558M), 1557611200)

    def test_the_batch_grows_with_the_memory(self):
        sizes = [speed.batch_for(speed.GPT2_1558M, gib << 30) for gib in (1, 80, 140, 1000)]
        self.assertEqual(sizes, sorted(sizes))
        self.assertEqual((sizes[0], sizes[-1]), (1, 64))
        self.assertLessEqual(sizes[2], 16)

    def test_a_step_is_counted_against_the_measured_peak(self):
        self.run_.facts["matrix_flops_per_s"] = 1e12
        model = (1, 1, 10, 10, 10)
        speed.train_row(self.run_, "t", model, 4, [1.0, 1.0, 100.0], 1)
        flops = 40 / 1e-3 * (6 * speed.parameters(model) + 1200)
        self.assertAlmostEqual(self.run_.rows[0]["share"], flops / 1e12)

    def test_a_full_card_is_known_by_what_either_side_says(self):
        self.assertTrue(speed.is_full("cuda: 140 GiB of device memory asked for, 139 GiB free"))
        self.assertTrue(speed.is_full("cuda: stream memory: out of memory"))
        self.assertTrue(speed.is_full("torch.OutOfMemoryError: CUDA out of memory. Tried"))
        self.assertFalse(speed.is_full("cuda: no GPU"))
        root = pathlib.Path(__file__).resolve().parents[2]
        self.assertIn("of device memory asked for", (root / "engine/device/cuda.c").read_text())

    def test_a_cut_line_is_not_read(self):
        self.assertEqual(speed.json_lines('x\n{"a": 1}\n{"b":'), [{"a": 1}])

    def test_a_log_is_read_while_it_is_written(self):
        log = self.path / "log.jsonl"
        log.write_text('{"event":"start","peak_bytes":7}\n{"event":"step","loss":2.5,"ms":3}\n{"ev')
        told = train.trained(train.read_log(log), True)
        self.assertEqual((told.losses, told.ms, told.peak_bytes), ([2.5], [3], 7))

    def test_tokens_are_a_file_of_llm_c(self):
        data = train.tokens(self.run_, 256, 100000).read_bytes()
        self.assertEqual(len(data), 1024 + 2 * 100000)
        self.assertEqual(int.from_bytes(data[:4], "little"), 20240520)


class Table(Case):
    def test_every_row_has_every_column(self):
        self.run_.row("a", "ok", ms=1.5, rate="3 GB/s", share=0.5, memory_bytes=1 << 30)
        self.run_.row("b", "failed", proves=True, note="x | y")
        lines = report.table(self.run_.rows).split("\n")
        self.assertEqual({line.count("|") for line in lines}, {len(report.HEAD) + 1})
        self.assertIn("| a | ok | 1.5 | 3 GB/s | 50.0 % | 1.0 GiB |", lines[2])
        self.assertIn("FAILED", lines[3])


if __name__ == "__main__":
    unittest.main()
