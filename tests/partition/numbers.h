/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of numbers in the files of solved cases. */
#pragma once

#include <jansson.h>

#include <vector>

/* `key` of the object, each times `factor`. */
inline std::vector<double> numbers(const json_t *object, const char *key, double factor) {
    std::vector<double> out;
    const json_t *array = json_object_get(object, key);
    for (size_t i = 0; i < json_array_size(array); i++) {
        out.push_back(json_number_value(json_array_get(array, i)) * factor);
    }
    return out;
}
