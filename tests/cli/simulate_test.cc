// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>

#include "tests/cli/command.h"
#include "tests/ir/svg_check.h"

namespace {

class CliSimulate : public cli::Command {
  protected:
    std::string file(const std::string &name, const std::string &content) {
        cli::write_file(folder / name, content);
        return (folder / name).string();
    }

    // The columns of the line of a position.
    static std::vector<double> row(const std::string &text, int position) {
        for (const std::string &line : cli::lines(text)) {
            std::stringstream in(line);
            std::vector<double> values;
            for (double value = 0; in >> value;)
                values.push_back(value);
            if (in.eof() && values.size() == 12 && values[0] == position)
                return values;
        }
        ADD_FAILURE() << "no row of position " << position << " in\n" << text;
        return std::vector<double>(12);
    }

    static void expect_failure_of_write(const cli::Result &result) {
        EXPECT_EQ(result.code, 1);
        EXPECT_EQ(cli::lines(result.err).size(), 1u) << result.err;
        EXPECT_TRUE(has(result.err, "a.svg: ")) << result.err;
    }

    static bool has(const std::string &text, const std::string &part) {
        return text.find(part) != std::string::npos;
    }
};

const char *const two_stages = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";

TEST_F(CliSimulate, SaysWhereTheTimeGoes) {
    const auto result =
        carole({"simulate", file("two.csv", two_stages), "--latency=0.5", "--critical-path"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "two.csv: 2 positions, 2 stages, 2 micro-batches, 4 messages\n"));
    EXPECT_TRUE(has(result.out, "makespan 10, bubble 40.0 %")) << result.out;
    // position, busy, F, I, W, messages, waits for input, message, send, after, memory, most
    EXPECT_EQ(row(result.out, 0), (std::vector<double>{0, 6, 2, 2, 2, 0, 3, 1, 0, 0, 2, 2}));
    EXPECT_EQ(row(result.out, 1), (std::vector<double>{1, 6, 2, 2, 2, 0, 1, 0.5, 0, 2.5, 1, 1}));
    EXPECT_TRUE(has(result.out, "critical path: 6 actions, F 3, B 6, messages 1\n")) << result.out;
    EXPECT_TRUE(has(result.out, "         0          1         0  0F0\n"));
    EXPECT_TRUE(has(result.out, "         8         10         0  0B1\n"));
}

TEST_F(CliSimulate, BuildsASchedule) {
    const auto result = carole({"simulate", "--schedule", "1f1b", "--stages", "4",
                                "--micro-batches", "8", "--memory", "10,0", "--grid"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "makespan 33, bubble 27.3 %")) << result.out;
    for (int p = 0; p < 4; p++)
        EXPECT_EQ(row(result.out, p)[10], 10 * (4 - p));
    const auto wide = carole({"simulate", "--schedule", "interleaved", "--positions", "4",
                              "--virtual", "3", "--micro-batches", "8"});
    EXPECT_TRUE(has(wide.out, "4 positions, 12 stages, 8 micro-batches")) << wide.err;
    EXPECT_TRUE(has(result.out, "  0 | F0 F1 F2 F3 "));
}

TEST_F(CliSimulate, DealsMicroBatchesOutToReplicas) {
    const std::string costs = file("costs", "3,3,3\n1,1,1\n");
    const auto result = carole({"simulate", "--schedule", "1f1b", "--positions", "2", "--widths",
                                "3,1", "--micro-batches", "9", "--costs", costs});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "4 replicas, 2 stages, 9 micro-batches, 18 messages"));
    for (const char *name : {"     0.0 ", "     0.1 ", "     0.2 ", "     1.0 "})
        EXPECT_TRUE(has(result.out, std::string(name) + "        27")) << name << result.out;
}

TEST_F(CliSimulate, TakesCostsOfEveryStage) {
    const std::string schedule = file("two.csv", two_stages);
    const std::string costs = file("costs", "# F I W\n1,2,3\n\n 10, 20 ,30,100,7,5\r\n");
    auto result = carole({"simulate", schedule, "--costs", costs, "--memory", "4,0"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "makespan 126,")) << result.out;
    EXPECT_EQ(row(result.out, 0)[10], 8);
    EXPECT_EQ(row(result.out, 1)[10], 100);
    result = carole({"simulate", schedule, "--costs", "1,1.5,0.5", "--bandwidth", "10",
                     "--output-bytes", "5", "--message-time", "0.25"});
    EXPECT_EQ(row(result.out, 0)[5], 1) << result.out;
    EXPECT_EQ(row(result.out, 1)[7], 0.75); // 0.25 of the sender, 0.5 on the link
}

