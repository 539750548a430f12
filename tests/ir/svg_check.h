/* SPDX-License-Identifier: Apache-2.0 */
/* Is a text well-formed XML of the simple kind that the pictures are: elements, attributes in
 * quotes, text with the five named entities? Says why not, or "". */
#pragma once

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

namespace svg {

inline bool is_text(const std::string &text) {
    for (size_t i = 0; i < text.size(); i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '<' || c >= 0x7f || (c < 0x20 && c != '\n')) {
            return false;
        }
        if (c == '&') {
            const std::string entity = text.substr(i, text.find(';', i) - i + 1);
            if (!std::set<std::string>{"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"}.count(entity)) {
                return false;
            }
        }
    }
    return true;
}

/* "name a="b" c="d"" after the bracket, without a final slash. */
inline bool is_tag(const std::string &tag) {
    size_t at = 0;
    std::set<std::string> seen;
    const auto word = [&] {
        const size_t from = at;
        while (at < tag.size() && (std::isalnum((unsigned char)tag[at]) || tag[at] == '-')) {
            at++;
        }
        return tag.substr(from, at - from);
    };
    if (word().empty()) {
        return false;
    }
    while (at < tag.size()) {
        if (tag[at++] != ' ') {
            return false;
        }
        const std::string name = word();
        if (name.empty() || !seen.insert(name).second || tag.substr(at, 2) != "=\"") {
            return false;
        }
        const size_t end = tag.find('"', at + 2);
        if (end == std::string::npos || !is_text(tag.substr(at + 2, end - at - 2))) {
            return false;
        }
        at = end + 1;
    }
    return true;
}

inline std::string problem(const std::string &text) {
    std::vector<std::string> open;
    bool root = false;
    for (size_t at = 0; at < text.size();) {
        if (text[at] != '<') {
            const size_t next = std::min(text.find('<', at), text.size());
            const std::string between = text.substr(at, next - at);
            if (!is_text(between) || (open.empty() && between != "\n")) {
                return "text '" + between + "'";
            }
            at = next;
            continue;
        }
        const size_t end = text.find('>', at);
        if (end == std::string::npos) {
            return "no end of a tag";
        }
        std::string tag = text.substr(at + 1, end - at - 1);
        at = end + 1;
        if (tag[0] == '/') {
            if (open.empty() || open.back() != tag.substr(1)) {
                return "unexpected <" + tag + ">";
            }
            open.pop_back();
            continue;
        }
        const bool alone = tag.back() == '/';
        if (alone) {
            tag.pop_back();
        }
        if (!is_tag(tag) || (open.empty() && root)) {
            return "tag <" + tag + ">";
        }
        root = true;
        if (!alone) {
            open.push_back(tag.substr(0, tag.find(' ')));
        }
    }
    return open.empty() && root ? "" : "an element is not closed";
}

inline size_t count(const std::string &text, const std::string &what) {
    size_t found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
        found++;
    }
    return found;
}

} // namespace svg
