// SPDX-License-Identifier: Apache-2.0
// What happens before what. Every stream is a timeline on which its work is numbered; a clock says
// for every timeline how far it is known to be through. Work knows what its stream knew, what the
// events that it follows knew, and what the host had waited for when it was queued. (What one
// thread of the host has waited for all know: how they tell each other is not seen here.) Two uses
// of the same bytes, one of them a write, must be ordered by that, whichever runs first here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/machine.h"

namespace cuda_on_cpu {

using Clock = std::vector<uint64_t>; // by timeline; what is behind its end is 0

void join(Clock &into, const Clock &other);
// What the host has waited for.
Clock &host_clock();

// A new timeline, or one whose work the host has seen to its end.
int take_timeline();
void leave_timeline(int timeline);
// The number of the timeline's next work.
uint64_t next_number(int timeline);

// One use of memory.
struct Touch {
    int timeline;
    uint64_t number;
    bool is_write;
    int stream; // number, for reports
    std::string name;
};

// The uses of an allocation that later ones have to be ordered with: of every byte the last write,
// and what has read it since.
class Touches {
  public:
    // Notes it for bytes begin..end-1; the use that it is not ordered with, if there is one.
    const Touch *note(size_t begin, size_t end, const Touch &touch, const Clock &clock);

  private:
    struct Piece {
        size_t end;
        std::vector<Touch> touches;
    };
    void split(size_t at);
    void add(size_t begin, size_t end, const Touch &touch);
    std::map<size_t, Piece> pieces_; // by their begin; untouched bytes are in none
    Touch clash_;
};

// Work with that clock (its own number in it) uses these bytes: reports what it is not ordered
// with, once.
void check_order(const std::string &name, int stream, int timeline, const Clock &clock,
                 const std::vector<Range> &reads, const std::vector<Range> &writes);

// The same for what the host does on the spot.
void check_host_order(const std::string &name, const std::vector<Range> &reads,
                      const std::vector<Range> &writes);

} // namespace cuda_on_cpu
