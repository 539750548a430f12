/* SPDX-License-Identifier: Apache-2.0 */
/* Published makespans [qi23], as the tests of schedules read them. */
#pragma once

#include "tests/schedules/schedules.h"

#include <fstream>
#include <sstream>

namespace schedules {

/* A published makespan, and what it is of. */
struct figure {
    int positions, micro_batches;
    double forward, input, weight, message; /* us, of a position */
    double hidden, heads;
    std::string schedule; /* "ZB-1p(mem=1.0pMB)" */
    double makespan;

    bool is(const std::string &name) const { return schedule.rfind(name, 0) == 0; }
    double memory() const { /* in micro-batches for each position */
        const size_t at = schedule.find("mem=");
        return at == std::string::npos ? 1 : std::stod(schedule.substr(at + 4));
    }
    double kept() const { return 34 * hidden + 5 * heads * 1024; }
    double limit() const { return memory() * positions * kept(); }

    crl_stage_cost cost(int chunks) const {
        crl_stage_cost out = {};
        out.forward_s = forward / chunks;
        out.input_s = input / chunks;
        out.weight_s = weight / chunks;
        out.kept_bytes = kept() / chunks;
        out.held_bytes = 32 * hidden / chunks;
        return out;
    }
};

/* All rows of zero_bubble_makespans.csv. */
inline std::vector<figure> read_figures(const std::string &path) {
    std::ifstream in(path);
    std::vector<figure> rows;
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
        std::stringstream text(line);
        std::vector<std::string> cell(14);
        for (std::string &item : cell) {
            std::getline(text, item, ',');
        }
        rows.push_back({std::stoi(cell[1]), std::stoi(cell[2]), std::stod(cell[3]),
                        std::stod(cell[4]), std::stod(cell[5]), std::stod(cell[6]),
                        std::stod(cell[7]), std::stod(cell[8]), cell[11], std::stod(cell[12])});
    }
    return rows;
}

} // namespace schedules
