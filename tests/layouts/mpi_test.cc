// SPDX-License-Identifier: Apache-2.0
// The promise across transports: the command under mpirun prints the parameter bits, and logs the
// losses, that one rank of this process gets.
#include <gtest/gtest.h>
#include <jansson.h>

#include <sstream>

#include "tests/layouts/job.h"

namespace {

using job::Cuts;
using job::Schedule;
using job::Sets;
using job::Width;

// As few eager bytes as Open MPI takes: every message is a rendezvous.
constexpr char kShared[] = "--mca pml ob1 --mca btl self,vader,tcp";
constexpr char kSharedNoEager[] =
    "--mca pml ob1 --mca btl self,vader --mca btl_vader_eager_limit 128 "
    "--mca btl_self_eager_limit 128";
constexpr char kTcpNoEager[] =
    "--mca pml ob1 --mca btl self,tcp --mca btl_tcp_eager_limit 128 --mca btl_self_eager_limit 128";

class LayoutsMpi : public testing::Test {
  protected:
    void SetUp() override {
#ifndef CRL_WITH_MPI
        GTEST_SKIP() << "built without MPI";
#endif
        if (job::Shell("command -v mpirun").code != 0) {
            GTEST_SKIP() << "mpirun is not there (Debian: openmpi-bin)";
        }
    }

    // The losses of the run's log, as JSON texts of doubles: 17 digits, so exact.
    std::vector<double> Losses(const std::string &directory) const {
        std::vector<double> losses;
        std::istringstream lines(read_text(directory + "/log.jsonl"));
        for (std::string line; std::getline(lines, line);) {
            json_t *object = json_loads(line.c_str(), 0, nullptr);
            const char *event = json_string_value(json_object_get(object, "event"));
            if (event && std::string(event) == "step") {
                losses.push_back(json_number_value(json_object_get(object, "loss")));
            }
            json_decref(object);
        }
        return losses;
    }

    // Trains `sets` under mpirun and compares with `expected`, whose last steps they are.
    void Same(const job::Outcome &expected, Sets sets, int ranks, const std::string &options) {
        sets += Sets{{"run.directory", scratch_ / "mpi"}};
        const job::Printed printed =
            job::Shell(job::MpirunEnvironment() + std::string("timeout 100 ") +
                       job::Mpirun(ranks, options) + job::Command(sets, scratch_ / "config.yaml"));
        ASSERT_EQ(printed.code, 0) << sets.Text() << "\n" << printed.text;
        char bits[64];
        snprintf(bits, sizeof bits, "parameter bits %016llx",
                 static_cast<unsigned long long>(expected.result.parameter_hash));
        EXPECT_NE(printed.text.find(bits), std::string::npos)
            << "expected " << bits << " of " << sets.Text() << "\n"
            << printed.text;
        const std::vector<double> losses = Losses(scratch_ / "mpi");
        ASSERT_LE(losses.size(), expected.loss.size());
        ASSERT_GE(losses.size(), 1u);
        EXPECT_EQ(losses, std::vector<double>(expected.loss.end() - long(losses.size()),
                                              expected.loss.end()))
            << sets.Text();
        std::filesystem::remove_all(scratch_ / "mpi");
    }

    job::Outcome One(const Sets &sets) const {
        const job::Outcome outcome = job::Train(sets);
        EXPECT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message;
        return outcome;
    }

    // Every pipeline width with every number of replicas.
    void Grid(const char *schedule) {
        const job::Outcome one = One(job::Gpt(scratch_));
        for (int pipeline : {1, 2, 4}) {
            for (int data : {1, 2, 4}) {
                Same(one, job::Gpt(scratch_) + Width(pipeline, data) + Schedule(schedule),
                     pipeline * data, kShared);
            }
        }
    }

