// SPDX-License-Identifier: Apache-2.0
// docs/schedules.md shows every registered schedule, as the tool draws it today.
#include <set>

#include "tests/cli/command.h"

namespace {

class CliScheduleDocs : public cli::Command {
  protected:
    const std::filesystem::path source = CRL_SOURCE_DIR;
    const std::filesystem::path images = source / "docs" / "images";

    static std::set<std::string> files_in(const std::filesystem::path &path) {
        std::set<std::string> names;
        for (const auto &entry : std::filesystem::directory_iterator(path))
            if (entry.path().extension() == ".svg")
                names.insert(entry.path().filename());
        return names;
    }
};

TEST_F(CliScheduleDocs, PicturesAreWhatTheToolDraws) {
    const auto drawn = folder / "drawn";
    const auto result = run({(source / "scripts" / "draw-schedules").string(),
                             CRL_BINARY_DIR "/carole", drawn.string()});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_GE(files_in(drawn).size(), 4u);
    for (const std::string &name : files_in(drawn)) {
        // Whole pictures are no help in a message.
        EXPECT_TRUE(cli::read_file(drawn / name) == cli::read_file(images / name))
            << "docs/images/" << name << " is old: run scripts/draw-schedules build/carole";
    }
}

TEST_F(CliScheduleDocs, EveryScheduleHasItsSection) {
    const std::string text = cli::read_file(source / "docs" / "schedules.md");
    bool in = false;
    int schedules = 0;
    for (const std::string &line : cli::lines(carole({"info"}).out)) {
        if (in && line.rfind("  ", 0) != 0)
            break;
        if (in) {
            const std::string name = line.substr(2, line.find(' ', 2) - 2);
            const size_t section = text.find("\n## " + name + "\n");
            ASSERT_NE(section, std::string::npos) << "docs/schedules.md lacks ## " << name;
            const std::string part =
                text.substr(section + 1, text.find("\n## ", section + 1) - section);
            EXPECT_NE(part.find("(images/" + name + ".svg)"), std::string::npos) << name;
            for (const char *fact : {"- Bubble: ", "- Memory: ", "- Messages: ", "- Use it "})
                EXPECT_NE(part.find(fact), std::string::npos) << name << " lacks " << fact;
            schedules++;
        }
        in = in || line == "schedules";
    }
    EXPECT_GE(schedules, 3);
}

} // namespace
