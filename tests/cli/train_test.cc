// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>

#include <regex>

#include "tests/cli/images.h"

namespace {

class CliTrain : public cli::Command {
  protected:
    void SetUp() override {
        cli::write_images(folder, "train", 256);
        cli::write_images(folder, "test", 64);
        config = cli::write_config(folder, "model:\n  type: mlp\n  hidden: [16, 16]\n");
    }

    // The hash that the last line of a run prints.
    static std::string bits(const cli::Result &result) {
        std::smatch found;
        return std::regex_search(result.out, found, std::regex("parameter bits ([0-9a-f]{16})"))
                   ? found[1].str()
                   : "none: " + result.out + result.err;
    }

    // The config's run folder is in the way of a second run's comparison: each has its own.
    std::string run_folder(const std::string &name) {
        return "run.directory=" + (folder / name).string();
    }

    static bool has_mpi() {
        return std::system("command -v mpirun >/dev/null") == 0 &&
               std::system(CRL_BINARY_DIR "/carole info | grep -q '^  mpi '") == 0;
    }

    std::string config;
};

TEST_F(CliTrain, PrintsPlainLinesIntoAPipe) {
    const auto result = carole({"train", config});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out.find('\r'), std::string::npos);
    for (const char *text :
         {"step 1/6  loss ", "step 6/6  loss ", "  norm ", "  lr ", " ms  ", " samples/s",
          "bubble ", "comm ", "peak ", "validation loss", "checkpoint "})
        EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
    EXPECT_EQ(bits(result).size(), 16u);
}

TEST_F(CliTrain, LogsTheSameAsJsonLines) {
    ASSERT_EQ(carole({"train", config}).code, 0);
    const auto log = cli::lines(cli::read_file(folder / "run/log.jsonl"));
    int steps = 0;
    ASSERT_GE(log.size(), 8u);
    for (const std::string &line : log) {
        json_t *one = json_loads(line.c_str(), 0, nullptr);
        ASSERT_NE(one, nullptr) << line;
        const std::string event = json_string_value(json_object_get(one, "event"));
        if (event == "step") {
            EXPECT_EQ(json_integer_value(json_object_get(one, "step")), ++steps);
            for (const char *key : {"loss", "grad_norm", "lr", "ms", "samples_per_s",
                                    "tokens_per_s", "bubble", "exposed_comm_ms", "peak_bytes"})
                EXPECT_TRUE(json_is_number(json_object_get(one, key))) << key << ": " << line;
        }
        json_decref(one);
    }
    EXPECT_EQ(steps, 6);
}

TEST_F(CliTrain, QuietPrintsNothing) {
    const auto result = carole({"train", config, "--quiet"});
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out + result.err, "");
}

TEST_F(CliTrain, ResumesInAnotherLayoutWithTheSameBits) {
    const auto whole = carole({"train", config, "--set", run_folder("whole")});
    ASSERT_EQ(whole.code, 0) << whole.err;
    ASSERT_EQ(
        carole({"train", config, "--set", "train.steps=3", "--set", run_folder("parts")}).code, 0);
    const auto rest = carole({"train", config, "--resume", "auto", "--set", run_folder("parts"),
                              "--set", "parallel.pipeline=1", "--set", "parallel.data=2"});
    ASSERT_EQ(rest.code, 0) << rest.err;
    EXPECT_NE(rest.out.find("resumed from"), std::string::npos);
    EXPECT_EQ(rest.out.find("step 3/6"), std::string::npos);
    EXPECT_EQ(bits(rest), bits(whole));
    EXPECT_GE(cli::lines(cli::read_file(folder / "parts/log.jsonl")).size(), 10u);
}

