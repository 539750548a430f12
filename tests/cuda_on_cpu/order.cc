// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/order.h"

#include <algorithm>

namespace cuda_on_cpu {

namespace {

Clock host, last; // last: of every timeline, the number of its newest work
std::vector<int> left;

bool is_before(const Touch &touch, const Clock &clock) {
    return (size_t)touch.timeline < clock.size() && clock[(size_t)touch.timeline] >= touch.number;
}

std::string about(const Touch &now, const Touch &then, const Allocation &memory, size_t at) {
    return (now.stream > 0 ? "on stream " + std::to_string(now.stream) : "the host") +
           (now.is_write ? " writes" : " reads") + " byte " + std::to_string(at) +
           " of an array of " + std::to_string(memory.bytes) + " bytes that " + then.name +
           " on stream " + std::to_string(then.stream) + (then.is_write ? " writes" : " reads") +
           ", and waits for no event behind that";
}

} // namespace

void join(Clock &into, const Clock &other) {
    if (into.size() < other.size())
        into.resize(other.size(), 0);
    for (size_t t = 0; t < other.size(); t++)
        into[t] = std::max(into[t], other[t]);
}

Clock &host_clock() {
    return host;
}

int take_timeline() {
    host.resize(last.size(), 0);
    for (size_t i = 0; i < left.size(); i++) {
        const int timeline = left[i];
        if (host[(size_t)timeline] < last[(size_t)timeline])
            continue;
        left.erase(left.begin() + (ptrdiff_t)i);
        return timeline;
    }
    last.push_back(0);
    return (int)last.size() - 1;
}

void leave_timeline(int timeline) {
    left.push_back(timeline);
}

uint64_t next_number(int timeline) {
    return ++last[(size_t)timeline];
}

void Touches::split(size_t at) {
    auto next = pieces_.upper_bound(at);
    if (next == pieces_.begin())
        return;
    auto &[begin, piece] = *--next;
    if (begin == at || piece.end <= at)
        return;
    pieces_[at] = piece;
    piece.end = at;
}

// A write takes the place of all that was noted. A read joins it, in pieces and between them, and
// takes the place of its own timeline's reads.
void Touches::add(size_t begin, size_t end, const Touch &touch) {
    auto piece = pieces_.lower_bound(begin);
    if (touch.is_write) {
        while (piece != pieces_.end() && piece->first < end)
            piece = pieces_.erase(piece);
        pieces_[begin] = {end, {touch}};
        return;
    }
    while (begin < end) {
        if (piece == pieces_.end() || piece->first > begin) {
            const size_t stop = piece == pieces_.end() ? end : std::min(end, piece->first);
            pieces_[begin] = {stop, {touch}};
            begin = stop;
            continue;
        }
        std::vector<Touch> &all = piece->second.touches;
        all.erase(std::remove_if(
                      all.begin(), all.end(),
                      [&](const Touch &t) { return !t.is_write && t.timeline == touch.timeline; }),
                  all.end());
        all.push_back(touch);
        begin = piece->second.end;
        ++piece;
    }
}

const Touch *Touches::note(size_t begin, size_t end, const Touch &touch, const Clock &clock) {
    bool clashes = false;
    split(begin);
    split(end);
    for (auto piece = pieces_.lower_bound(begin); piece != pieces_.end() && piece->first < end;
         ++piece) {
        for (const Touch &then : piece->second.touches) {
            if ((then.is_write || touch.is_write) && !clashes && !is_before(then, clock)) {
                clash_ = then;
                clashes = true;
            }
        }
    }
    add(begin, end, touch);
    return clashes ? &clash_ : nullptr;
}

void check_order(const std::string &name, int stream, int timeline, const Clock &clock,
                 const std::vector<Range> &reads, const std::vector<Range> &writes) {
    bool reported = false;
    for (const bool is_write : {false, true}) {
        for (const Range &range : is_write ? writes : reads) {
            Allocation *memory = range.bytes > 0 ? find_memory(range.begin) : nullptr;
            if (!memory || memory->freed)
                continue; // its own report comes when it runs
            const Touch now = {timeline, clock[(size_t)timeline], is_write, stream, name};
            const size_t begin = (size_t)((const uint8_t *)range.begin - memory->memory);
            const size_t end = std::min(begin + range.bytes, memory->bytes);
            const Touch *then =
                begin < end ? memory->touches->note(begin, end, now, clock) : nullptr;
            if (then && !reported) {
                set_kernel(name);
                report(about(now, *then, *memory, begin));
                set_kernel("");
                reported = true;
            }
        }
    }
}

void check_host_order(const std::string &name, const std::vector<Range> &reads,
                      const std::vector<Range> &writes) {
    static const int own = take_timeline();
    host.resize(std::max(host.size(), (size_t)own + 1), 0);
    host[(size_t)own] = next_number(own);
    check_order(name, 0, own, host, reads, writes);
}

} // namespace cuda_on_cpu