TEST_F(CliSimulate, SendBuffersAreWaitedFor) {
    const std::string schedule = file("two.csv", two_stages);
    const auto free = carole({"simulate", schedule, "--latency", "3"});
    const auto many = carole({"simulate", schedule, "--latency", "3", "--send-buffers", "2"});
    const auto one = carole({"simulate", schedule, "--latency", "3", "--send-buffers", "1"});
    ASSERT_EQ(one.code, 0) << one.err;
    EXPECT_TRUE(has(free.out, "makespan 15,"));
    EXPECT_TRUE(has(many.out, "makespan 15,")) << many.out;
    EXPECT_EQ(row(many.out, 0), row(free.out, 0));
    EXPECT_EQ(row(one.out, 0)[8], 3) << one.out; // 0F1 waits until 0F0's output has arrived
    EXPECT_EQ(row(free.out, 0)[8], 0);
    const auto forwards = carole({"simulate", file("f.csv", "0F0,0F1\n1F0,1F1\n"), "--output-bytes",
                                  "6", "--bandwidth", "2", "--send-buffers", "1"});
    EXPECT_TRUE(has(forwards.out, "makespan 9,")) << forwards.out << forwards.err;
}

TEST_F(CliSimulate, NodesHaveLinksOfTheirOwn) {
    const std::string three = file("three.csv", "0F0,0B0\n1F0,1B0\n2F0,2B0\n");
    const auto result =
        carole({"simulate", three, "--node-size", "2", "--latency", "1", "--node-latency", "10"});
    EXPECT_TRUE(has(result.out, "makespan 31,")) << result.out; // 9 + 2 + 20
}

TEST_F(CliSimulate, WritesPictureAndTrace) {
    const auto svg = folder / "a.svg", trace = folder / "a.json";
    const auto result = carole({"simulate", file("two.csv", two_stages), "--svg", svg.string(),
                                "--trace", trace.string()});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(svg::problem(cli::read_file(svg)), "");
    json_t *root = json_load_file(trace.c_str(), JSON_REJECT_DUPLICATES, nullptr);
    ASSERT_NE(root, nullptr);
    EXPECT_GT(json_array_size(json_object_get(root, "traceEvents")), 8u);
    json_decref(root);
    expect_failure_of_write(carole(
        {"simulate", file("two.csv", two_stages), "--svg", (folder / "none" / "a.svg").string()}));
}

TEST_F(CliSimulate, RejectsWhatCannotBe) {
    const std::string good = file("two.csv", two_stages);
    expect_failure(carole({"simulate"}), 2, "FILE.csv or --schedule is missing");
    expect_failure(carole({"simulate", good, "--schedule", "1f1b"}), 2, "both");
    expect_failure(carole({"simulate", "--schedule", "1f1b", "--stages", "4"}), 2,
                   "--micro-batches is missing");
    expect_failure(carole({"simulate", "--schedule", "1f1b", "--stages", "4", "--positions", "4",
                           "--micro-batches", "4"}),
                   2, "both --stages and --positions");
    expect_failure(carole({"simulate", good, "--widths", "3,1"}), 2, "go with --schedule");
    for (const char *widths : {"3", "3,0", "3,x"})
        expect_failure(carole({"simulate", "--schedule", "1f1b", "--positions", "2",
                               "--micro-batches", "4", "--widths", widths}),
                       2, "--widths: ");
    expect_failure(carole({"simulate", good, "--costs", "1,2"}), 2, "--costs: 2 numbers");
    expect_failure(carole({"simulate", good, "--costs", "1,2,-3"}), 2, "--costs: ");
    expect_failure(carole({"simulate", good, "--costs", "1e300,1,1"}), 2, "--costs: ");
    const auto virtual_stages = [&](const char *schedule, const char *each) {
        return carole({"simulate", "--schedule", schedule, "--positions", "4", "--micro-batches",
                       "4", "--virtual", each});
    };
    expect_failure(virtual_stages("zb-v", "1"), 2, "expected 2 virtual stages on each");
    expect_failure(virtual_stages("auto", "3"), 2, "expected 1 to 2 virtual stages on each");
    expect_failure(carole({"simulate", good, "--costs", "none.csv"}), 2, "none.csv: no such file");
    expect_failure(carole({"simulate", good, "--costs", file("c", "1,1,1\n")}), 2,
                   "c: 1 rows, expected one for each of 2 stages");
    expect_failure(carole({"simulate", good, "--costs", file("c", "1,1,1\n1,1,1,1\n")}), 2,
                   "c:2: 4 numbers, expected 3, 5 or 6");
    expect_failure(carole({"simulate", good, "--memory", "1"}), 2, "--memory: 1 numbers");
    expect_failure(carole({"simulate", good, "--latency", "-1"}), 2, "latency");
    expect_failure(carole({"simulate", file("bad.csv", "0F0\n1F0,1B0\n")}), 1, "0B0 is missing");
}

} // namespace