    Scratch scratch_;
};

TEST_F(LayoutsMpi, PipelineTimesReplicasGpipe) {
    Grid("gpipe");
}

TEST_F(LayoutsMpi, PipelineTimesReplicas1f1b) {
    Grid("1f1b");
}

TEST_F(LayoutsMpi, PipelineTimesReplicasInterleaved) {
    Grid("interleaved");
}

TEST_F(LayoutsMpi, EverySchedule) {
    const job::Outcome one = One(job::Gpt(scratch_));
    for (const crl_schedule *schedule : job::Schedules()) {
        for (int pipeline : {2, 3, 4}) {
            Same(one, job::Gpt(scratch_) + Width(pipeline, 1) + Schedule(schedule->name), pipeline,
                 kSharedNoEager);
        }
    }
}

TEST_F(LayoutsMpi, AWidthPerStage) {
    const job::Outcome one = One(job::Gpt(scratch_));
    const std::pair<const char *, int> widths[] = {{"[3, 1]", 4}, {"[1, 3]", 4},  {"[2, 1, 1]", 4},
                                                   {"[1, 2, 1]", 4}, {"[3, 2]", 5}, {"[2, 4]", 6}};
    for (const auto &[replicas, ranks] : widths) {
        Same(one, job::Gpt(scratch_) + Sets{{"parallel.replicas", replicas}}, ranks,
             kSharedNoEager);
    }
    const Sets lanes = {{"numerics.lanes", "8"}};
    Same(One(job::Gpt(scratch_) + lanes),
         job::Gpt(scratch_) + lanes + Sets{{"parallel.replicas", "[7, 1]"}}, 8, kSharedNoEager);
}

TEST_F(LayoutsMpi, UnevenCutsAndOddWidths) {
    const job::Outcome one = One(job::Gpt(scratch_));
    Same(one, job::Gpt(scratch_) + Width(2, 2) + Cuts("[h0.ln1]"), 4, kShared);
    Same(one, job::Gpt(scratch_) + Width(3, 1) + Cuts("[h0.attn.proj, head]"), 3, kShared);
    Same(one, job::Gpt(scratch_) + Width(1, 3), 3, kShared);
}

TEST_F(LayoutsMpi, WithoutEagerMessages) {
    const job::Outcome one = One(job::Gpt(scratch_));
    Same(one, job::Gpt(scratch_) + Width(2, 2), 4, kSharedNoEager);
    Same(one, job::Gpt(scratch_) + Width(2, 1) + Schedule("interleaved"), 2, kSharedNoEager);
    Same(one, job::Gpt(scratch_) + Width(4, 1), 4, kTcpNoEager);
    Same(one, job::Gpt(scratch_) + Width(1, 4) + Sets{{"comm.bucket", "4KiB"}}, 4, kTcpNoEager);
}

TEST_F(LayoutsMpi, ResumesWhatTheOtherTransportBegan) {
    const Sets stops = {{"train.checkpoint_every", "5"}, {"train.keep", "0"}};
    const Sets goes_on = {{"run.resume", scratch_ / "run/checkpoints/step-00000005"}};
    Sets rest = job::Gpt(scratch_);
    rest.Erase("numerics.lanes"); // taken from the checkpoint
    const job::Outcome one = One(job::Gpt(scratch_) + Width(2, 2) + stops);
    Same(one, rest + Width(1, 3) + goes_on, 3, kShared);
    Same(one, rest + Width(4, 1) + goes_on, 4, kShared);

    const job::Printed begun = job::Shell(
        job::MpirunEnvironment() + std::string("timeout 100 ") + job::Mpirun(4, kShared) +
        job::Command(job::Gpt(scratch_) + Width(2, 2) + stops, scratch_ / "config.yaml"));
    ASSERT_EQ(begun.code, 0) << begun.text;
    EXPECT_EQ(One(rest + Width(1, 4) + goes_on + Sets{{"run.directory", scratch_ / "last"}})
                  .result.parameter_hash,
              one.result.parameter_hash);
}

TEST_F(LayoutsMpi, ImagesToo) {
    job::WriteImages(scratch_, 203);
    const Sets mlp = job::Mlp(scratch_, scratch_ / "images", scratch_ / "labels");
    Same(One(mlp), mlp + Width(2, 2), 4, kShared);
}

// The command starts mpirun itself.
TEST_F(LayoutsMpi, CommandStartsMpirun) {
    const Sets sets = job::Gpt(scratch_) + Width(2, 2);
    const job::Outcome one = One(job::Gpt(scratch_));
    const job::Printed printed = job::Shell(
        "timeout 100 " + job::Command(sets, scratch_ / "config.yaml") + " --np 4 --transport mpi");
    char bits[64];
    snprintf(bits, sizeof bits, "parameter bits %016llx",
             static_cast<unsigned long long>(one.result.parameter_hash));
    EXPECT_EQ(printed.code, 0);
    EXPECT_NE(printed.text.find(bits), std::string::npos) << printed.text;
}

} // namespace
