// SPDX-License-Identifier: Apache-2.0
#include <regex>

#include "tests/cli/images.h"

namespace {

class CliPlan : public cli::Command {
  protected:
    void SetUp() override {
        cli::write_images(folder, "train", 64);
        cli::write_images(folder, "test", 32);
        config = cli::write_config(folder, "model:\n  type: mlp\n  hidden: [48, 24, 16, 16]\n");
    }

    // The config without a section, and with other lines instead.
    std::string instead(const std::string &section, const std::string &lines) {
        std::string text = cli::read_file(config);
        const size_t at = text.find(section + ":\n");
        size_t end = at + section.size() + 2;
        while (text[end] == ' ')
            end = text.find('\n', end) + 1;
        text.replace(at, end - at, lines);
        const auto file = folder / "other.yaml";
        cli::write_file(file, text);
        return file;
    }

    static std::string bits(const cli::Result &result) {
        std::smatch found;
        return std::regex_search(result.out, found, std::regex("parameter bits ([0-9a-f]{16})"))
                   ? found[1].str()
                   : "none: " + result.out + result.err;
    }

    std::string write_machine(const std::string &memory, const std::string &price) {
        const auto file = folder / "machine.yaml";
        cli::write_file(file, "machine:\n  name: two-of-four\n  nodes: 2\n  devices_per_node: 4\n"
                              "  price_per_hour: " +
                                  price + "\ncompute:\n  memory: " + memory +
                                  "\n  peak_flops_per_s: 1e12\n  memory_bytes_per_s: 1e11\n"
                                  "within:\n  latency_s: 1e-6\n  bytes_per_s: 1e10\n"
                                  "between:\n  latency_s: 1e-5\n  bytes_per_s: 1e9\n");
        return file;
    }

    std::string config;
};

TEST_F(CliPlan, PredictsTheConfiguredStep) {
    const auto result = carole({"plan", config});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(std::regex_search(
        result.out, std::regex("predicted step: [0-9.]+ [mu]?s, .* tokens/s, .* exposed")))
        << result.out;
}

TEST_F(CliPlan, DrawsAPipelineThatHasWork) { // one micro-batch, three pipelines: two are idle
    const auto result = carole({"plan", config, "--set", "parallel.data=3", "--set",
                                "train.global_batch=4", "--set", "train.micro_batch=4"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("pipeline 2: schedule 1f1b, 1 micro-batches"), std::string::npos)
        << result.out;
}

TEST_F(CliPlan, ListsTheTenBestAndWhyTheyLose) {
    const auto result = carole({"plan", config, "--devices", "4"});
    ASSERT_EQ(result.code, 0) << result.err;
    for (const char *text : {"model mlp on 4 devices", "global batch 32", "loses by", "bubble",
                             "exposed", "memory", "stages of the best", " 10  "})
        EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
    EXPECT_EQ(result.out.find("per 1e9 t"), std::string::npos); // the machine has no price
    EXPECT_EQ(carole({"plan", config, "--devices", "4"}).out, result.out);
}

TEST_F(CliPlan, CountsMoneyWhereTheMachineHasAPrice) {
    const auto result = carole({"plan", config, "--machine", write_machine("1GB", "2")});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("on 8 devices of machine two-of-four"), std::string::npos)
        << result.out;
    EXPECT_NE(result.out.find("per 1e9 t"), std::string::npos) << result.out;
}

TEST_F(CliPlan, SaysWhatWouldFit) {
    const auto result = carole({"plan", config, "--machine", write_machine("20KiB", "0")});
    EXPECT_EQ(result.code, 1);
    EXPECT_NE(result.err.find("plan: no layout of 8 devices fits in 20.0 KiB (20480 bytes) each, "
                              "the least that would do is "),
              std::string::npos)
        << result.err;
    EXPECT_EQ(cli::lines(result.err).size(), 1u);
}

TEST_F(CliPlan, TrainTakesWhatItWrites) {
    const std::string plan = folder / "plan.yaml";
    const auto planned = carole({"plan", config, "--devices", "3", "--pipeline", "3",
                                 "--micro-batches", "4", "--write", plan});
    ASSERT_EQ(planned.code, 0) << planned.err;
    const std::string text = cli::read_file(plan);
    for (const char *line : {"  pipeline: 3\n", "  partitioner: manual\n", "  lanes: 4\n",
                             "  learning_rate: 0.003\n", "  checkpoint_every: 3\n"})
        EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
    // The same micro-batches and lanes: the same bits as the config's own layout.
    const auto trained = carole({"train", plan});
    EXPECT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(bits(trained), bits(carole({"train", config, "--set",
                                          "run.directory=" + (folder / "own").string()})));
    // It reads back to itself.
    const std::string again = folder / "again.yaml";
    ASSERT_EQ(carole({"plan", plan, "--devices", "3", "--pipeline", "3", "--micro-batches", "4",
                      "--write", again})
                  .code,
              0);
    EXPECT_EQ(cli::read_file(again), text);
}

TEST_F(CliPlan, TheWrittenLayoutKeepsTheLimitToTheByte) {
    const std::string plan = folder / "plan.yaml";
    const auto wide = carole({"plan", config, "--devices", "2", "--write", plan, "--set",
                              "parallel.memory_limit=1000KiB"});
    ASSERT_EQ(wide.code, 0) << wide.err;
    EXPECT_EQ(carole({"plan", plan}).code, 0);
    EXPECT_NE(cli::read_file(plan).find("memory_limit: 1000KiB"), std::string::npos);
}

TEST_F(CliPlan, UsesAProfileOfTheSameModel) {
    const std::string profile = folder / "profile.yaml";
    ASSERT_EQ(
        carole({"profile", config, "--counted", "--micro-batches", "2,4", "--out", profile}).code,
        0);
    const auto result = carole({"plan", config, "--devices", "2", "--profile", profile});
    EXPECT_EQ(result.code, 0) << result.err;
    expect_failure(carole({"plan", config, "--profile", profile, "--micro-batches", "8"}), 2,
                   "has no micro-batches of 8");
    // Bits go by the micro-batch size: auto keeps the config's among those of the file.
    const std::string automatic =
        instead("parallel", "parallel:\n  layout: auto\n  profile: " + profile + "\n");
    const auto own = carole({"plan", automatic, "--set", "train.micro_batch=2"});
    EXPECT_NE(own.out.find("micro-batch 2,"), std::string::npos) << own.out << own.err;
    const std::string other = instead("model", "model:\n  type: mlp\n  hidden: [16]\n");
    const auto refused = carole({"plan", other, "--devices", "2", "--profile", profile});
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("model mlp has "), std::string::npos) << refused.err;
}