TEST_F(CliTrain, EvaluatesItsCheckpoint) {
    ASSERT_EQ(carole({"train", config, "--quiet"}).code, 0);
    const auto result = carole({"eval", config, "--set", "parallel.pipeline=1"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("step 6: validation loss "), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("64 samples"), std::string::npos) << result.out;
}

TEST_F(CliTrain, RefusesTheWrongNumberOfRanks) {
    expect_failure(carole({"train", config, "--np", "3"}), 2,
                   "--np is 3, but the layout needs 2 x 1 = 2 ranks");
    EXPECT_EQ(carole({"train", config, "--np", "2", "--quiet"}).code, 0);
    EXPECT_FALSE(std::filesystem::exists(folder / "run2"));
}

TEST_F(CliTrain, RefusesLocalRanksUnderMpirun) {
    const std::vector<std::string> job = {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0"};
    if (!has_mpi()) {
        expect_failure(carole({"train", config}, job), 1, "this build has no MPI");
        return;
    }
    expect_failure(carole({"train", config, "--transport", "local"}, job), 2,
                   "transport 'local' runs all ranks in one process");
    const std::vector<std::string> three = {"OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK=0"};
    expect_failure(carole({"train", config}, three), 2, "mpirun started 3");
}

TEST_F(CliTrain, SaysThatMpirunIsMissing) {
    if (!has_mpi())
        GTEST_SKIP() << "no MPI in this build, or no mpirun";
    expect_failure(carole({"train", config, "--np", "2", "--transport", "mpi"}, {"PATH=/nowhere"}),
                   1, "mpirun was not found");
}

TEST_F(CliTrain, StartsMpirunItselfWithTheSameBits) {
    if (!has_mpi())
        GTEST_SKIP() << "no MPI in this build, or no mpirun";
    const auto local = carole({"train", config, "--set", run_folder("local")});
    ASSERT_EQ(local.code, 0) << local.err;
    const auto mpi =
        carole({"train", config, "--np", "2", "--transport", "mpi", "--set", run_folder("mpi")});
    ASSERT_EQ(mpi.code, 0) << mpi.err;
    EXPECT_NE(mpi.out.find("over mpi"), std::string::npos) << mpi.out;
    EXPECT_EQ(bits(mpi), bits(local));
}

TEST_F(CliTrain, UsesMpiUnderMpirun) {
    if (!has_mpi())
        GTEST_SKIP() << "no MPI in this build, or no mpirun";
    const auto result =
        run({"mpirun", "--oversubscribe", "-n", "2", CRL_BINARY_DIR "/carole", "train", config},
            {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("over mpi"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("step 6/6"), std::string::npos) << result.out;
}

TEST_F(CliTrain, AMissingFileIsOneLine) {
    std::filesystem::remove(folder / "train-labels");
    const auto result = carole({"train", config});
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(cli::lines(result.err).size(), 1u) << result.err;
    EXPECT_NE(result.err.find("train-labels"), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints"));
}

TEST_F(CliTrain, ABrokenCheckpointIsOneLine) {
    ASSERT_EQ(carole({"train", config, "--quiet"}).code, 0);
    const auto step = folder / "run/checkpoints/step-00000006";
    ASSERT_TRUE(std::filesystem::exists(step));
    const std::string whole = cli::read_file(step / "model.safetensors");
    for (const size_t keep : {(size_t)0, (size_t)7, whole.size() / 2, whole.size() - 1}) {
        cli::write_file(step / "model.safetensors", whole.substr(0, keep));
        const auto result = carole({"eval", config, "--checkpoint", step});
        EXPECT_EQ(result.code, 1) << keep;
        EXPECT_EQ(cli::lines(result.err).size(), 1u) << result.err;
        EXPECT_NE(result.err.find("model.safetensors"), std::string::npos) << result.err;
    }
}

TEST_F(CliTrain, EvalWithoutACheckpointIsOneLine) {
    expect_failure(carole({"eval", config}), 1, "run");
}

TEST_F(CliTrain, PlanShowsStagesMemoryAndPicture) {
    const auto result = carole({"plan", config, "--nodes"});
    ASSERT_EQ(result.code, 0) << result.err;
    for (const char *text : {"2 x 1 = 2 ranks", "stage ", "weights", "optimizer",
                             "predicted bubble", "F0", "fc1", "parameters"})
        EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
}

TEST_F(CliTrain, PlanShowsEveryRankThatNeedsOtherMemory) {
    const std::vector<std::string> three = {"plan",  config,
                                            "--set", "parallel.pipeline=1",
                                            "--set", "parallel.data=3",
                                            "--set", "numerics.lanes=4"};
    const auto rows = [](const std::string &text) { // of the table of memory
        size_t count = 0;
        bool inside = false;
        for (const std::string &line : cli::lines(text)) {
            inside = line.rfind("rank ", 0) == 0 || (inside && !line.empty() && line[0] == ' ');
            count += inside;
        }
        return count - 1; // its head
    };
    auto result = carole(three); // one replica of the three holds two of the four lanes
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_GT(rows(result.out), 1u) << result.out;
    EXPECT_LE(rows(result.out), 3u) << result.out;
    std::vector<std::string> four = three;
    four[5] = "parallel.data=4";
    result = carole(four);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(rows(result.out), 1u) << result.out;
}

// A partitioner counts what 1F1B holds; this schedule holds all.
TEST_F(CliTrain, PlanSaysWhenTheMemoryLimitIsNotKept) {
    /* Enough for what the partitioner counts, but not for the workspace beside it. */
    const auto result = carole({"plan", config, "--set", "parallel.memory_limit=400KiB", "--set",
                                "parallel.schedule=gpipe"});
    EXPECT_EQ(result.code, 1);
    EXPECT_NE(result.err.find("parallel.memory_limit: a rank needs "), std::string::npos)
        << result.err;
    EXPECT_NE(result.out.find("predicted bubble"), std::string::npos) << result.out;
}

// Before any rank begins: a mistake in the config like any other.
TEST_F(CliTrain, LayoutsThatCannotBeAreSaidWithTheirPlace) {
    const struct {
        std::vector<std::string> sets;
        std::string says;
    } cases[] = {
        {{"parallel.pipeline=64"}, "--set:1:1: parallel.pipeline: layout: 64 stages"},
        {{"parallel.virtual_stages=2"}, "--set:1:1: parallel.virtual_stages: 1f1b: 4 stages"},
        {{"parallel.schedule=interleaved", "parallel.virtual_stages=1"},
         "--set:1:1: parallel.schedule: interleaved: 2 stages"},
        {{"parallel.partitioner=manual"}, "--set:1:1: parallel.partitioner: manual: 0 cuts"},
        {{"parallel.partitioner=manual", "parallel.cuts=[nowhere]"},
         "--set:2:1: parallel.cuts: manual: cut 'nowhere'"}};
    for (const auto &one : cases) {
        std::vector<std::string> arguments = {"train", config};
        for (const std::string &set : one.sets) {
            arguments.insert(arguments.end(), {"--set", set});
        }
        const auto result = carole(arguments);
        expect_failure(result, 2, one.says);
        EXPECT_EQ(result.err.find("rank "), std::string::npos) << result.err;
    }
}

TEST_F(CliTrain, PlanAndCheckRefuseAScheduleThatCannotBe) {
    const std::vector<std::string> sets = {"--set", "parallel.schedule=interleaved", "--set",
                                           "parallel.virtual_stages=1"};
    for (std::vector<std::string> words :
         {std::vector<std::string>{"plan", config}, {"config", "check", config}}) {
        words.insert(words.end(), sets.begin(), sets.end());
        const auto result = carole(words);
        expect_failure(result, 2, "parallel.schedule: interleaved: 2 stages on 2 positions");
        EXPECT_EQ(result.out, "");
    }
    /* Left open, it is what the schedule needs. */
    EXPECT_EQ(carole({"config", "check", config, sets[0], sets[1]}).code, 0);
}

TEST_F(CliTrain, PlanRefusesMoreStagesThanLayers) {
    const auto result = carole({"plan", config, "--set", "parallel.pipeline=64"});
    EXPECT_NE(result.code, 0);
    EXPECT_EQ(cli::lines(result.err).size(), 1u) << result.err;
}

} // namespace