TEST_F(CliPlan, AutoChoosesForTheRanksOfTheJob) {
    const std::string automatic = instead("parallel", "parallel: auto\n");
    const auto trained = carole({"train", automatic, "--np", "4"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_NE(carole({"config", "check", automatic}).out.find("layout chosen at the start"),
              std::string::npos);
    EXPECT_NE(trained.out.find("layout auto: pipeline "), std::string::npos) << trained.out;
    EXPECT_NE(trained.out.find("for 4 ranks"), std::string::npos) << trained.out;
    const auto log = cli::lines(cli::read_file(folder / "run/log.jsonl"));
    EXPECT_NE(log.at(0).find("\"ranks\":4,"), std::string::npos) << log.at(0);
    EXPECT_EQ(bits(trained), bits(carole({"train", config, "--set",
                                          "run.directory=" + (folder / "own").string()})));
    const auto set = carole({"train", config, "--set", "parallel=auto", "--quiet", "--np", "2",
                             "--set", "run.directory=" + (folder / "set").string()});
    EXPECT_EQ(set.code, 0) << set.err;
    EXPECT_EQ(set.out, "");
}

TEST_F(CliPlan, AutoKeepsWhatIsGiven) {
    const std::string automatic =
        instead("parallel", "parallel:\n  layout: auto\n  pipeline: 2\n  schedule: gpipe\n");
    const auto result = carole({"train", automatic, "--np", "4"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("layout auto: pipeline 2 x data 2, gpipe, micro-batch 4, 4 lanes for "
                              "4 ranks"),
              std::string::npos)
        << result.out;
    const auto refused = carole({"train", automatic, "--np", "4", "--set", "parallel.data=2"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("parallel.data: is given, but parallel.layout auto chooses it"),
              std::string::npos)
        << refused.err;
    for (const char *set :
         {"parallel.recompute=[none,full]", "parallel.group=1", "parallel.schedule=a.csv"})
        EXPECT_EQ(carole({"plan", automatic, "--set", set}).code, 2) << set;
    const auto odd = carole({"train", automatic, "--np", "7"});
    EXPECT_EQ(odd.code, 2);
    EXPECT_NE(odd.err.find("plan: no layout uses 7 devices"), std::string::npos) << odd.err;
}

TEST_F(CliPlan, RefusesStagesThatTheScheduleHasNoPositionFor) {
    expect_failure(carole({"plan", config, "--set", "parallel.pipeline=2", "--set",
                           "parallel.virtual_stages=3", "--set", "parallel.schedule=auto"}),
                   2, "parallel.virtual_stages: auto: 6 stages on 2 positions, expected 1 to 2 ");
}

TEST_F(CliPlan, RefusesWrongOptions) {
    const auto none = carole({"plan", config, "--schedule", "1f2b"});
    EXPECT_EQ(none.code, 2);
    EXPECT_NE(none.err.find("did you mean '1f1b'"), std::string::npos) << none.err;
    const auto many =
        carole({"plan", config, "--machine", write_machine("1GB", "0"), "--devices", "9"});
    EXPECT_EQ(many.code, 2);
    EXPECT_NE(many.err.find("--devices is 9, machine two-of-four has 2 x 4"), std::string::npos)
        << many.err;
    const auto size = carole({"plan", config, "--micro-batches", "4,x"});
    EXPECT_EQ(size.code, 2);
    EXPECT_NE(size.err.find("--micro-batches: size 'x'"), std::string::npos) << size.err;
}

} // namespace
